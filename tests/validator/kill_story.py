"""The life of one file, from its submission to the last fee of a dispute, as two validators' processes bring it about:
the committee's, and the one of all other seats. Either may be killed on the way, and is started again."""

import hashlib
import multiprocessing
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from chain.errors import ContractError
from chain.indexer.records import Lane, Submission, Trial
from protocol.verdict import Code
from storage.keys import MissingObjectError, object_key
from storage.s3 import Bucket, S3Settings
from tests.chain.game import Game, work
from tests.localnet.services.running import ServiceProcess, settings_of
from tests.storage.mirror import mirror, send
from tests.validator.mortal import Life, live
from validator.ballots import BallotStore

WINDOW = 250  # seconds of every window
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.validator.mortal"])
_PATIENCE = 900.0
Ends = frozenset[str] | int
_NOWHERE: Ends = frozenset()


class MortalProcess:
    """A validator's process with `home`, restarted as often as it is killed: at its `ends`, in whatever order it comes
    to them, once at each; or once, at the moment of that number. `deaths`: where it was."""

    def __init__(self, folder: Path, config: dict[str, object], keys: tuple[str, ...], service: S3Settings) -> None:
        self.home, self._config, self._keys, self._service = folder / "home", config, keys, service.model_dump()
        self._folder, self._lives = folder, 0
        self._process: multiprocessing.process.BaseProcess | None = None
        self.ends: Ends = frozenset()
        self.deaths: list[str] = []

    @property
    def _grave(self) -> Path:
        return self._folder / f"life-{self._lives}"

    def start(self) -> None:
        self._lives += 1
        self._folder.mkdir(parents=True, exist_ok=True)
        config = {"home": self.home, **self._config}
        life = Life(config, self._keys, self._service, self._grave, *self._moment())
        self._process = _CONTEXT.Process(target=live, args=(life,), daemon=True)
        self._process.start()

    def _moment(self) -> tuple[int, frozenset[str]]:
        if isinstance(self.ends, int):
            return 0 if self.deaths else self.ends, frozenset()
        left = self.ends - set(self.deaths)
        return int(bool(left)), left

    def died(self) -> bool:
        """Whether it has been killed as was asked; AssertionError if it ended otherwise."""
        if self._process is None or self._process.is_alive():
            return False
        assert self._process.exitcode == -9, self._grave.with_suffix(".log").read_text()
        self.deaths.append(self._grave.read_text())
        return True

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()

    @property
    def state(self) -> Path:
        """The folder of what it keeps for this chain."""
        return next(path.parent for path in self.home.glob("*/ballots"))


class Town:
    """The chain, the pool's bucket and one that belongs to the committee's seats, both on a real S3 server and served
    to everybody; of the pool's files only while `serving`."""

    def __init__(self, game: Game, folder: Path, s3: ServiceProcess) -> None:
        self.game, self._folder, self._stories = game, folder, 0
        settings = settings_of(s3)
        self.settings, self.bucket, self.serving = settings, Bucket(settings), True
        self.own = settings.model_copy(update={"bucket": "seat"})
        self._seat = Bucket(self.own)
        self._seat._client.create_bucket(Bucket="seat")
        _, self.node = game.node()
        self.disputer = game.deployed.rich()
        game.publish()
        self.url = ""

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        key = "/".join(handler.path.split("/")[-2:])
        seat = handler.path.startswith("/seat/")
        try:
            data = (self._seat if seat else self.bucket).get(key) if seat or self.serving else b""
        except MissingObjectError:
            data = b""
        send(handler, 200 if data else 404, data)

    def process(self, name: str, keys: list[str]) -> MortalProcess:
        game = self.game
        config = {
            "deployment": game.deployed.folder / "deployment.json",
            "rpc": (game.deployed.chain.url,),
            "pool": game.pool,
            "orchestrator": f"{self.url}/pool",
            "allow_private_sources": True,
            "cache": self._folder / "cache",
            "voters": [{"keystore": "none"}],
            "confirmations": 0,
            "poll_seconds": 0.1,
            "republish": {**self.own.model_dump(), "public_url": f"{self.url}/seat"},
        }
        return MortalProcess(self._folder / f"story-{self._stories}" / name, config, tuple(keys), self.settings)

    def story(self, committee: Ends = _NOWHERE, jurors: Ends = _NOWHERE) -> list[str]:
        """One file's life, with these ends of the processes' lives on the way; returns where they did end."""
        self._stories += 1
        return Story(self, f"file {self._stories}").run(committee, jurors)


