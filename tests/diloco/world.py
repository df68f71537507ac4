"""Runs in one process over a bucket: a coordinator, workers, and everything they may do wrong."""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pytest

from benchmarks.diloco_faults import LetterTask
from diloco.config import AdmissionConfig, DilocoConfig, DilocoRun
from diloco.coordinator import Coordinator
from diloco.inner import DataShare, FilesUnusableError, InnerTask
from diloco.log import Log, make_step
from diloco.messages import CommitRecord, LogEvent
from diloco.outer import OuterState
from diloco.state_machine import Phase, Schedule
from diloco.transport import Transport
from diloco.worker import Worker
from protocol.accounts import Account, LocalAccount
from protocol.errors import IntegrityError
from storage.s3 import Bucket, S3Settings

COORDINATOR: LocalAccount = Account.from_key(b"\x77" * 32)
WORKERS: list[LocalAccount] = sorted(
    (Account.from_key(bytes([number + 1]) * 32) for number in range(6)), key=lambda one: str(one.address)
)
NAMES = [str(one.address) for one in WORKERS]
TRUSTED = AdmissionConfig(minimum=1, cosine=None)


def make_run(workers: int, name: str = "test", assigned: bool = False, **settings: Any) -> DilocoRun:
    given = {"inner_steps": 4, "shards": 2, "window_seconds": 2, "training_seconds": 2} | settings
    return DilocoRun(
        name=name, coordinator=COORDINATOR.address, workers=tuple(NAMES[:workers]), assigned=assigned,
        settings=DilocoConfig(**given),
    )  # fmt: skip


class Killed(BaseException):
    """A kill: nothing of the process goes on."""


class MemoryBucket(Bucket):
    """A bucket in memory, for tests of thousands of uses."""

    def __init__(self, objects: dict[str, bytes] | None = None) -> None:
        self.objects = {} if objects is None else objects
        self.settings = S3Settings(endpoint="http://127.0.0.1:1", bucket="memory", credentials=Path("none"))

    def size(self, key: str) -> int | None:
        return len(self.objects[key]) if key in self.objects else None

    def _read(self, key: str, limit: int) -> bytes | None:
        data = self.objects.get(key)
        if data is not None and len(data) > limit:
            raise IntegrityError(f"{key} has {len(data)} bytes, at most {limit} are expected")
        return data

    def _put(self, key: str, data: bytes, sha256: bytes) -> bool:
        return self.objects.setdefault(key, data) is data


