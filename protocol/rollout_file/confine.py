"""What the process that parses a stranger's file may still do: compute, take memory, write its answer, end.

Resource limits bound memory and CPU; a seccomp filter (Linux, x86-64 and ARM64) refuses all system calls that touch
files, network, or other processes, so that a file which takes over the parser gains nothing.
"""

import ctypes
import os
import platform
import resource
import struct

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _FILTER_MODE = 38, 22, 2
_LOAD, _JUMP_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050001, 0x80000000  # refuse: errno EPERM
# read, write, mmap, mprotect, munmap, brk, mremap, madvise, futex, rt_sigaction, rt_sigprocmask, rt_sigreturn,
# sched_yield, getpid, gettid, clock_gettime, gettimeofday, getrandom, exit, exit_group
_CALLS = {
    "x86_64": (0xC000003E, (0, 1, 9, 10, 11, 12, 25, 28, 202, 13, 14, 15, 24, 39, 186, 228, 96, 318, 60, 231)),
    "aarch64": (
        0xC00000B7,
        (63, 64, 222, 226, 215, 214, 216, 233, 98, 134, 135, 139, 124, 172, 178, 113, 169, 278, 93, 94),
    ),
}


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def confine(memory: int, cpu_seconds: int, keep_fd: int) -> None:
    """Shut this process in for good; only `keep_fd` stays open. `memory`: bytes of address space beyond what it has.
    Where seccomp is missing, the limits alone apply."""
    with open("/proc/self/statm", encoding="ascii") as statm:
        present = int(statm.read().split()[0]) * resource.getpagesize()
    os.closerange(0, keep_fd)
    os.closerange(keep_fd + 1, 1024)
    resource.setrlimit(resource.RLIMIT_AS, (present + memory, present + memory))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 1))
    for forbidden in (resource.RLIMIT_FSIZE, resource.RLIMIT_CORE, resource.RLIMIT_NOFILE):
        resource.setrlimit(forbidden, (0, 0))
    refuse_system_calls()


def refuse_system_calls() -> bool:
    """Allow only to compute, take memory, use what is open, and end. Return False where seccomp is missing."""
    arch, calls = _CALLS.get(platform.machine(), (0, ()))
    if not calls:
        return False
    steps = [_step(_LOAD, 4), _step(_JUMP_EQUAL, arch, 1, 0), _step(_RETURN, _KILL), _step(_LOAD, 0)]
    steps += [_step(_JUMP_EQUAL, call, len(calls) - number, 0) for number, call in enumerate(calls)]
    steps += [_step(_RETURN, _REFUSE), _step(_RETURN, _ALLOW)]
    code = ctypes.create_string_buffer(b"".join(steps))
    program = _Program(len(steps), ctypes.cast(code, ctypes.c_void_p))
    libc = ctypes.CDLL(None)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        return False
    return not libc.prctl(_PR_SET_SECCOMP, _FILTER_MODE, ctypes.byref(program), 0, 0)


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)
