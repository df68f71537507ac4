"""Workers, coordinator and a bucket: whatever is killed when, no outer step is lost or made twice, and all hold the
same bits, which are those that anybody computes from what was published."""

import inspect
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.diloco_faults import LetterTask, signed_twice
from diloco.config import DilocoRun, Timeouts
from diloco.coordinator import Coordinator
from diloco.messages import CommitRecord, Left, PhaseFailed
from diloco.state_machine import Phase
from diloco.worker import StallTimer, Worker
from protocol.errors import IntegrityError, MusterError, UnreachableError
from storage.s3 import MAX_OBJECT_BYTES, Bucket
from tests.diloco.world import (
    NAMES,
    TRUSTED,
    WORKERS,
    DilocoWorld,
    FilesWorld,
    Killed,
    MemoryBucket,
    commits,
    events,
    files_run,
    make_run,
)
from tests.localnet.services.running import ServiceProcess, running, settings_of


class Fuse(MemoryBucket):
    """A bucket of a process that is killed before or after its `left`-th use of bucket or disk (-1: never)."""

    def __init__(self, bucket: MemoryBucket) -> None:
        super().__init__(bucket.objects)
        self.arm(-1)

    def arm(self, left: int) -> None:
        self._left, self.dead = left, False

    def burn(self) -> None:
        self.dead = self.dead or self._left == 0
        self._left -= self._left > 0
        if self.dead:
            raise Killed

    @contextmanager
    def burning(self) -> Iterator[None]:
        self.burn()
        yield
        self.burn()

    def _put(self, key: str, data: bytes, sha256: bytes) -> bool:
        with self.burning():
            return super()._put(key, data, sha256)

    def get(self, key: str, limit: int = MAX_OBJECT_BYTES) -> bytes:
        with self.burning():
            return super().get(key, limit)

    def read_document(self, place: str, limit: int) -> bytes | None:
        if self.dead:
            raise Killed
        return super().read_document(place, limit)


class BurningTask(LetterTask):
    """A task whose saving uses the fuse, too."""

    fuse: Fuse

    def save(self, folder: Path) -> None:
        with self.fuse.burning():
            super().save(folder)


def trusting(workers: int, name: str, **settings: Any) -> DilocoRun:
    """A run in which every finite contribution counts."""
    given: dict[str, Any] = {"admission": TRUSTED, "training_seconds": 1000} | settings
    return make_run(workers, name, **given)


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bucket]:
    with running(ServiceProcess("s3", tmp_path_factory.mktemp("s3") / "data")) as service:
        yield Bucket(settings_of(service))


def test_three_workers_make_the_steps_that_anybody_computes(s3: Bucket, tmp_path: Path) -> None:
    run = make_run(3, "three", inner_steps=20, state_every=100, training_seconds=1000)
    world, task = DilocoWorld(run, tmp_path, s3), LetterTask()
    before = task.loss(0, 40)
    states = world.begin(0, 1, 2, step=1).check()
    assert [one.step for one in states] == [0, 1]
    assert states[-1].digest == world.coordinator.state.digest
    task.load(states[-1].weights)
    assert task.loss(0, 40) < before - 0.5


@pytest.mark.parametrize("mode", ["sparse", "float32", "int8"])
@pytest.mark.parametrize("trusted", [True, False])
def test_every_mode(tmp_path: Path, mode: str, trusted: bool) -> None:
    settings: dict[str, Any] = {"admission": TRUSTED} if trusted else {}
    DilocoWorld(make_run(3, "modes", mode=mode, **settings), tmp_path).begin(0, 1, 2, step=2).check()


def test_a_kill_anywhere_loses_and_repeats_nothing(tmp_path: Path) -> None:
    """Worker 0 is killed at its first use of bucket or disk, then at the second after that, and so on round the
    step."""
    run, bucket = trusting(2, "kills", inner_steps=2, mode="sparse"), MemoryBucket()
    world, fuse, dice, kills = DilocoWorld(run, tmp_path, bucket).begin(1), Fuse(bucket), random.Random(3), 0
    BurningTask.fuse, world.task = fuse, BurningTask
    for point in [*range(16), *(dice.randrange(16) for _ in range(8))]:
        fuse.arm(point)
        try:
            worker = world.start(0, fuse)
            for _ in range(60):
                worker.turn()
                world.coordinator.turn()
                world.workers[1].turn()
        except Killed:
            kills += 1
        fuse.arm(-1)
        world.workers.pop(0, None)
    states = world.begin(0, step=world.coordinator.state.step + 1).check()
    assert kills > 20
    assert [one.step for one in states] == list(range(world.coordinator.state.step + 1))
    assert signed_twice(world.coordinator.transport) == 0, "what a worker signed it signs again, and nothing else"