@dataclass
class DilocoWorld:
    """`home`: a folder with one for each process. `task`: makes a worker's inner task."""

    run: DilocoRun
    home: Path
    bucket: Bucket = field(default_factory=MemoryBucket)
    task: Callable[[], InnerTask] = LetterTask
    clock: Callable[[], float] = time.monotonic
    coordinator: Coordinator = field(init=False)
    workers: dict[int, Worker] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.start_coordinator()

    @property
    def schedule(self) -> Schedule:
        """As far as the coordinator has written the log."""
        return self.coordinator.log.schedule

    @property
    def objects(self) -> dict[str, bytes]:
        assert isinstance(self.bucket, MemoryBucket)
        return self.bucket.objects

    def start_coordinator(self) -> None:
        """Start it, also after a kill."""
        if hasattr(self, "coordinator"):
            with suppress(BaseException):  # threads of a killed process do not go on beside the next one
                self.coordinator.finish()
        first, transport = OuterState.start(LetterTask().weights()), Transport(self.bucket, self.run)
        self.coordinator = Coordinator(transport, COORDINATOR, first, self.home / "coordinator", clock=self.clock)
        self.coordinator.start()

    def start(self, number: int, bucket: Bucket | None = None) -> Worker:
        """Start worker `number` as its disk says, also after a kill."""
        transport = Transport(bucket or self.bucket, self.run)
        worker = Worker(transport, WORKERS[number], self.task(), self.home / f"worker-{number}", clock=self.clock)
        worker.start()
        self.workers[number] = worker
        return worker

    def begin(self, *numbers: int, step: int = 0) -> Self:
        """Start these workers, and go on until they have made so many outer steps."""
        for number in numbers:
            self.start(number)
        self.until(step)
        return self

    def coordinator_turn(self) -> None:
        self.coordinator.turn()

    def turn(self, workers: slice = slice(None)) -> None:
        """Let the coordinator and these workers do the next thing."""
        self.coordinator_turn()
        for worker in list(self.workers.values())[workers]:
            worker.turn()

    def until(self, step: int, seconds: float = 60.0) -> None:
        """Go on until all workers have made so many outer steps."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if all(worker.state.step >= step for worker in self.workers.values()) and self.workers:
                return
            self.turn()
        raise AssertionError({number: (one.state.step, one.turn()) for number, one in self.workers.items()})

    def hold_before_commit(self) -> None:
        """Go on until all payloads of the step are in the log, and the coordinator has not settled it."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.coordinator, "_settle", lambda: None)
            for _ in range(10_000):
                if self.schedule.phase == Phase.SETTLE:
                    return
                self.turn()
        raise AssertionError(self.coordinator.waiting_for())

    def replayed(self) -> list[OuterState]:
        """Return all states, made from what was published and the run's first state alone."""
        transport = Transport(self.coordinator.transport._bucket, self.run)
        states = [OuterState.start(LetterTask().weights())]
        for commit in commits(transport)[1:]:
            states.append(make_step(transport, states[-1], commit)[0])
        return states

    def check(self) -> list[OuterState]:
        """Assert that all workers hold the state that anybody computes from what was published; return all states."""
        states = self.replayed()
        assert {worker.state.digest for worker in self.workers.values()} == {states[-1].digest}
        return states


def commits(transport: Transport) -> list[CommitRecord]:
    newest = Log.newest(transport)
    assert newest is not None
    while newest.advance() is not None:  # past commit records that strangers' places hide
        pass
    return [commit for _, commit in newest.commits_back()][::-1]


def events(transport: Transport) -> Iterator[LogEvent]:
    """All that a log tells of."""
    reader = Log.at(transport, 0)
    while (entry := reader.advance()) is not None:
        yield from entry.events


def file_at(step: int, number: int) -> str:
    return f"{step * 100 + number + 1:064x}"


class FileTask(LetterTask):
    """Trains on the files that are assigned to its worker, of which it cannot have those that are `gone`."""

    def __init__(self, gone: set[str]) -> None:
        super().__init__()
        self.gone, self.for_good = gone, False

    def train(self, share: DataShare, number: int) -> int:
        missing = [item for item in share.files if item.hex() in self.gone]
        if missing:
            raise FilesUnusableError(missing, "nobody has it", self.for_good)
        from benchmarks.diloco_faults import line

        lines = [line(int.from_bytes(item) + number) for item in share.files]
        return self.learn(lines) if lines else 0


@dataclass
class FilesWorld(DilocoWorld):
    """Whose coordinator assigns six files a step to as many workers as have joined. `gone`: files that no worker can
    have; `needed`: how many workers are there when a step's files are assigned."""

    gone: set[str] = field(default_factory=set)
    needed: int = 3

    def __post_init__(self) -> None:
        self.task = lambda: FileTask(self.gone)
        super().__post_init__()

    def coordinator_turn(self) -> None:
        if len(self.schedule.members | self.schedule.waiting) >= self.needed:
            self.coordinator.assign([file_at(self.coordinator.state.step, number) for number in range(6)])
        self.coordinator.turn()


def files_run(workers: int, minimum: int = 1, **settings: Any) -> DilocoRun:
    admission = TRUSTED.model_copy(update={"minimum": minimum})
    given = {"admission": admission, "training_seconds": 1000, "window_seconds": 1000, "inner_steps": 2} | settings
    return make_run(workers, "files", assigned=True, **given)