class Story:
    """See `Town.story`."""

    def __init__(self, town: Town, text: str) -> None:
        self._town, game = town, town.game
        self._game, self._seen = game, dict[int, bytes]()
        data = text.encode()
        town.serving = True
        town.bucket.put(object_key("rollouts", hashlib.sha256(data).digest()), data)
        self._place = game.pool, game.submit(town.node, 0, work(text)).sequence
        game.attest(self._lane.lane)
        game.mine_to(self._lane.rounds[0].seed_block + 1)
        self._fined = self._penalties
        found = game.suite.court.committee_of((game.pool, self._lane.lane, 0))
        assert found is not None
        game.draw(self._lane.lane)
        members = [suite for suite in game.voters.values() if suite.client.address in found.voters]
        keys = {suite: suite.client.account.key.hex() for suite in game.voters.values() if suite.client.account}
        self._committee = town.process("committee", [keys[suite] for suite in members])
        self._jurors = town.process("jurors", [key for suite, key in keys.items() if suite not in members])

    @property
    def _file(self) -> Submission:
        return self._game.state.submissions[self._place]

    @property
    def _lane(self) -> Lane:
        return self._game.state.lanes[self._place[0], self._place[1] >> 4]

    @property
    def _trial(self) -> Trial | None:
        found = [trial for trial in self._game.state.trials.values() if (trial.pool, trial.sequence) == self._place]
        return found[-1] if found else None

    @property
    def _penalties(self) -> int:
        return sum(seat.penalised for seat in self._game.state.seats.values())

    def run(self, committee: Ends, jurors: Ends) -> list[str]:
        processes, deadline = (self._committee, self._jurors), time.monotonic() + _PATIENCE
        self._committee.ends, self._jurors.ends = committee, jurors
        try:
            with blocks(self._game):
                self._committee.start()
                while not self._over():
                    deaths = [one.deaths for one in processes]
                    assert time.monotonic() < deadline, f"{deaths} {self._lane} {self._trial}"
                    for process in processes:
                        if process.died():
                            self._check()
                            process.start()
                    if self._lane.round.settled and not self._file.disputed and self._trial is None:
                        self._dispute()
                    self._draw_jury()
                    self._outlast()
                    time.sleep(0.05)
            self._check()
            self._happy_end()
            return [*self._committee.deaths, *self._jurors.deaths]
        finally:
            for process in processes:
                process.kill()

    def _dispute(self) -> None:
        """The owner serves the file no more, and somebody says that it never was there."""
        self._town.serving = False
        suite = self._game.deployed.suite(self._town.disputer)
        suite.appeals.dispute(self._file).send()
        self._jurors.start()

    def _draw_jury(self) -> None:
        """While its one seed can be drawn with, however slowly its jurors start."""
        trial, suite = self._trial, self._game.suite
        if trial is not None and not trial.drawn and suite.client.head().number > trial.seed_block:
            with suppress(ContractError):  # a juror was quicker
                suite.juries.draw(trial.trial).send()

    def _outlast(self) -> None:
        """The challenge window, once nothing else is left to be done."""
        state, end = self._game.state, self._lane.round.settled_time + WINDOW
        left = end - self._game.suite.client.now()
        if self._place in state.disputes and state.disputes[self._place].resolved and left > 0:
            self._game.deployed.chain.mine(min(left, 25))  # in pieces, for slow machines

    def _over(self) -> bool:
        trial, lane = self._trial, self._lane
        if trial is None or not self._game.state.disputes[self._place].resolved:
            return False
        return len(lane.round.closed) == 3 and len(trial.closed) == len(trial.seats)

    def _check(self) -> None:
        """What has been committed can be shown, and is no other word than before; what has been accepted is there."""
        current = self._lane.rounds[0]
        for member, commitment in current.commits.items():
            assert self._seen.setdefault(member, commitment) in (commitment, b"")
            if commitment:
                where = f"lane-{self._place[0]}-{self._lane.lane}-0"
                box = BallotStore(self._committee.state / "ballots")
                ballot = box.committed(where, current.seats[member], commitment)
                assert ballot is not None
                assert list(self._committee.state.glob(f"verdicts/*/{ballot.verdict_hash.hex()}.json"))
        sha256 = self._file.sha256
        kept = self._committee.state / "files" / f"{self._place[0]}-{self._place[1]}-{sha256.hex()}.parquet"
        if kept.exists():
            # From now on its owner shows it to nobody, this process among them.
            self._town.serving = False
        if current.commits and not self._file.finalized:
            assert hashlib.sha256(kept.read_bytes()).digest() == sha256

    def _happy_end(self) -> None:
        lane, trial, file = self._lane, self._trial, self._file
        assert trial is not None
        assert file.code == Code.ACCEPT
        assert len(lane.rounds) == 1
        assert lane.rounds[0].reveals.keys() == lane.rounds[0].commits.keys() == {0, 1, 2}
        assert trial.reveals.keys() == trial.commits.keys() == set(range(len(trial.seats)))
        assert self._penalties == self._fined, "no seat lost anything"
        for process, where in ((self._committee, "lane-*"), (self._jurors, "trial-*")):
            names = [path.name.rpartition("-")[0] for path in (process.state / "ballots").glob(where)]
            assert len(names) == len(set(names)), "no seat had two words"
        for digest in {digest for _, digest in (*lane.rounds[0].reveals.values(), *trial.reveals.values())}:
            assert self._town.bucket.get(object_key("verdicts", digest)), "evidence for everybody"
        assert self._game.state.mirrors_of(file) == (f"{self._town.url}/seat/{object_key('rollouts', file.sha256)}",)


@contextmanager
def blocks(game: Game) -> Iterator[None]:
    """A block every other moment, and soon after what was sent: when a process dies it need not be mined yet. Each is a
    second later than the one before, however slow this machine is."""
    chain, over = game.deployed.chain, threading.Event()

    def mine() -> None:
        idle = 0
        while not over.wait(0.25):
            idle += 1
            if idle == 8 or int(chain.rpc("txpool_status")["pending"], 16):
                idle = 0
                chain.mine()

    miner = threading.Thread(target=mine, daemon=True)
    chain.rpc("evm_setAutomine", False)
    chain.rpc("anvil_setBlockTimestampInterval", 1)
    miner.start()
    try:
        yield
    finally:
        over.set()
        miner.join()
        chain.rpc("anvil_removeBlockTimestampInterval")
        chain.rpc("evm_setAutomine", True)


@contextmanager
def town(game: Game, folder: Path) -> Iterator[Town]:
    s3 = ServiceProcess("s3", folder / "s3")
    s3.start()
    try:
        made = Town(game, folder, s3)
        with mirror(made.answer) as made.url:
            yield made
    finally:
        s3.stop()