@pytest.mark.parametrize("mode", ["sparse", "int8"])
def test_a_kill_before_an_outer_step_is_made_takes_nothing_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """Optimizer, position and error feedback are those of the contribution that counted, so the run goes on as one
    without a kill."""

    def work_at(name: str, kill: bool) -> tuple[list[str], dict[str, Any]]:
        world = DilocoWorld(trusting(2, "taken back", mode=mode, inner_steps=3), tmp_path / name).begin(0, step=2)
        worker = world.workers[0]
        if kill:
            monkeypatch.setattr(Worker, "_adopt", killed)
            with pytest.raises(Killed):
                world.until(3)
            monkeypatch.undo()
            worker = world.start(0)
        while worker.state.step < 3:
            worker.turn()
            world.coordinator.turn()
        task: Any = worker.task
        kept = {"position": task.position, "error": worker._error_feedback, **task.velocity}
        world.workers = {0: worker}
        world.until(5)
        return [one.digest.hex() for one in world.replayed()], kept

    def killed(*_: Any) -> None:
        raise Killed

    whole, wanted = work_at("whole", kill=False)
    states, found = work_at("killed", kill=True)
    assert states == whole
    assert (mode == "sparse") == (found["error"] is not None)
    assert found["position"] == wanted["position"]
    assert all(np.array_equal(found[name], wanted[name]) for name in ("table", "bias"))


def test_a_kill_while_a_state_is_written_repeats_its_outer_step_alone(tmp_path: Path) -> None:
    run = trusting(1, "slow disk", inner_steps=1)
    world = DilocoWorld(run, tmp_path, task=lambda: LetterTask(saving=0.3)).begin(0, step=2)
    worker = world.workers[0]
    assert worker._store._write is not None, "inner steps go on meanwhile"
    again = world.start(0)
    assert (again.state.step, again.state.digest) == (2, worker.state.digest)
    kept = [path.name for path in sorted((tmp_path / "worker-0" / "outer").glob("step-*"))]
    assert kept[-1] == "step-0000000001", "the newest was not there yet"
    world.until(4)
    world.check()


def test_a_disk_that_fails_stops_the_worker_before_anybody_hears(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = DilocoWorld(trusting(1, "full disk", inner_steps=1), tmp_path).begin(0, step=1)

    def full(self: LetterTask, folder: Path) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(LetterTask, "save", full)
        with pytest.raises(OSError, match="No space"):
            world.until(2)
    assert not world.schedule.documents
    world.begin(0, step=3).check()


def test_a_coordinator_that_is_killed_anywhere_writes_one_log(tmp_path: Path) -> None:
    bucket, kills = MemoryBucket(), 0
    world = DilocoWorld(trusting(2, "coordinator kills", inner_steps=1), tmp_path, bucket).begin(0, 1, step=1)
    world.bucket = fuse = Fuse(bucket)
    for point in range(14):
        fuse.arm(point)
        try:
            world.start_coordinator()
            for _ in range(40):
                world.turn()
        except Killed:
            kills += 1
    fuse.arm(-1)
    world.start_coordinator()
    world.until(world.coordinator.state.step + 1)
    assert kills > 10
    world.check()


def test_it_shrinks_to_one_worker_and_grows_again(tmp_path: Path) -> None:
    world = DilocoWorld(trusting(3, "shrinks", window_seconds=1, state_every=2), tmp_path).begin(0, 1, step=2)
    world.workers.pop(1).leave()
    world.until(world.coordinator.state.step + 2)
    assert set(world.schedule.members) == {NAMES[0]}
    world.begin(1, 2, step=world.coordinator.state.step + 2)
    assert len(world.schedule.members) == 3
    assert {1, 2, 3} <= {len(one.made_of) for one in commits(world.coordinator.transport)}
    world.check()


def test_a_worker_leaves_whatever_step_it_has_heard_of(tmp_path: Path) -> None:
    """Its message names an outer step that is over when the coordinator reads it; a restarted one ignores it."""
    world = DilocoWorld(trusting(2, "leaves"), tmp_path).begin(0, 1, step=2)
    gone = world.workers.pop(1)
    while gone.log.schedule.phase != Phase.OPEN or world.coordinator.state.step == gone.state.step:
        if gone.log.schedule.phase != Phase.OPEN:
            gone.turn()
        elif gone._own_contribution is not None:
            gone._sender.publish(gone._own_contribution.payload)
        world.turn()
    assert gone.log.schedule.step < world.coordinator.state.step
    gone.leave()
    world.coordinator.turn()
    assert NAMES[1] not in world.schedule.members
    world.begin(1, step=world.coordinator.state.step + 2)
    world.start_coordinator()
    world.coordinator.turn()
    assert NAMES[1] in world.schedule.members


class Unreachable:
    def __getattr__(self, name: str) -> Any:
        raise UnreachableError("it is gone")


@pytest.mark.parametrize("reachable", [True, False])
def test_a_worker_that_leaves_tells_the_coordinator_once_or_lets_silence_tell_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, reachable: bool
) -> None:
    seconds = [0.0]
    run = trusting(2, "leaving", window_seconds=1000)
    world = DilocoWorld(run, tmp_path, clock=lambda: seconds[0]).begin(0, 1, step=2)
    while len(world.schedule.members) < 2:
        world.turn()
    worker = world.workers.pop(1)
    with monkeypatch.context() as patch:
        if not reachable:
            patch.setattr(worker.transport, "_bucket", Unreachable())
        worker.leave()
        worker.leave()
    assert ("leaving without a message: it is gone" in caplog.text) != reachable
    world.coordinator.turn()
    left = [one.worker for one in events(world.coordinator.transport) if isinstance(one, Left)]
    assert left == [NAMES[1]] * reachable
    assert (NAMES[1] in world.schedule.members) != reachable
    while world.schedule.members != {NAMES[0]}:
        seconds[0] += 0 if reachable else 10
        world.turn()
    assert reachable or seconds[0] > Timeouts.of(run).window, "it was waited for"
    world.until(world.coordinator.state.step + 2)
    assert world.schedule.members == {NAMES[0]}, "the others go on without it"


