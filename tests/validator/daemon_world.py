"""A validator's process with collaborators of the test's own, on a real chain."""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, cast

from chain.indexer.records import Lane, Submission
from protocol.api.work import HeartbeatRequest, HeartbeatResponse
from protocol.errors import UnreachableError
from runtime.process import PoolSource
from tests.chain.game import Game, begin, terms, work
from tests.chain.game_pool import GamePool
from tests.conftest import TOKEN, Deployed, free_port
from tests.validator import tiny
from tests.validator.scripted import ScriptedJudge, ScriptedObjects, judge_of
from validator.ballots import BallotStore
from validator.config import ServeConfig
from validator.daemon import Validator
from validator.judging.queue import JudgeQueue
from validator.judging.verdicts import VerdictStore
from validator.pools import PoolCollaborators, ValidatorCollaborators
from validator.retention import FileServer, RetentionStore, Serving
from validator.tasks import TransactionTasks

FAMILY = 1 << 31 | 7  # a validator group that is no pool's number


class Publications:
    """The pool's service: keeps what is published."""

    def __init__(self) -> None:
        self.documents: list[bytes] = []
        self.beats: list[HeartbeatRequest] = []

    def upload_verdict(self, data: bytes) -> None:
        self.documents.append(data)

    def heartbeat(self, beat: HeartbeatRequest) -> HeartbeatResponse:
        self.beats.append(beat)
        return HeartbeatResponse(next=1.0, step=None, lease_expires=None)

    def close(self) -> None:
        """Nothing to close."""


class ValidatorWorld:
    """A game with one submitted file, and validators that hold the keys of all its seats. `unreachable`: pools whose
    service does not answer. What is started next keeps at most `room` bytes of files, shows them as `serve` says or
    with `serving`, votes in `threads`, fetches from `objects` and has `patience` seconds of it; the pool's document is
    `config`."""

    def __init__(self, game: Game, folder: Path) -> None:
        self.game, self.folder, self.service, self.judge = game, folder, Publications(), ScriptedJudge()
        self.running: list[tuple[Validator, ValidatorCollaborators]] = []
        self.unreachable: set[int] = set()
        self.objects: Any = ScriptedObjects()
        self.patience, self.room, self.config = 0.0, 1 << 20, tiny.CONFIG
        at = f"127.0.0.1:{free_port()}"
        self.serve: ServeConfig | None = ServeConfig(listen=at, public_url=f"http://{at}")
        self.serving: Serving | None = None
        self.threads = 8
        self.opened: list[tuple[str, bool]] = []

    def start(self, *voters: str) -> Validator:
        """A process with these voting keys, or all; it finds what the one before left on disk."""
        suites = {suite.client.address: suite for suite in self.game.voters.values()}
        verdicts, chain = VerdictStore(self.folder / "verdicts"), cast(Any, GamePool(self.game))
        files, queue = RetentionStore(self.folder / "files", self.room), JudgeQueue(verdicts)
        queue.start()
        collaborators = ValidatorCollaborators(
            chain=chain,
            voters={voter: suites[voter] for voter in voters or suites},
            ballots=BallotStore(self.folder / "ballots"),
            verdicts=verdicts,
            retained=files,
            serving=FileServer(self.serve, files) if self.serve else self.serving,
            queue=queue,
            tasks=TransactionTasks(self.threads),
            wake=threading.Event(),
        )
        sources = {self.game.pool: PoolSource(pool=self.game.pool, orchestrator="http://configured")}
        engine = SimpleNamespace(name="scripted")
        config: Any = SimpleNamespace(sources=sources, name="", engine=engine, heartbeat_seconds=0.05, home=self.folder)
        validator = Validator(config, collaborators, self.open)
        self.running.append((validator, collaborators))
        return validator

    def open(self, source: PoolSource, announced: bool) -> PoolCollaborators:
        """As `PoolOpener.open`, without a network."""
        self.opened.append((source.orchestrator, announced))
        if source.pool in self.unreachable:
            raise UnreachableError(f"{source.orchestrator} does not answer", "start it")
        client, service = cast(Any, GamePool(self.game, pool=source.pool)), cast(Any, self.service)
        files = self.running[-1][1].retained
        judge = judge_of(self.folder / "verdicts", self.objects, self.judge, files)
        return PoolCollaborators(client, service, judge, self.config, self.patience, self.patience)

    def drawable(self) -> tuple[str, ...]:
        """Mine the seed of the file's committee; the members' voting keys."""
        self.game.mine_to(self.lane.round.seed_block + 1)
        committee = self.game.suite.court.committee_of((self.game.pool, 0, 0))
        assert committee is not None
        return committee.voters

    @property
    def lane(self) -> Lane:
        return self.game.state.lanes[self.game.pool, 0]

    @property
    def file(self) -> Submission:
        return self.game.state.submissions[self.game.pool, 0]

    def stop(self) -> None:
        while self.running:
            validator, collaborators = self.running.pop()
            validator.close()
            collaborators.close()


@contextmanager
def validator_world(deployed: Deployed, folder: Path, **changes: object) -> Iterator[ValidatorWorld]:
    game = begin(deployed, folder, **changes)  # type: ignore[arg-type]
    _, node = game.node()
    game.publish()
    game.submit(node, 0, work("a"))
    world = ValidatorWorld(game, folder)
    try:
        yield world
    finally:
        world.stop()


def turns(validator: Validator, until: Any) -> None:
    deadline = time.monotonic() + 240
    while not until():
        assert time.monotonic() < deadline
        validator.turn()
        time.sleep(0.05)


def second_pool(
    world: ValidatorWorld,
    url: str = "http://announced",
    family: int = 0,
    changes: Mapping[str, object] = MappingProxyType({}),
) -> Game:
    """A stranger's pool, its terms with `changes`, that the same seats opt into, by its number or by its family; it
    opens as soon as somebody counts its seats."""
    game, owner = world.game, world.game.deployed.rich()
    suite = game.deployed.suite(owner)
    promised = terms(**{"group": family, **changes})
    other = replace(game, owner=owner, pool=suite.pools.create_pool(promised, 1000 * TOKEN).send())
    suite.court.set_service(other.pool, game.service.address).send()
    if url:
        suite.court.announce_service(other.pool, url).send()
    for seat in game.voters:
        game.validator.seats.opt_in(seat, family or other.pool).send()
    game.deployed.chain.mine(2 * suite.seats.epoch_blocks())
    return other


def with_file(game: Game) -> Lane:
    """The pool's first lane, of one file, with its seed mined."""
    _, node = game.node()
    game.publish()
    game.submit(node, 0, work("b"))
    lane = game.state.lanes[game.pool, 0]
    game.mine_to(lane.round.seed_block + 1)
    return lane
