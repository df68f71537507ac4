"""Workers, coordinator and a bucket: whatever is killed when, no outer step is lost or made twice, and all hold the
same bits, which are those that anybody computes from what was published."""

import inspect
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.diloco_faults import LetterTask, signed_twice
from diloco.config import Timeouts
from diloco.coordinator import Coordinator
from diloco.inner import Saving
from diloco.messages import CommitRecord, PhaseFailed
from diloco.state_machine import Phase, Schedule
from diloco.transport import Transport
from diloco.worker import StallTimer, Worker
from protocol.errors import IntegrityError, MusterError, UnreachableError
from storage.s3 import Bucket
from tests.diloco.world import (
    NAMES,
    TRUSTED,
    WORKERS,
    DilocoWorld,
    FilesWorld,
    MemoryBucket,
    commits,
    events,
    files_run,
    make_run,
)
from tests.localnet.services.running import ServiceProcess, running, settings_of


class Killed(BaseException):
    """A kill: nothing of the process goes on."""


class Fuse:
    """A bucket of a process that is killed before or after its `left`-th use of bucket or disk (-1: never)."""

    def __init__(self, bucket: MemoryBucket) -> None:
        self._bucket = bucket
        self.arm(-1)

    def arm(self, left: int) -> None:
        self._left, self.dead = left, False

    def burn(self) -> None:
        self.dead = self.dead or self._left == 0
        self._left -= self._left > 0
        if self.dead:
            raise Killed

    def put(self, key: str, data: bytes) -> bool:
        return bool(self._call(self._bucket.put, key, data))

    def put_first(self, place: str, data: bytes) -> bool:
        return bool(self._call(self._bucket.put_first, place, data))

    def get(self, key: str, limit: int) -> bytes:
        return bytes(self._call(self._bucket.get, key, limit))

    def size(self, key: str) -> int | None:
        return self._bucket.size(key)

    def look(self, place: str, limit: int) -> bytes | None:
        if self.dead:
            raise Killed
        return self._bucket.look(place, limit)

    def _call(self, of: Callable[..., Any], *given: Any) -> Any:
        self.burn()
        answer = of(*given)
        self.burn()
        return answer


class BurningTask(LetterTask):
    """A task whose saving uses the fuse, too."""

    fuse: Fuse

    def save(self, folder: Path) -> Saving:
        self.fuse.burn()
        saving = super().save(folder)
        self.fuse.burn()
        return saving


@pytest.fixture
def bucket() -> MemoryBucket:
    return MemoryBucket()


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bucket]:
    with running(ServiceProcess("s3", tmp_path_factory.mktemp("s3") / "data")) as service:
        yield Bucket(settings_of(service))


def test_three_workers_make_the_steps_that_anybody_computes(s3: Bucket, tmp_path: Path) -> None:
    world = DilocoWorld(s3, make_run(3, "three", inner_steps=20, state_every=100, training_seconds=1000), tmp_path)
    before = world.start(0).task.loss(0, 40)  # type: ignore[attr-defined]
    for number in (1, 2):
        world.start(number)
    world.until(1)
    states = world.replayed()
    assert [one.step for one in states] == [0, 1]
    assert world.digests() == {states[-1].digest} == {world.coordinator.state.digest}
    task = LetterTask()
    task.load(states[-1].weights)
    assert task.loss(0, 40) < before - 0.5


@pytest.mark.parametrize("mode", ["sparse", "float32", "int8"])
@pytest.mark.parametrize("trusted", [True, False])
def test_every_mode(bucket: MemoryBucket, tmp_path: Path, mode: str, trusted: bool) -> None:
    settings: dict[str, Any] = {"admission": TRUSTED} if trusted else {}
    world = DilocoWorld(bucket, make_run(3, "modes", mode=mode, **settings), tmp_path)
    for number in range(3):
        world.start(number)
    world.until(2)
    assert world.digests() == {world.replayed()[-1].digest}


def test_a_kill_anywhere_loses_and_repeats_nothing(bucket: MemoryBucket, tmp_path: Path) -> None:
    """Worker 0 is killed at its first use of bucket or disk, then at the second after that, and so on round the
    step."""
    run = make_run(2, "kills", admission=TRUSTED, inner_steps=2, mode="sparse", training_seconds=1000)
    world, fuse, dice, kills = DilocoWorld(bucket, run, tmp_path), Fuse(bucket), random.Random(3), 0
    world.start(1)
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
    world.start(0)
    world.until(world.coordinator.state.step + 1)
    assert kills > 20
    states = world.replayed()
    assert [one.step for one in states] == list(range(world.coordinator.state.step + 1))
    assert world.digests() == {states[-1].digest}
    assert signed_twice(world.coordinator.transport) == 0, "what a worker signed it signs again, and nothing else"


