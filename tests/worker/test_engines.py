"""One node key with two engines, on a real chain: files made at the same time, each handed in once, in order."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from protocol.api.work import HeartbeatRequest, NoLease, WorkLease
from protocol.rollout_file.file import read
from protocol.rollout_file.rows import Limits
from runtime.engine_process import EngineProcesses
from runtime.entry import Exit
from runtime.home_status import crash_message
from runtime.process import EngineConfig
from tests.validator import tiny
from tests.worker.world import ScriptedService, WorkerWorld
from worker.journal import Journal
from worker.produce import Producer
from worker.submit import WorkerCollaborators

FILES = 6


@pytest.fixture
def engines(tmp_path: Path) -> Iterator[EngineProcesses]:
    made = EngineProcesses(EngineConfig(data_parallel=2, batch=16), tmp_path)
    yield made
    made.close()


class TwoEngines(WorkerWorld):
    """A world whose worker has engines in processes of their own."""

    def __init__(self, world: WorkerWorld, engines: EngineProcesses) -> None:
        self.game, self.folder, self.account, self.engines = world.game, world.folder, world.account, engines

    def collaborators(self, service: Any, pool: Any = None) -> WorkerCollaborators:
        given = super().collaborators(service, pool)
        producer = Producer(tiny.CONFIG, self.engines, given.journal.rows)
        return replace(given, producer=producer)


class Steps(ScriptedService):
    """From file `FILES // 2` on, files are of a step that is published once the first is on chain. `most`: the most
    leases that a heartbeat named."""

    def __init__(self, files: int, world: WorkerWorld) -> None:
        super().__init__(files)
        self.after = lambda: world.game.publish() if len(self.uploads) == 1 else None
        self.most, self.leased = 0, list[int]()
        self.beat = self.see

    def see(self, sent: HeartbeatRequest) -> None:
        self.most = max(self.most, len(sent.leases))

    def request_lease(self, counter: int, ready: int | None = None) -> NoLease | WorkLease:
        answer = super().request_lease(counter, ready)
        if isinstance(answer, WorkLease):
            later = counter >= FILES // 2
            if later and ready != 1:
                return NoLease(wait=0.1, reason="not yet")
            self.leased.append(counter)
            return answer.model_copy(update={"step": int(later), "lease": f"{counter:032x}"})
        return answer


def test_two_engines_make_files_under_one_key(world: WorkerWorld, engines: EngineProcesses) -> None:
    service = Steps(FILES, world)
    assert TwoEngines(world, engines).start(service).run() == Exit.DONE
    assert [(file.counter, file.step) for file in world.submissions] == [(n, n // 3) for n in range(FILES)]
    assert service.leased == list(range(FILES)), "no counter is leased twice"
    assert service.most >= 2, "files are made at the same time"
    assert all(child.ended for child in engines._children), "by both engines"
    for file, data in zip(world.submissions, service.uploads, strict=True):
        header, rows = read(data, Limits.of(tiny.CONFIG.work))
        assert (header.work.id.counter, header.work.id.step) == (file.counter, file.step)
        alone = tiny.producer().make(header.work).rollouts
        assert [row.output_tokens for row in rows] == [row.output_tokens for row in alone]
    assert list((world.folder / "journal").glob("*.rows")) == []


def test_a_worker_whose_engine_dies_ends_and_the_next_one_goes_on_from_its_rows(
    world: WorkerWorld, engines: EngineProcesses, tmp_path: Path
) -> None:
    first = ScriptedService(files=2)
    worker = TwoEngines(world, engines).start(first)

    def rows() -> int:
        return sum(len(path.read_bytes().splitlines()) for path in (world.folder / "journal").glob("*.rows"))

    def kill(sent: HeartbeatRequest) -> None:
        if rows() and not world.submissions:
            engines._children[0]._process.kill()

    first.beat = kill
    assert worker.run() == Exit.STALLED
    assert "exit code -9" in crash_message(world.folder)
    kept, finished = rows(), len(Journal(world.folder / "journal").all())
    assert kept or finished
    again = EngineProcesses(EngineConfig(batch=16), tmp_path)
    second = ScriptedService(files=2)
    assert TwoEngines(world, again).start(second).run() == Exit.DONE
    assert [file.counter for file in world.submissions] == [0, 1]
    computed = again._children[0].ended
    assert computed <= (2 - finished) * tiny.CONFIG.work.rows - kept
