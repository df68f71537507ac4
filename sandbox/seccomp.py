"""The system calls that bubblewrap's programs cannot make; containers have their engine's own filter.

Compiled by libseccomp, which knows the numbers of every architecture.
"""

import ctypes
import os
from collections.abc import Iterator

from protocol.errors import ConfigError

_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_EPERM, _ENOSYS = 1, 38
_MASKED_EQUAL = 7
NEW_NAMESPACES = (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000)
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
AF_ALG, AF_VSOCK = 38, 40

DENIED = (
    *("mount", "umount2", "pivot_root", "chroot", "move_mount", "open_tree", "fsopen", "fsconfig", "fsmount", "fspick"),
    *("mount_setattr", "unshare", "setns", "ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "kcmp"),
    *("add_key", "request_key", "keyctl", "bpf", "perf_event_open", "userfaultfd"),
    *("io_uring_setup", "io_uring_enter", "io_uring_register", "fanotify_init", "name_to_handle_at"),
    *("open_by_handle_at", "init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load", "reboot"),
    *("swapon", "swapoff", "acct", "quotactl", "quotactl_fd", "settimeofday", "clock_settime", "adjtimex"),
    *("clock_adjtime", "sethostname", "setdomainname", "iopl", "ioperm", "syslog", "vhangup", "personality"),
)
"""Whatever their arguments."""


class _Comparison(ctypes.Structure):
    _fields_ = (("arg", ctypes.c_uint), ("op", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64))


def filter_file() -> int:
    """A file descriptor with the compiled filter, at its beginning; the caller closes it. Raises ConfigError where
    libseccomp is missing or refuses."""
    library = _library()
    context = library.seccomp_init(_ALLOW)
    if not context:
        raise ConfigError("libseccomp makes no filter", "update libseccomp")
    handle = os.memfd_create("seccomp")
    try:
        for name, error, comparison in _rules():
            number = library.seccomp_syscall_resolve_name(name.encode())
            if number < 0:  # not on this architecture, or younger than this library
                continue
            given = (_Comparison * 1)(comparison) if comparison else None
            code = library.seccomp_rule_add_array(context, _ERRNO | error, number, 1 if given else 0, given)
            if code:
                raise ConfigError(f"libseccomp refuses the rule for {name} ({-code})", "update libseccomp")
        if library.seccomp_export_bpf(context, handle):
            raise ConfigError("libseccomp does not write its filter", "update libseccomp")
    except BaseException:
        os.close(handle)
        raise
    finally:
        library.seccomp_release(context)
    os.lseek(handle, 0, os.SEEK_SET)
    return handle


def _rules() -> Iterator[tuple[str, int, _Comparison | None]]:
    """(system call, error, condition on one argument)."""
    for name in DENIED:
        yield name, _EPERM, None
    yield "clone3", _ENOSYS, None  # its flags lie in memory, where no filter looks; C libraries fall back to clone
    for flag in NEW_NAMESPACES:
        yield "clone", _EPERM, _Comparison(0, _MASKED_EQUAL, flag, flag)
    for request in (_TIOCSTI, _TIOCLINUX):
        yield "ioctl", _EPERM, _Comparison(1, _MASKED_EQUAL, 0xFFFFFFFF, request)
    for family in (AF_ALG, AF_VSOCK):
        yield "socket", _EPERM, _Comparison(0, _MASKED_EQUAL, 0xFFFFFFFF, family)


def _library() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL("libseccomp.so.2")
    except OSError:
        raise ConfigError("libseccomp is not installed", "apt-get install libseccomp2") from None
    library.seccomp_init.restype = ctypes.c_void_p
    library.seccomp_init.argtypes = [ctypes.c_uint32]
    library.seccomp_rule_add_array.argtypes = [
        ctypes.c_void_p,
        ctypes.c_uint32,
        ctypes.c_int,
        ctypes.c_uint,
        ctypes.c_void_p,
    ]
    library.seccomp_export_bpf.argtypes = [ctypes.c_void_p, ctypes.c_int]
    library.seccomp_release.argtypes = [ctypes.c_void_p]
    library.seccomp_syscall_resolve_name.argtypes = [ctypes.c_char_p]
    return library
