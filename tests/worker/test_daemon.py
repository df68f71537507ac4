"""A worker with collaborators of the test's own, on a real chain: from a lease to a submission, outages included."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chain.indexer.records import Submission
from protocol.api.work import HeartbeatRequest, HeartbeatResponse, NoLease, UploadReceipt, WorkLease
from protocol.errors import UnreachableError
from protocol.rollout_file.file import read
from protocol.rollout_file.rows import Limits
from protocol.verdict import Code
from runtime.weights_ahead import WeightsAhead
from tests.chain.game import Game, begin
from tests.chain.game_pool import GamePool
from tests.conftest import Deployed
from tests.validator import tiny
from worker.daemon import EXIT_OK, EXIT_REFUSED, Worker
from worker.journal import Journal
from worker.submit import WorkerCollaborators


class ScriptedService:
    """Answers by script; once the worker has handed in `files` files, it is asked to stop."""

    def __init__(self, files: int) -> None:
        self.files, self.uploads, self.failures = files, list[bytes](), list[Exception]()
        self.answers: list[NoLease] = []
        self.worker: Worker | None = None
        self.receipt: Callable[[bytes], UploadReceipt] = NotImplemented

    def request_lease(self, counter: int, ready: int | None = None) -> NoLease | WorkLease:
        if counter >= self.files and self.worker:
            self.worker.stop()
            return NoLease(wait=0.1, reason="enough")
        if self.answers:
            return self.answers.pop()
        return WorkLease(lease="0" * 32, step=0, counter=counter, expires=2e9)

    def upload_rollouts(self, data: bytes) -> UploadReceipt:
        if self.failures:
            raise self.failures.pop()
        self.uploads.append(data)
        return self.receipt(hashlib.sha256(data).digest())

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

    def start(self, service: Any, pool: Any = None) -> Worker:
        """A process that finds what the one before left on disk."""
        pool = pool or GamePool(self.game, self.account, tiny.model_folder())
        ahead = WeightsAhead(pool, 0.01)
        ahead.start()
        parts = (self.account.address, pool, service, tiny.producer(), Journal(self.folder / "journal"), ahead)
        config: Any = SimpleNamespace(
            pool=self.game.pool, name="", heartbeat_seconds=0.05, claim_seconds=0.5, poll_seconds=0.01
        )
        service.worker = Worker(config, WorkerCollaborators(*parts))
        service.receipt = lambda sha256: self.game.receipt(parts[0], sha256, self.game.suite.client.now())
        worker: Worker = service.worker
        return worker

    @property
    def submissions(self) -> list[Submission]:
        return self.game.state.submissions_of(self.game.pool)


@pytest.fixture
def world(deployed: Deployed, tmp_path: Path) -> WorkerWorld:
    return WorkerWorld(begin(deployed, tmp_path), tmp_path)


def test_files_are_made_uploaded_and_submitted_in_the_order_of_their_counters(world: WorkerWorld) -> None:
    service = ScriptedService(files=2)
    service.answers.append(NoLease(wait=0.1, reason="no work just now"))
    assert world.start(service).run() == EXIT_OK
    assert [file.counter for file in world.submissions] == [0, 1]
    for file, data in zip(world.submissions, service.uploads, strict=True):
        header, rows = read(data, Limits.of(tiny.CONFIG.work))
        assert (header.work.id.node, header.work.id.counter) == (file.node, file.counter)
        assert sum(len(row.output_tokens) for row in rows) == file.units


def test_a_finished_file_is_handed_in_after_outages_and_kills_without_being_made_again(world: WorkerWorld) -> None:
    failing = ScriptedService(files=1)
    first = world.start(failing)

    def interrupted(data: bytes) -> UploadReceipt:
        first.stop()
        raise UnreachableError("the service is down")

    failing.upload_rollouts = interrupted  # type: ignore[method-assign]
    assert first.run() == EXIT_OK
    assert world.submissions == []
    (entry,) = Journal(world.folder / "journal").all()
    service = ScriptedService(files=1)
    assert world.start(service).run() == EXIT_OK
    assert [file.sha256 for file in world.submissions] == [entry.sha256]


def test_a_full_disk_ends_no_worker(world: WorkerWorld) -> None:
    service = ScriptedService(files=1)
    service.failures.append(OSError(28, "No space left on device", "journal/0.json"))
    assert world.start(service).run() == EXIT_OK
    assert len(world.submissions) == 1


def test_a_worker_whose_file_was_refused_ends_with_an_error(world: WorkerWorld) -> None:
    assert world.start(ScriptedService(files=1)).run() == EXIT_OK
    world.game.vote(0, {0: int(Code.REJECT_WEIGHTS)})
    world.game.deployed.chain.later(61)
    world.game.suite.pools.finalize(world.submissions[0]).send()
    assert world.start(ScriptedService(files=9)).run() == EXIT_REFUSED