@pytest.mark.parametrize("mode", ["sparse", "int8"])
def test_a_kill_before_an_outer_step_is_made_takes_nothing_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """Optimizer, position and error feedback are those of the contribution that counted, so the run goes on as one
    without a kill."""

    def work_at(name: str, kill: bool) -> tuple[list[str], dict[str, Any]]:
        run = make_run(2, "taken back", mode=mode, admission=TRUSTED, inner_steps=3, training_seconds=1000)
        world = DilocoWorld(MemoryBucket(), run, tmp_path / name)
        worker = world.start(0)
        world.until(2)
        if kill:
            monkeypatch.setattr(Worker, "_hold", killed)
            with pytest.raises(Killed):
                world.until(3)
            monkeypatch.undo()
            worker = world.start(0)
        while worker.state.step < 3:
            worker.turn()
            world.coordinator.turn()
        task: Any = worker.task
        kept = {"position": task.position, "error": worker._error, **task.velocity}
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


def test_a_kill_while_a_state_is_written_repeats_its_outer_step_alone(bucket: MemoryBucket, tmp_path: Path) -> None:
    run = make_run(1, "slow disk", admission=TRUSTED, inner_steps=1, training_seconds=1000)
    world = DilocoWorld(bucket, run, tmp_path, task=lambda: LetterTask(saving=0.3))
    worker = world.start(0)
    world.until(2)
    assert worker._store._write is not None, "inner steps go on meanwhile"
    digest = worker.state.digest
    again = world.start(0)
    assert (again.state.step, again.state.digest) == (2, digest)
    kept = [path.name for path in sorted((tmp_path / "worker-0" / "outer").glob("step-*"))]
    assert kept[-1] == "step-0000000001", "the newest was not there yet"
    world.until(4)
    assert world.digests() == {world.replayed()[-1].digest}