def test_who_has_not_joined_does_not_say_that_it_leaves(tmp_path: Path) -> None:
    world = DilocoWorld(trusting(1, "never joined"), tmp_path)
    world.start(0).leave()
    assert not [place for place in world.objects if "/messages/" in place]


def test_a_worker_that_has_another_base_takes_the_published_state(tmp_path: Path) -> None:
    world, task = DilocoWorld(trusting(2, "other base"), tmp_path).begin(0, step=2), LetterTask()
    task.load({name: one + np.float32(1) for name, one in task.weights().items()})
    other = Worker(world.coordinator.transport, WORKERS[1], task, tmp_path / "other")
    other.start()
    assert other.state.digest == world.coordinator.state.digest


def test_what_no_honest_coordinator_writes_is_refused(tmp_path: Path) -> None:
    world = DilocoWorld(trusting(2, "liar"), tmp_path).begin(0)
    worker, coordinator = world.workers[0], world.coordinator
    world.hold_before_commit()
    now = world.schedule
    wrong = CommitRecord(
        step=1, digest="ab" * 32, attempt=now.attempt, members=sorted(now.members), made_of=dict(now.contributors),
        previous=coordinator.log.epoch,
    )  # fmt: skip
    coordinator._tell(wrong)
    while worker.log.commit.step == 0:
        worker.turn()
    with pytest.raises(IntegrityError, match="does not lead to the state and the workers that the log names"):
        worker.turn()
    assert worker.state.step == 0


def test_a_worker_gives_up_where_nothing_moves_or_no_step_ends(tmp_path: Path) -> None:
    seconds = [0.0]
    world = FilesWorld(files_run(3), tmp_path, clock=lambda: seconds[0]).begin(0, 1, 2)
    while world.schedule.awaits_files:
        world.turn()
    worker, limits = world.workers[0], Timeouts.of(world.run)
    while worker.log.schedule.awaits_files:
        worker.turn()
    idle = StallTimer(world.run, world.clock)
    idle.check(worker, "others")
    seconds[0] += limits.stall
    idle.check(worker, "others")
    seconds[0] += 1
    with pytest.raises(MusterError, match=r"no progress in 8000 s, waiting for others"):
        idle.check(worker, "others")
    busy = StallTimer(world.run, world.clock)
    for attempt in range(17):
        worker.log.schedule = replace(worker.log.schedule, attempt=attempt)
        busy.check(worker, "others")
        seconds[0] += 1000
    worker.log.schedule = replace(worker.log.schedule, attempt=17)
    with pytest.raises(MusterError, match=r"no outer step in 16000 s"):
        busy.check(worker, "others")


def test_no_change_of_the_wall_clock_ends_a_phase(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds, wall, run = [0.0], time.time, trusting(2, "clock", window_seconds=1000)
    world = DilocoWorld(run, tmp_path, clock=lambda: seconds[0]).begin(0, 1, step=2)
    world.workers.pop(1)
    for shift in (0.0, 1e9, -1e9):
        monkeypatch.setattr(time, "time", lambda shift=shift: wall() + shift)
        for _ in range(20):
            world.turn()
    assert set(world.schedule.members) == set(NAMES[:2]), "the other is still waited for"
    assert not any(isinstance(one, PhaseFailed) for one in events(world.coordinator.transport))
    seconds[0] += Timeouts.of(run).collect + 1
    world.coordinator.turn()
    assert any(isinstance(one, PhaseFailed) for one in events(world.coordinator.transport))
    for process in (Coordinator, Worker, StallTimer):
        assert inspect.signature(process).parameters["clock"].default is time.monotonic
