"""What the process of a package may do: read, compute, answer. No network, no programs, nothing written.

A filter of system calls, compiled by libseccomp. The first stage is laid on before any code of the package runs; the
second, on every fork that scores, also ends whatever starts a process or asks for a socket: an answer's score cannot be
what a scorer makes of a refusal.
"""

import ctypes
import os
import resource
from collections.abc import Iterable

_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_EPERM, _ENOSYS = 1, 38
_MASKED_EQUAL = 7
_THREAD = 0x00010000
_WRITES = (os.O_WRONLY, os.O_RDWR, os.O_CREAT, os.O_TRUNC, os.O_APPEND)
_SOCKETS = ("socket", "connect", "bind", "listen", "accept", "accept4")
_PROGRAMS = ("execve", "execveat")
_CHANGES = (
    *("creat", "unlink", "unlinkat", "rename", "renameat", "renameat2", "mkdir", "mkdirat", "rmdir"),
    *("mknod", "mknodat"),
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
_LATER = ("clone3", "openat2")
"""Their arguments lie where no filter looks; C libraries fall back to `clone` and `openat`."""


class _Condition(ctypes.Structure):
    _fields_ = (("arg", ctypes.c_uint), ("op", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64))


class _Filter:
    def __init__(self) -> None:
        self._library = ctypes.CDLL("libseccomp.so.2")
        self._library.seccomp_init.restype = ctypes.c_void_p
        self._library.seccomp_init.argtypes = [ctypes.c_uint32]
        self._library.seccomp_load.argtypes = [ctypes.c_void_p]
        self._library.seccomp_rule_add_array.argtypes = [
            *(ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_uint, ctypes.c_void_p)
        ]
        self._context = self._library.seccomp_init(_ALLOW)

    def add(self, names: Iterable[str], action: int, condition: _Condition | None = None) -> None:
        for name in names:
            number = self._library.seccomp_syscall_resolve_name(name.encode())
            if number < 0:  # not on this architecture, or younger than this library
                continue
            given = (_Condition * 1)(condition) if condition else None
            code = self._library.seccomp_rule_add_array(self._context, action, number, 1 if given else 0, given)
            if code:
                raise OSError(-code, f"libseccomp refuses the rule for {name}")

    def load(self) -> None:
        if code := self._library.seccomp_load(self._context):
            raise OSError(-code, "the kernel takes no filter of system calls")


def shut_in() -> None:
    """The first stage, for good. Raises OSError where there is no libseccomp or no filter can be laid on."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    filter_ = _Filter()
    filter_.add((*_SOCKETS, *_PROGRAMS, *_CHANGES, *_OTHERS), _ERRNO | _EPERM)
    filter_.add(_LATER, _ERRNO | _ENOSYS)
    for flag in _WRITES:
        filter_.add(("open",), _ERRNO | _EPERM, _Condition(1, _MASKED_EQUAL, flag, flag))
        filter_.add(("openat",), _ERRNO | _EPERM, _Condition(2, _MASKED_EQUAL, flag, flag))
    filter_.load()


def shut_in_fork(memory: int, seconds: int) -> None:
    """The second stage: so many bytes more than now, so many seconds of a processor, and threads but no processes."""
    with open("/proc/self/status", encoding="ascii") as status:
        data = next((int(line.split()[1]) << 10 for line in status if line.startswith("VmData:")), 0)
    for what, limit in ((resource.RLIMIT_DATA, data + memory), (resource.RLIMIT_CPU, seconds)):
        hard = resource.getrlimit(what)[1]
        bound = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(what, (bound, bound))
    filter_ = _Filter()
    filter_.add((*_SOCKETS, *_PROGRAMS, "fork", "vfork"), _KILL)
    filter_.add(("clone",), _KILL, _Condition(0, _MASKED_EQUAL, _THREAD, 0))
    filter_.load()
