"""A validator with collaborators of the test's own, on a real chain: from a submitted file to the fee."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chain.judging import Lane
from chain.records import Submission
from protocol.verdict import BallotDocument, Code
from tests.chain.game import Game, begin, work
from tests.chain.game_pool import GamePool
from tests.conftest import Deployed
from tests.validator.scripted import ScriptedJudge, ScriptedObjects, queue_of
from validator.ballots import BallotBox
from validator.collaborators import ValidatorCollaborators
from validator.daemon import Validator
from validator.transaction_tasks import TransactionTasks
from validator.verdict_store import VerdictStore


class Publications:
    """The pool's service: keeps what is published."""

    def __init__(self) -> None:
        self.documents: list[bytes] = []

    def upload_verdict(self, data: bytes) -> None:
        self.documents.append(data)

    def close(self) -> None:
        """Nothing to close."""


class ValidatorWorld:
    """A game with one submitted file, and validators that hold the keys of all its seats."""

    def __init__(self, game: Game, folder: Path) -> None:
        self.game, self.folder, self.service, self.judge = game, folder, Publications(), ScriptedJudge()
        self.running: list[ValidatorCollaborators] = []

    def start(self, *voters: str) -> Validator:
        """A process with these voting keys, or all; it finds what the one before left on disk."""
        suites = {suite.client.address: suite for suite in self.game.voters.values()}
        pool: Any = GamePool(self.game)
        service: Any = self.service
        queue = queue_of(self.folder / "verdicts", ScriptedObjects([], b"bytes"), self.judge)
        queue.start()
        collaborators = ValidatorCollaborators(
            pool_client=pool,
            orchestrator=service,
            voters={voter: suites[voter] for voter in voters or suites},
            ballots=BallotBox(self.folder / "ballots"),
            verdicts=VerdictStore(self.folder / "verdicts", b"c" * 32),
            queue=queue,
            tasks=TransactionTasks(8),
            wake=threading.Event(),
        )
        self.running.append(collaborators)
        config: Any = SimpleNamespace(pool=self.game.pool, name="", engine=SimpleNamespace(name="scripted"))
        return Validator(config, collaborators)

    @property
    def lane(self) -> Lane:
        return self.game.state.lanes[self.game.pool, 0]

    @property
    def file(self) -> Submission:
        return self.game.state.submissions[self.game.pool, 0]

    def stop(self) -> None:
        while self.running:
            self.running.pop().close()


@pytest.fixture
def world(deployed: Deployed, tmp_path: Path) -> Iterator[ValidatorWorld]:
    game = begin(deployed, tmp_path)
    _, node = game.node()
    game.publish()
    game.submit(node, 0, work("a"))
    world = ValidatorWorld(game, tmp_path)
    yield world
    world.stop()


def turns(validator: Validator, until: Any) -> None:
    deadline = time.monotonic() + 40
    while not until():
        assert time.monotonic() < deadline
        validator.turn()
        time.sleep(0.05)


def test_a_file_is_judged_before_the_draw_then_voted_on_settled_published_and_paid_for(world: ValidatorWorld) -> None:
    validator, game = world.start(), world.game
    turns(validator, lambda: world.judge.sequences)
    assert not world.lane.round.drawn
    assert not list((world.folder / "ballots").iterdir())
    game.mine_to(world.lane.round.seed_block + 1)
    turns(validator, lambda: world.lane.round.settled)
    assert world.file.code == Code.ACCEPT
    assert len(world.lane.round.reveals) == 3
    assert world.judge.sequences == [0], "judged once for all seats, before and after the draw"
    turns(validator, lambda: len(world.service.documents) == 1)
    ((_, digest), *others) = world.lane.round.reveals.values()
    assert all(other == digest for _, other in others)
    assert BallotDocument.parse(world.service.documents[0], digest).on(0).code is Code.ACCEPT
    game.deployed.chain.later(61)
    turns(validator, lambda: len(world.lane.round.closed) == 3)
    assert sum(seat.earned for seat in game.state.seats.values()) == 3 * game.state.pools[game.pool].terms.fee


def test_a_validator_killed_between_commit_and_reveal_reveals_the_same_votes(world: ValidatorWorld) -> None:
    world.game.mine_to(world.lane.round.seed_block + 1)
    committee = world.game.suite.court.committee_of((world.game.pool, 0, 0))
    assert committee is not None
    first = world.start(committee.voters[1])
    turns(first, lambda: world.lane.round.commits)
    world.stop()
    committed = dict(world.lane.round.commits)
    assert list(committed) == [1]
    second = world.start()
    turns(second, lambda: world.lane.round.settled)
    assert world.file.code == Code.ACCEPT
    assert committed.items() <= world.lane.round.commits.items()
    assert len(world.lane.round.reveals) == 3
