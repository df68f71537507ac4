"""What the process of a package may do: read, compute, answer. No network, no programs, nothing written.

A filter of system calls, compiled by libseccomp. The first stage is laid on before any code of the package runs; the
second, on every fork that scores, also ends whatever starts a process or asks for a socket: an answer's score cannot be
what a scorer makes of a refusal.
"""

import builtins
import concurrent.futures
import concurrent.futures.process
import ctypes
import datetime
import gc
import io
import os
import random
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from typing import Any

from . import NoScore

_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_EPERM, _ENOSYS = 1, 38
_MASKED_EQUAL = 7
_THREAD = 0x00010000
_SOCKETS = ("socket", "connect", "bind", "listen", "accept", "accept4")
_PROGRAMS = ("execve", "execveat")
_CHANGES = (
    *(
        "creat",
        "unlink",
        "unlinkat",
        "rename",
        "renameat",
        "renameat2",
        "mkdir",
        "mkdirat",
        "rmdir",
        "mknod",
        "mknodat",
    ),
    *("link", "linkat", "symlink", "symlinkat", "chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "lchown"),
    *("fchown", "fchownat", "truncate", "ftruncate64", "utime", "utimes", "utimensat", "futimesat", "fallocate"),
    *("setxattr", "lsetxattr", "fsetxattr", "removexattr", "lremovexattr", "fremovexattr", "mount", "umount2"),
)
_OTHERS = (
    *("kill", "tkill", "pidfd_open", "pidfd_send_signal", "pidfd_getfd", "ptrace", "process_vm_readv"),
    *("process_vm_writev", "shmget", "msgget", "semget", "mq_open", "io_uring_setup", "bpf", "perf_event_open"),
    *("userfaultfd", "keyctl", "add_key", "request_key", "unshare", "setns", "open_by_handle_at"),
    *("setsid", "setpgid"),  # who ends the process ends its group
)
# Their arguments lie where no filter looks; C libraries fall back to `clone` and `openat`
_LATER = ("clone3", "openat2")


class _Condition(ctypes.Structure):
    _fields_ = (("arg", ctypes.c_uint), ("op", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64))


_Rule = tuple[Iterable[str], int, _Condition | None]


def _load_filter(rules: Iterable[_Rule]) -> None:
    """Lay on a filter of (system calls, action, condition on one argument). Raise OSError where that fails."""
    library, pointer, number = ctypes.CDLL("libseccomp.so.2"), ctypes.c_void_p, ctypes.c_uint32
    library.seccomp_init.restype, library.seccomp_init.argtypes = pointer, [number]
    library.seccomp_load.argtypes = [pointer]
    library.seccomp_rule_add_array.argtypes = [pointer, number, ctypes.c_int, ctypes.c_uint, pointer]
    context = library.seccomp_init(_ALLOW)
    for names, action, condition in rules:
        given = (_Condition * 1)(condition) if condition else None
        for name in names:
            call = library.seccomp_syscall_resolve_name(name.encode())
            if call < 0:  # not on this architecture, or younger than this library
                continue
            if code := library.seccomp_rule_add_array(context, action, call, 1 if given else 0, given):
                raise OSError(-code, f"libseccomp refuses the rule for {name}")
    if code := library.seccomp_load(context):
        raise OSError(-code, "the kernel takes no filter of system calls")


def shut_in() -> None:
    """Enter the first stage, for good. Raise OSError where there is no libseccomp or no filter can be laid on."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    rules: list[_Rule] = [((*_SOCKETS, *_PROGRAMS, *_CHANGES, *_OTHERS), _ERRNO | _EPERM, None)]
    rules.append((_LATER, _ERRNO | _ENOSYS, None))
    for flag in (os.O_WRONLY, os.O_RDWR, os.O_CREAT, os.O_TRUNC, os.O_APPEND):
        for argument, name in ((1, "open"), (2, "openat")):
            rules.append(([name], _ERRNO | _EPERM, _Condition(argument, _MASKED_EQUAL, flag, flag)))
    _load_filter(rules)


def shut_in_fork(memory: int, seconds: int) -> None:
    """Enter the second stage: so many bytes and seconds of a processor more, and threads but no processes."""
    with open("/proc/self/status", encoding="ascii") as status:
        data = next((int(line.split()[1]) << 10 for line in status if line.startswith("VmData:")), 0)
    for what, limit in ((resource.RLIMIT_DATA, data + memory), (resource.RLIMIT_CPU, seconds)):
        hard = resource.getrlimit(what)[1]
        bound = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(what, (bound, bound))
    no_process = _Condition(0, _MASKED_EQUAL, _THREAD, 0)
    _load_filter([((*_SOCKETS, *_PROGRAMS, "fork", "vfork"), _KILL, None), (["clone"], _KILL, no_process)])


# Clocks, alarms and other processes, which must not decide a score: replaced before the package is imported


_NOW = 946684800.0  # 1 January 2000, as in the reproducible sandbox


class _OfNow:
    """A function of `time` whose last argument is now if it is not given; no method of a class that keeps it."""

    def __init__(self, real: Callable[..., Any], argument: int, now: Any) -> None:
        self._real, self._argument, self._now = real, argument, now

    def __call__(self, *given: Any) -> Any:
        is_given = given[self._argument :] not in ((), (None,))
        return self._real(*given) if is_given else self._real(*given[: self._argument], self._now)


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
    """Stop clocks and alarms, and make pools of processes this one. asyncio keeps `time.monotonic`."""
    concurrent.futures.process.ProcessPoolExecutor = InlineExecutor  # type: ignore[misc,assignment]
    concurrent.futures.ProcessPoolExecutor = InlineExecutor  # type: ignore[misc,assignment]
    tempfile.tempdir = "/tmp"  # it would try to write before it named one
    signal.alarm = lambda _: 0
    signal.setitimer = lambda *_: (0.0, 0.0)
    time.time = lambda: _NOW
    time.time_ns = lambda: int(_NOW) * 10**9
    time.clock_gettime, time.clock_gettime_ns = lambda _: _NOW, lambda _: int(_NOW) * 10**9
    for name in ("perf_counter", "process_time", "thread_time"):
        setattr(time, name, lambda: 0.0)
        setattr(time, f"{name}_ns", lambda: 0)
    moment = time.gmtime(_NOW)
    for name, argument, now in (
        *((name, 0, _NOW) for name in ("gmtime", "localtime", "ctime")),
        *(("asctime", 0, moment), ("strftime", 1, moment)),
    ):
        setattr(time, name, _OfNow(getattr(time, name), argument, now))
    # In the classes themselves: libraries in C have taken them for their own's base, and never ask a module.
    modified = ctypes.pythonapi.PyType_Modified
    modified.argtypes, modified.restype = [ctypes.py_object], None
    of_date: dict[str, Callable[..., Any]] = {"today": lambda kind: kind.fromtimestamp(_NOW)}
    of_moment = of_date | {"now": lambda kind, tz=None: kind.fromtimestamp(_NOW, tz)}
    of_moment["utcnow"] = lambda kind: kind.utcfromtimestamp(_NOW)
    for kind, methods in ((datetime.date, of_date), (datetime.datetime, of_moment)):
        (own,) = gc.get_referents(kind.__dict__)
        own.update((name, classmethod(method)) for name, method in methods.items())
        modified(kind)


def writable_nothing(handle: int) -> None:
    """Whoever opens /dev/null gets `handle`, which is open already: the filter of system calls sees no paths."""
    real, real_os = io.open, os.open

    def is_nothing(path: Any) -> bool:
        return isinstance(path, str | os.PathLike) and os.fspath(path) == os.devnull

    def opened(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        return real(os.dup(handle) if is_nothing(file) else file, mode, *args, **kwargs)

    def opened_raw(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        return os.dup(handle) if is_nothing(path) else real_os(path, flags, *args, **kwargs)

    builtins.open = io.open = opened
    os.open = opened_raw


def same_luck() -> None:
    """Set the global random states as they are before every load and every score."""
    random.seed(0)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(0)


# What the kernel calls memory that is shared and no file's
_NOWHERE = "/dev/zero", "/memfd:"


def carry_nothing(answer: int) -> None:
    """In a fork that answers on the handle `answer`, before it asks anything of the package: open files are read from
    where they stood, by itself alone; pipes, sockets and the like are nothing. Raise NoScore where memory is shared."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        for line in maps:
            _, rights, _, _, _, *name = line.split(maxsplit=5)
            if rights[3] == "s" and (rights[1] == "w" or "".join(name).startswith(_NOWHERE)):
                raise NoScore("it shares memory between its scores")
    for number in map(int, os.listdir("/proc/self/fd")):
        if number > 2 and number != answer:
            try:
                _own(number, os.readlink(f"/proc/self/fd/{number}"))
            except OSError:
                os.dup2(0, number)


def _own(number: int, what: str) -> None:
    """Two handles of one opening have one place in the file: it is opened once more."""
    if what == os.devnull:
        return
    if not what.startswith("/") or what.startswith(_NOWHERE):
        os.dup2(0, number)
        return
    offset, again = os.lseek(number, 0, os.SEEK_CUR), os.open(f"/proc/self/fd/{number}", os.O_RDONLY)
    os.lseek(again, offset, os.SEEK_SET)
    os.dup2(again, number)
    os.close(again)
