"""What takes the place of the standard library's clock, threads, locks and randomness, before anything else is
imported.

Everything above these primitives (events, conditions, queues, executors, futures) is the standard library's own.
"""

import _threading_local
import concurrent.futures as futures
import concurrent.futures.thread as executors
import itertools
import logging
import os
import queue
import random
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

from simulation.disks import Disks
from simulation.scheduler import Process, Scheduler, Task

_NOBODY = SimpleNamespace(process=SimpleNamespace(alive=True))  # owner of what the simulator itself holds


class Lock:
    """A lock among tasks. One that a killed process held is free: only the simulator's own process shares locks."""

    scheduler: Scheduler

    def __init__(self) -> None:
        self._owner: Any = None
        self._queue: deque[Task] = deque()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        scheduler = self.scheduler
        me: Any = scheduler.current or _NOBODY
        if self._owner is None or not self._owner.process.alive:
            self._owner = me
            return True
        if not blocking or timeout == 0:
            return False
        end = None if timeout < 0 else scheduler.now + timeout
        while self._owner is not None and self._owner.process.alive:
            self._queue.append(me)
            if not scheduler.suspend(None if end is None else end - scheduler.now, "a lock"):
                self._queue.remove(me)
                return False
        self._owner = me
        return True

    __enter__ = acquire

    def release(self) -> None:
        if self._owner is None:
            raise RuntimeError("release unlocked lock")
        self._owner = None
        while self._queue:
            task = self._queue.popleft()
            if task.process.alive:
                self.scheduler.wake(task)
                return

    def __exit__(self, *_: object) -> None:
        self.release()

    def locked(self) -> bool:
        return self._owner is not None and self._owner.process.alive

    def _at_fork_reinit(self) -> None:
        self.__init__()  # type: ignore[misc]


class RLock:
    """The same, for a task that holds it already."""

    def __init__(self) -> None:
        self._lock, self._count = Lock(), 0

    def _mine(self) -> bool:
        return self._lock.locked() and self._lock._owner is (Lock.scheduler.current or _NOBODY)

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if self._mine():
            self._count += 1
            return True
        if self._lock.acquire(blocking, timeout):
            self._count = 1
            return True
        return False

    __enter__ = acquire

    def release(self) -> None:
        if not self._mine():
            raise RuntimeError("cannot release un-acquired lock")
        self._count -= 1
        if not self._count:
            self._lock.release()

    def __exit__(self, *_: object) -> None:
        self.release()

    # What threading.Condition uses

    def _is_owned(self) -> bool:
        return self._mine()

    def _release_save(self) -> int:
        count, self._count = self._count, 0
        self._lock.release()
        return count

    def _acquire_restore(self, count: int) -> None:
        self._lock.acquire()
        self._count = count

    def _at_fork_reinit(self) -> None:
        self.__init__()  # type: ignore[misc]


def _start_thread(scheduler: Scheduler) -> Callable[..., int]:
    def start(function: Callable[..., object], args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> int:
        process = scheduler.current.process if scheduler.current else Process("simulator")
        bound = getattr(function, "__self__", None)
        name = getattr(bound, "_name", getattr(function, "__name__", "thread"))
        task = scheduler.spawn(process, name, lambda: function(*args, **(kwargs or {})))
        task.at_end.append(lambda: threading._active.pop(task.ident, None))  # type: ignore[attr-defined]
        return task.ident

    return start


def _sentinel(scheduler: Scheduler) -> Callable[[], Lock]:
    """As `_thread._set_sentinel`: a lock that is released when the task that asks ends."""

    def make() -> Lock:
        lock = Lock()
        if scheduler.current is not None:
            scheduler.current.at_end.append(partial(_let_go, lock))
        return lock

    return make


def _let_go(lock: Lock) -> None:
    if lock.locked():
        lock.release()


def _number_futures() -> None:
    """Hash futures and threads by number and name: sets of them would else be in the order of their addresses."""
    numbers, base = itertools.count(), futures._base
    begin = base.Future.__init__

    def init(self: Any) -> None:
        begin(self)
        self._number = next(numbers)

    lib: Any = base
    lib.Future.__init__, lib.Future.__hash__ = init, lambda self: self._number
    lib._AcquireFutures.__init__ = lambda self, given: setattr(self, "futures", sorted(given, key=hash))
    thread: Any = threading.Thread
    thread.__hash__ = lambda self: hash(self._name)


def install(scheduler: Scheduler) -> Disks:
    """Put the simulator in the place of clock, threads, randomness and disks. Call it once, before what is simulated
    is imported."""
    lib: Any = threading
    Lock.scheduler = scheduler
    lib._start_new_thread = _start_thread(scheduler)
    lib._allocate_lock = lib.Lock = Lock
    lib.RLock, lib._CRLock = RLock, None
    lib._set_sentinel = _sentinel(scheduler)
    real_ident = lib.get_ident
    lib.get_ident = lambda: scheduler.current.ident if scheduler.current else real_ident()
    lib.local = _threading_local.local
    local: Any = _threading_local
    local.RLock = RLock
    clock: Any = time
    lib._time = clock.monotonic = clock.perf_counter = scheduler.read_clock
    clock.monotonic_ns = clock.perf_counter_ns = lambda: int(scheduler.read_clock() * 1e9)
    clock.time, clock.time_ns = scheduler.wall_clock, lambda: int(scheduler.wall_clock() * 1e9)
    clock.sleep = scheduler.sleep
    # A log line is no look at the clock: what is logged must change nothing.
    logs: Any = logging
    logs.logThreads = False  # naming the thread may make a new one, whose number others would miss
    logs.time = SimpleNamespace(**vars(time) | {"time": lambda: scheduler.now})
    queues: Any = queue
    queues.time, queues.SimpleQueue = scheduler.read_clock, queues._PySimpleQueue
    pool: Any = executors
    pool._global_shutdown_lock = Lock()
    _number_futures()
    system: Any = os
    source: Any = random
    system.urandom = source._urandom = scheduler.entropy.randbytes
    disks = Disks(scheduler)
    disks.install()
    return disks
