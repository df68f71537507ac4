"""What a scorer must not decide by: the clock, alarms, other processes. Set before the package is imported."""

import builtins
import concurrent.futures
import concurrent.futures.process
import ctypes
import datetime
import gc
import io
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

_NOW = 946684800.0  # 1 January 2000, as in the reproducible sandbox
_CLOCKS = "perf_counter", "process_time", "thread_time"


class _OfNow:
    """A function of `time` whose last argument is now where nothing is given; like a builtin one, no method of a class
    that keeps it."""

    def __init__(self, real: Callable[..., Any], place: int, now: Any) -> None:
        self._real, self._place, self._now = real, place, now

    def __call__(self, *given: Any) -> Any:
        said = given[self._place :] not in ((), (None,))
        return self._real(*given) if said else self._real(*given[: self._place], self._now)


def _now(kind: Any, tz: datetime.tzinfo | None = None) -> Any:
    return kind.fromtimestamp(_NOW, tz)


def _today(kind: Any) -> Any:
    return kind.fromtimestamp(_NOW)


def _utcnow(kind: Any) -> Any:
    return kind.utcfromtimestamp(_NOW)


class InlineExecutor(concurrent.futures.Executor):
    """In place of a pool of processes: what is submitted is done at once, here."""

    def __init__(self, max_workers: int | None = None, *_: Any, **__: Any) -> None:
        self._max_workers, self._processes = max_workers or 1, dict[int, Any]()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "concurrent.futures.Future[Any]":
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


def hold_still() -> None:
    """Clocks and dates stand still, alarms do not ring, a pool of processes is this one. What waits (asyncio) keeps
    its own clock, `time.monotonic`."""
    concurrent.futures.process.ProcessPoolExecutor = InlineExecutor  # type: ignore[misc,assignment]
    concurrent.futures.ProcessPoolExecutor = InlineExecutor  # type: ignore[misc,assignment]
    tempfile.tempdir = "/tmp"  # it would try to write before it named one
    signal.alarm = lambda _: 0
    signal.setitimer = lambda *_: (0.0, 0.0)
    time.time = lambda: _NOW
    time.time_ns = lambda: int(_NOW) * 10**9
    time.clock_gettime, time.clock_gettime_ns = lambda _: _NOW, lambda _: int(_NOW) * 10**9
    for name in _CLOCKS:
        setattr(time, name, lambda: 0.0)
        setattr(time, f"{name}_ns", lambda: 0)
    _hold_dates()


def _hold_dates() -> None:
    """In the classes themselves: libraries in C have taken them for their own's base, and never ask a module."""
    moment = time.gmtime(_NOW)
    functions = (("gmtime", 0, _NOW), ("localtime", 0, _NOW), ("ctime", 0, _NOW))
    for name, place, now in (*functions, ("asctime", 0, moment), ("strftime", 1, moment)):
        setattr(time, name, _OfNow(getattr(time, name), place, now))
    modified = ctypes.pythonapi.PyType_Modified
    modified.argtypes, modified.restype = [ctypes.py_object], None
    of_date: dict[str, Callable[..., Any]] = {"today": _today}
    for kind, still in ((datetime.date, of_date), (datetime.datetime, of_date | {"now": _now, "utcnow": _utcnow})):
        (methods,) = gc.get_referents(kind.__dict__)
        methods.update((name, classmethod(one)) for name, one in still.items())
        modified(kind)


def writable_nothing(handle: int) -> None:
    """What is opened at /dev/null is `handle`, which is open already: the filter of system calls sees no paths."""
    real, real_os = io.open, os.open

    def opened(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        return real(os.dup(handle) if _is_nothing(file) else file, mode, *args, **kwargs)

    def opened_raw(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        return os.dup(handle) if _is_nothing(path) else real_os(path, flags, *args, **kwargs)

    builtins.open = io.open = opened
    os.open = opened_raw


def _is_nothing(path: Any) -> bool:
    return isinstance(path, str | os.PathLike) and os.fspath(path) == os.devnull


def same_luck() -> None:
    """The global random states as they are before every load and every score."""
    random.seed(0)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(0)
