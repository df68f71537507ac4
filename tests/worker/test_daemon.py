"""From a lease to a submission, outages included."""

import threading
from collections import Counter
from typing import Any

import pytest
import torch

from protocol.api.work import NoLease
from protocol.errors import MusterError, UnreachableError
from protocol.rollout_file.file import read
from protocol.rollout_file.rows import Limits
from protocol.verdict import Code
from runtime.entry import Exit
from runtime.home_status import crash_message
from tests.validator import tiny
from tests.worker.world import ScriptedService, WorkerWorld
from worker import decide
from worker.journal import Journal


def test_files_are_made_uploaded_and_submitted_in_the_order_of_their_counters(world: WorkerWorld) -> None:
    service = ScriptedService(files=2)
    service.answers.append(NoLease(wait=0.1, reason="no work just now"))
    assert world.start(service).run() == Exit.DONE
    assert [file.counter for file in world.submissions] == [0, 1]
    for file, data in zip(world.submissions, service.uploads, strict=True):
        header, rows = read(data, Limits.of(tiny.CONFIG.work))
        assert (header.work.id.node, header.work.id.counter) == (file.node, file.counter)
        assert sum(len(row.output_tokens) for row in rows) == file.units


def test_a_finished_file_is_handed_in_after_outages_and_kills_without_being_made_again(world: WorkerWorld) -> None:
    failing = ScriptedService(files=1)
    failing.failures.append(UnreachableError("the service is down"))
    first = world.start(failing)
    failing.before = first.stop
    assert first.run() == Exit.DONE
    assert world.submissions == []
    (entry,) = Journal(world.folder / "journal").all()
    service = ScriptedService(files=1)
    assert world.start(service).run() == Exit.DONE
    assert [file.sha256 for file in world.submissions] == [entry.sha256]


@pytest.mark.parametrize(("most_waiting", "looks"), [(1, 8), (2, 25)], ids=["it may make no more", "it has no lease"])
def test_a_worker_whose_file_waits_rests(
    most_waiting: int, looks: int, world: WorkerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decide, "_most_waiting", lambda *_: most_waiting)
    service, did = ScriptedService(files=1, relays=False), Counter[str]()
    worker = world.start(service)
    config: Any = worker._config
    config.poll_seconds = 0.5

    def counted(owner: object, name: str) -> None:
        real = getattr(owner, name)

        def call(*args: object) -> object:
            did[name] += 1
            return real(*args)

        monkeypatch.setattr(owner, name, call)

    def count() -> None:
        counted(worker._client, "refresh")
        counted(worker, "_look")
        threading.Timer(2.0, worker.stop).start()

    service.after = count
    assert worker.run() == Exit.DONE
    assert 1 <= did["refresh"] <= 5, did
    assert did["refresh"] <= did["_look"] <= looks, did


def test_a_full_disk_ends_no_worker(world: WorkerWorld) -> None:
    service = ScriptedService(files=1)
    service.failures.append(OSError(28, "No space left on device", "journal/0.json"))
    assert world.start(service).run() == Exit.DONE
    assert len(world.submissions) == 1


def test_a_worker_whose_device_is_lost_ends_and_says_why(world: WorkerWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    worker, why = world.start(ScriptedService(files=1)), "CUDA error: an illegal memory access was encountered"

    def fail(*_: object) -> None:
        raise MusterError("vLLM failed") from torch.AcceleratorError(why)

    monkeypatch.setattr(worker._collaborators.producer, "make", fail)
    monkeypatch.setattr(worker._config, "home", world.folder, raising=False)
    assert worker.run() == Exit.STALLED
    assert crash_message(world.folder) == "vLLM failed"
    assert world.submissions == []


def test_a_worker_whose_file_was_refused_ends_with_an_error(world: WorkerWorld) -> None:
    assert world.start(ScriptedService(files=1)).run() == Exit.DONE
    world.game.vote(0, {0: int(Code.REJECT_WEIGHTS)})
    world.game.deployed.chain.later(61)
    world.game.suite.pools.finalize(world.submissions[0]).send()
    assert world.start(ScriptedService(files=9)).run() == Exit.EJECTED
