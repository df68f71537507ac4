"""One thread runs everything: greenlets in place of threads, a virtual clock, and a seed that chooses who runs next."""

import asyncio
import hashlib
import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from greenlet import greenlet

START = 1_800_000_000.0  # Unix seconds at which every simulation begins
_READING = 1e-6  # seconds that a look at the clock takes, so that who polls without a pause sees time pass
_MOST_SWITCHES = 200_000  # of one instant, after which somebody runs in circles


class Deadlock(Exception):
    """Nobody can run any more, or somebody runs for ever without letting time pass."""


@dataclass(eq=False)
class Process:
    """A simulated process: its tasks end together. `on_death` releases what an operating system would; `essential`
    threads that fail end it with `exit_code`."""

    name: str
    alive: bool = True
    exit_code: int | None = None
    message: str = ""
    tasks: "set[Task]" = field(default_factory=set)
    on_death: list[Callable[[], object]] = field(default_factory=list)
    waits: dict[str, Any] = field(default_factory=dict)
    clock_ahead: float = 0.0  # seconds by which its machine's clock is wrong
    disk_full: bool = False
    power_cut: bool = False  # it dies with its machine, which loses what was not synced
    cut_after: int = 0  # exchanges and writes until then; 0: none is near
    unsynced: dict[Path, tuple[tuple[int, int], Callable[[], object]]] = field(default_factory=dict)
    """Replaced files whose folder was not synced: the folder, and what a power cut does to the file."""


class Task:
    """One thread of a simulated process."""

    def __init__(self, process: Process, name: str, ident: int) -> None:
        self.process, self.name, self.ident = process, name, ident
        self.waiting, self.woken, self.token = False, False, 0
        self.why = ""
        self.loop: asyncio.AbstractEventLoop | None = None
        self.at_end: list[Callable[[], object]] = []
        self.greenlet: Any = None

    @property
    def label(self) -> str:
        return f"{self.process.name}/{self.name}"


class Scheduler:
    """Runs tasks until none is left, or `run`'s own has ended. `trace` takes every decision into a hash: two runs with
    equal digests did the same; `record` is told what goes into it."""

    def __init__(self) -> None:
        self.now = START
        self.random, self.entropy = Random(0), Random(0)
        self.current: Task | None = None
        self.switches = 0
        self.abandoned: list[Task] = []
        self.failure: BaseException | None = None
        self.record: Callable[[str], object] | None = None
        self._ready: list[Task] = []
        self._timers: list[tuple[float, int, Task, int]] = []
        self._numbers, self._idents = itertools.count(), itertools.count(1 << 40)
        self._hub: Any = None
        self._hash = hashlib.sha256()

    def begin(self, seed: int) -> None:
        """Let chance follow from this seed from now on."""
        self.random.seed(f"schedule {seed}")
        self.entropy.seed(f"entropy {seed}")
        random.seed(f"library {seed}")
        self.trace("seed", seed)

    # Time

    def read_clock(self) -> float:
        """Return the time in Unix seconds, a microsecond later than at the look before."""
        self.now += _READING
        return self.now

    def wall_clock(self) -> float:
        """Return what the clock of the machine that asks shows."""
        return self.read_clock() + (self.current.process.clock_ahead if self.current else 0.0)

    # Tasks

    def spawn(self, process: Process, name: str, run: Callable[[], object]) -> Task:
        """Start a task of a process. What it raises is an error of the simulation, except SystemExit."""
        task = Task(process, name, next(self._idents))

        def body() -> None:
            try:
                run()
            except SystemExit:
                pass
            except BaseException as error:
                self.failure = self.failure or error
            finally:
                for call in task.at_end:
                    call()
                process.tasks.discard(task)

        task.greenlet = greenlet(body, self._hub)
        process.tasks.add(task)
        if process.alive:
            self._ready.append(task)
        return task

    def suspend(self, seconds: float | None, why: str) -> bool:
        """Let others run until the task is woken (True), or `seconds` have passed (False; None: never)."""
        task = self.current
        if task is None:
            raise Deadlock(f"the simulator itself would wait for {why}")
        task.token += 1
        task.waiting, task.woken, task.why = True, False, why
        if seconds is not None:
            heapq.heappush(self._timers, (self.now + max(0.0, seconds), next(self._numbers), task, task.token))
        self._hub.switch()
        return task.woken

    def sleep(self, seconds: float) -> None:
        self.suspend(seconds, "sleep")

    def wake(self, task: Task) -> None:
        """Let a task that waits go on."""
        if task.waiting:
            task.waiting, task.woken = False, True
            if task.process.alive:
                self._ready.append(task)

    def kill(self, process: Process, code: int = 137, message: str = "killed") -> None:
        """End a process as the kernel would: none of its tasks ever runs again, not even their `finally`. A task that
        ends its own process does not come back from this call."""
        if not process.alive:
            return
        process.alive, process.exit_code, process.message = False, code, message
        self.trace("end", process.name, code)
        if process.power_cut:
            for _, undo in process.unsynced.values():
                undo()
        self.abandoned += process.tasks
        self._ready = [task for task in self._ready if task.process is not process]
        for call in process.on_death:
            call()
        if self.current is not None and self.current.process is process:
            self._hub.switch()

    def touch(self) -> None:
        """Come to an exchange or a write, at which a machine may lose its power."""
        process = self.current.process if self.current else None
        if process is not None and process.cut_after:
            process.cut_after -= 1
            if not process.cut_after:
                process.power_cut = True
                self.kill(process, message="its power was cut")

    # The loop

    def run(self, main: Callable[[], object], process: Process) -> None:
        """Run everything until `main`, a task of `process`, has ended. Raises what an unguarded task raised, and
        Deadlock."""
        self._hub = greenlet.getcurrent()
        ended: list[bool] = []
        task = self.spawn(process, "main", main)
        task.at_end.append(lambda: ended.append(True))
        instant, count = self.now, 0
        while not ended and self.failure is None:
            if not self._ready:
                self._advance()
            task = self._ready.pop(self.random.randrange(len(self._ready)))
            count = count + 1 if self.now - instant < 1.0 else 0
            instant = self.now if not count else instant
            if count > _MOST_SWITCHES:
                raise Deadlock(f"{task.label} and others run in circles: {task.why}")
            self._switch(task)
        if self.failure is not None:
            raise self.failure

    def _advance(self) -> None:
        """Go to the next time at which somebody wakes."""
        while self._timers:
            due, _, task, token = heapq.heappop(self._timers)
            if not self._is_due(task, token):
                continue
            self.now = max(self.now, due)
            self._release(task)
            while self._timers and self._timers[0][0] <= self.now:
                _, _, task, token = heapq.heappop(self._timers)
                if self._is_due(task, token):
                    self._release(task)
            return
        raise Deadlock("everybody waits for ever")

    def _is_due(self, task: Task, token: int) -> bool:
        return task.waiting and task.token == token and task.process.alive

    def _release(self, task: Task) -> None:
        task.waiting = False
        self._ready.append(task)

    def _switch(self, task: Task) -> None:
        self.switches += 1
        self.trace(task.label)
        self.current = task
        if task.loop is not None:
            asyncio._set_running_loop(task.loop)
        task.greenlet.switch()
        task.loop = asyncio._get_running_loop()
        if task.loop is not None:
            asyncio._set_running_loop(None)
        self.current = None

    # What happened

    def trace(self, *what: object) -> None:
        """Take an event into the digest."""
        line = f"{self.now:.6f} {' '.join(map(str, what))}\n"
        self._hash.update(line.encode())
        if self.record is not None:
            self.record(line)

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()
