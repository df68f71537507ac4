"""A worker with collaborators of the test's own, on a real chain."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from chain.indexer.records import Submission
from protocol.api.work import HeartbeatRequest, HeartbeatResponse, NoLease, UploadReceipt, WorkLease
from runtime.weights_ahead import WeightsAhead
from tests.chain.game import Game
from tests.chain.game_pool import GamePool
from tests.validator import tiny
from worker.daemon import Worker
from worker.journal import Journal
from worker.submit import WorkerCollaborators


class ScriptedService:
    """Answers by script; once the worker has handed in `files` files, it is asked to stop. `before` and `after` are
    called around each upload."""

    def __init__(self, files: int) -> None:
        self.files, self.uploads, self.failures = files, list[bytes](), list[Exception]()
        self.answers: list[NoLease] = []
        self.worker: Worker | None = None
        self.receipt: Callable[[bytes], UploadReceipt] = NotImplemented
        self.before: Callable[[], object] = lambda: None
        self.after: Callable[[], object] = lambda: None

    def request_lease(self, counter: int, ready: int | None = None) -> NoLease | WorkLease:
        if counter >= self.files and self.worker:
            self.worker.stop()
            return NoLease(wait=0.1, reason="enough")
        if self.answers:
            return self.answers.pop()
        return WorkLease(lease="0" * 32, step=0, counter=counter, expires=2e9)

    def upload_rollouts(self, data: bytes) -> UploadReceipt:
        self.before()
        if self.failures:
            raise self.failures.pop()
        self.uploads.append(data)
        receipt = self.receipt(hashlib.sha256(data).digest())
        self.after()
        return receipt

    def heartbeat(self, beat: HeartbeatRequest) -> HeartbeatResponse:
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
        seconds = {"heartbeat_seconds": 0.05, "claim_seconds": 0.5, "poll_seconds": 0.01}
        config: Any = SimpleNamespace(pool=self.game.pool, name="", **seconds)
        worker = Worker(config, collaborators)
        service.worker, node = worker, collaborators.node
        service.receipt = lambda sha256: self.game.receipt(node, sha256, self.game.suite.client.now())
        return worker

    @property
    def submissions(self) -> list[Submission]:
        return self.game.state.submissions_of(self.game.pool)