def test_a_disk_that_fails_stops_the_worker_before_anybody_hears(
    bucket: MemoryBucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(1, "full disk", admission=TRUSTED, inner_steps=1, training_seconds=1000)
    world = DilocoWorld(bucket, run, tmp_path)
    world.start(0)
    world.until(1)

    def full(self: LetterTask, folder: Path) -> Saving:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(LetterTask, "save", full)
        with pytest.raises(OSError, match="No space"):
            world.until(2)
    assert not world.coordinator.log.schedule.documents
    world.start(0)
    world.until(3)
    assert world.digests() == {world.replayed()[-1].digest}


def test_a_coordinator_that_is_killed_anywhere_writes_one_log(bucket: MemoryBucket, tmp_path: Path) -> None:
    run = make_run(2, "coordinator kills", admission=TRUSTED, inner_steps=1, training_seconds=1000)
    world, fuse, kills = DilocoWorld(bucket, run, tmp_path), Fuse(bucket), 0
    for number in range(2):
        world.start(number)
    world.until(1)
    world.bucket = fuse
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
    assert world.digests() == {world.replayed()[-1].digest}


def test_it_shrinks_to_one_worker_and_grows_again(bucket: MemoryBucket, tmp_path: Path) -> None:
    run = make_run(3, "shrinks", admission=TRUSTED, window_seconds=1, training_seconds=1000, state_every=2)
    world = DilocoWorld(bucket, run, tmp_path)
    for number in (0, 1):
        world.start(number)
    world.until(2)
    world.workers.pop(1).leave()
    world.until(world.coordinator.state.step + 2)
    assert set(world.coordinator.log.schedule.members) == {NAMES[0]}
    for number in (1, 2):
        world.start(number)
    world.until(world.coordinator.state.step + 2)
    assert len(world.coordinator.log.schedule.members) == 3
    assert {1, 2, 3} <= {len(one.made_of) for one in commits(world.coordinator.transport)}
    assert world.digests() == {world.replayed()[-1].digest}


def test_a_worker_leaves_whatever_step_it_has_heard_of(bucket: MemoryBucket, tmp_path: Path) -> None:
    """Its message names an outer step that is over when the coordinator reads it; a restarted one ignores it."""
    run = make_run(2, "leaves", admission=TRUSTED, training_seconds=1000)
    world = DilocoWorld(bucket, run, tmp_path)
    for number in (0, 1):
        world.start(number)
    world.until(2)
    gone = world.workers.pop(1)
    while gone.log.schedule.phase != Phase.OPEN or world.coordinator.state.step == gone.state.step:
        if gone.log.schedule.phase != Phase.OPEN:
            gone.turn()
        elif gone._own is not None:
            gone._sender.publish(gone._own.digest, gone._own.payload)
        world.turn()
    assert gone.log.schedule.step < world.coordinator.state.step
    gone.leave()
    world.coordinator.turn()
    assert NAMES[1] not in world.coordinator.log.schedule.members
    world.start(1)
    world.until(world.coordinator.state.step + 2)
    world.start_coordinator()
    world.coordinator.turn()
    assert NAMES[1] in world.coordinator.log.schedule.members


def test_a_worker_that_cannot_reach_the_bucket_still_ends(bucket: MemoryBucket, tmp_path: Path) -> None:
    class Gone:
        def __getattr__(self, name: str) -> Any:
            raise UnreachableError("it is gone")

    world = DilocoWorld(bucket, make_run(1, "gone", admission=TRUSTED), tmp_path)
    worker = world.start(0)
    world.until(1)
    transport: Any = worker.transport
    transport._bucket = Gone()
    worker.leave()


def test_a_dead_worker_is_not_waited_for_longer_than_the_timeout(bucket: MemoryBucket, tmp_path: Path) -> None:
    run = make_run(2, "dead", admission=TRUSTED, window_seconds=1, training_seconds=1)
    world = DilocoWorld(bucket, run, tmp_path)
    for number in (0, 1):
        world.start(number)
    world.until(2)
    world.workers.pop(1)
    world.until(world.coordinator.state.step + 1)
    assert set(world.coordinator.log.schedule.members) == {NAMES[0]}


def test_a_worker_that_has_another_base_takes_the_published_state(bucket: MemoryBucket, tmp_path: Path) -> None:
    run = make_run(2, "other base", admission=TRUSTED, training_seconds=1000)
    world = DilocoWorld(bucket, run, tmp_path)
    world.start(0)
    world.until(2)
    task = LetterTask()
    task.load({name: one + np.float32(1) for name, one in task.weights().items()})
    other = Worker(Transport(bucket, run), WORKERS[1], task, tmp_path / "other")
    other.start()
    assert other.state.digest == world.coordinator.state.digest


def test_what_no_honest_coordinator_writes_is_refused(bucket: MemoryBucket, tmp_path: Path) -> None:
    world = DilocoWorld(bucket, make_run(2, "liar", admission=TRUSTED, training_seconds=1000), tmp_path)
    worker, coordinator = world.start(0), world.coordinator
    world.hold_before_commit()
    now = coordinator.log.schedule
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


class LateAndSilent:
    """Two of five workers: each signs when the time for it is nearly up, and the last of them that still takes part
    never opens. The others need 900 seconds for their inner steps."""

    def __init__(self, world: FilesWorld, seconds: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
        self._world, self._seconds, self._offer = world, seconds, Worker._offer
        self._began: tuple[object, float] = None, 0.0
        monkeypatch.setattr(Worker, "_offer", lambda worker, own, now: self.offer(worker, own, now))

    def offer(self, worker: Worker, own: Any, now: Schedule) -> str:
        hostile = sorted({NAMES[3], NAMES[4]} & now.members)
        if self._began[0] != now.attempt:
            self._began = now.attempt, self._seconds[0]
        signs_after = worker.timeouts.collect - 100 if worker.address in hostile else 900.0
        if now.phase == Phase.COLLECT and self._seconds[0] - self._began[1] < signs_after:
            return "nothing"
        silent = now.phase != Phase.COLLECT and hostile[-1:] == [worker.address]
        return "nothing" if silent else self._offer(worker, own, now)


def test_two_that_sign_last_and_never_open_do_not_use_up_the_others_patience(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = [0.0]
    world = FilesWorld(MemoryBucket(), files_run(5), tmp_path, clock=lambda: seconds[0], needed=5)
    LateAndSilent(world, seconds, monkeypatch)
    for number in range(5):
        world.start(number)
    timers = [StallTimer(world.run, world.clock) for _ in range(3)]
    attempts = set()
    while world.coordinator.state.step == 0:
        world.turn()
        seconds[0] += 10
        attempts.add(world.coordinator.log.schedule.attempt)
        for number, timer in enumerate(timers):
            timer.check(world.workers[number], "the others")
    assert len(attempts) >= 3, "both held the step up, one after the other"
    assert seconds[0] > Timeouts.of(world.run).stall, "in all they held it up for longer than a run may stall"
    assert world.coordinator.log.commit.counted == NAMES[:3]


def test_a_worker_gives_up_where_nothing_moves_or_no_step_ends(tmp_path: Path) -> None:
    seconds = [0.0]
    world = FilesWorld(MemoryBucket(), files_run(3), tmp_path, clock=lambda: seconds[0])
    for number in range(3):
        world.start(number)
    while world.coordinator.log.schedule.awaits_files:
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


def test_no_change_of_the_wall_clock_ends_a_phase(
    bucket: MemoryBucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds, wall = [0.0], time.time
    run = make_run(2, "clock", admission=TRUSTED, window_seconds=1000, training_seconds=1000)
    world = DilocoWorld(bucket, run, tmp_path, clock=lambda: seconds[0])
    for number in (0, 1):
        world.start(number)
    world.until(2)
    world.workers.pop(1)
    for shift in (0.0, 1e9, -1e9):
        monkeypatch.setattr(time, "time", lambda shift=shift: wall() + shift)
        for _ in range(20):
            world.turn()
    assert set(world.coordinator.log.schedule.members) == set(NAMES[:2]), "the other is still waited for"
    assert not any(isinstance(one, PhaseFailed) for one in events(world.coordinator.transport))
    seconds[0] += Timeouts.of(run).collect + 1
    world.coordinator.turn()
    assert any(isinstance(one, PhaseFailed) for one in events(world.coordinator.transport))
    for process in (Coordinator, Worker, StallTimer):
        assert inspect.signature(process).parameters["clock"].default is time.monotonic
