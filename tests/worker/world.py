"""A worker with collaborators of the test's own, on a real chain."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from chain.contracts import SignedFile
from chain.indexer.records import Submission
from protocol.api.work import (
    HeartbeatRequest,
    HeartbeatResponse,
    NoLease,
    SubmissionRequest,
    SubmissionResponse,
    UploadReceipt,
    WorkLease,
)
from runtime.weights_ahead import WeightsAhead
from tests.chain.game import Game
from tests.chain.game_pool import GamePool
from tests.validator import tiny
from worker.daemon import Worker
from worker.journal import Journal
from worker.submit import WorkerCollaborators


class ScriptedService:
    """Answers by script; once `files` files of the worker are on chain, it is asked to stop. `before` and `after` are
    called around each upload, `beat` at each heartbeat. `relays`: whether it relays what is handed in, and at once."""

    def __init__(self, files: int, relays: bool = True) -> None:
        self.files, self.uploads, self.failures = files, list[bytes](), list[Exception]()
        self.relays, self.handed_in, self.refuses = relays, list[SignedFile](), ""
        self.answers: list[NoLease] = []
        self.worker: Worker | None = None
        self.world: WorkerWorld = NotImplemented
        self.receipt: Callable[[bytes], UploadReceipt] = NotImplemented
        self.before: Callable[[], object] = lambda: None
        self.after: Callable[[], object] = lambda: None
        self.beat: Callable[[HeartbeatRequest], object] = lambda sent: None

    def request_lease(self, counter: int, ready: int | None = None) -> NoLease | WorkLease:
        if counter >= self.files:
            if self.worker and len(self.world.own) >= self.files:
                self.worker.stop()
            return NoLease(wait=0.1, reason="enough")
        if self.answers:
            return self.answers.pop()
        return WorkLease(lease="0" * 32, step=0, counter=counter, expires=2e9, longest=600.0)

    def upload_rollouts(self, data: bytes) -> None:
        self.before()
        if self.failures:
            raise self.failures.pop()
        self.uploads.append(data)

    def hand_in(self, file: SubmissionRequest) -> SubmissionResponse:
        signed = SignedFile(str(self.world.account.address), file)
        receipt, known = self.receipt(bytes.fromhex(file.sha256)), signed in self.handed_in
        if not known:
            self.handed_in.append(signed)
        if self.relays:
            self.relay()
        if not known:
            self.after()
        return SubmissionResponse(state="refused" if self.refuses else "waiting", receipt=receipt, reason=self.refuses)

    def relay(self) -> None:
        """Send what is not on chain, as one lane."""
        game, landed = self.world.game, {file.sha256.hex() for file in self.world.own}
        due = [one for one in self.handed_in if one.file.sha256 not in landed]
        if due:
            game.deployed.suite(game.service).pools.submit_lane(game.pool, due).send()

    def heartbeat(self, beat: HeartbeatRequest) -> HeartbeatResponse:
        self.beat(beat)
        return HeartbeatResponse(next=1.0, step=None, lease_expires=None)

    def close(self) -> None:
        """Nothing to close."""


class WorkerWorld:
    """A game with one joined node and a published step."""

    def __init__(self, game: Game, folder: Path) -> None:
        self.game, self.folder = game, folder
        _, self.account = game.node()
        game.publish()

    def collaborators(self, service: Any, pool: Any = None) -> WorkerCollaborators:
        """Those of a process that finds what the one before left on disk."""
        pool = pool or GamePool(self.game, self.account, tiny.model_folder())
        journal, node = Journal(self.folder / "journal"), str(self.account.address)
        return WorkerCollaborators(node, pool, service, tiny.producer(), journal, WeightsAhead(pool, 0.01))

    def start(self, service: Any, pool: Any = None) -> Worker:
        collaborators = self.collaborators(service, pool)
        collaborators.ahead.start()
        seconds = {"heartbeat_seconds": 0.05, "poll_seconds": 0.01}
        config: Any = SimpleNamespace(pool=self.game.pool, name="", home=self.folder, **seconds)
        worker = Worker(config, collaborators)
        service.worker, service.world, node, given = worker, self, collaborators.node, dict[bytes, UploadReceipt]()

        def receipt(sha256: bytes) -> UploadReceipt:
            """The same one whenever it is asked for."""
            return given.setdefault(sha256, self.game.receipt(node, sha256, self.game.suite.client.now()))

        service.receipt = receipt
        return worker

    @property
    def own(self) -> list[Submission]:
        """The node's files on chain."""
        return self.game.state.submissions_of(self.game.pool, str(self.account.address))

    @property
    def submissions(self) -> list[Submission]:
        return self.game.state.submissions_of(self.game.pool)
