"""What a hijacked parser could do: tried from inside a forked child that was shut in."""

import os
import resource
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.support.rollouts import LIMITS
from protocol.rollout_file.confine import confine

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="seccomp is Linux's")


def inside(action: Callable[[], object]) -> str:
    """What became of `action` in a confined child: "ok", an error's name, or a signal's."""
    readable, writable = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            confine(LIMITS.memory_bytes, LIMITS.cpu_seconds, writable)
            try:
                action()
                word = "ok"
            except BaseException as error:
                word = type(error).__name__
            os.write(writable, word.encode())
        finally:
            os._exit(0)
    os.close(writable)
    word = os.read(readable, 100).decode()
    os.close(readable)
    _, status = os.waitpid(pid, 0)
    return signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else word


def test_it_may_compute_and_take_memory_within_bounds() -> None:
    assert inside(lambda: sum(bytearray(50_000_000))) == "ok"
    assert inside(lambda: bytearray(3 * LIMITS.memory_bytes)) == "MemoryError"


@pytest.mark.parametrize(
    "action",
    [
        lambda: os.open("/etc/passwd", os.O_RDONLY),
        lambda: Path("/tmp/x").unlink(),
        lambda: os.stat("/"),
        lambda: os.listdir("/"),
        lambda: socket.socket(),
        lambda: os.kill(os.getpid(), 0),
        lambda: os.fork(),
        lambda: os.execv("/bin/true", ["true"]),
        lambda: os.pipe(),
        lambda: resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)),
        lambda: os.chdir("/"),
        lambda: os.setuid(1),
        lambda: os.write(1, b"x"),
        lambda: os.read(0, 1),
    ],
)
def test_it_may_not(action: Callable[[], object]) -> None:
    assert inside(action) in ("PermissionError", "OSError", "ValueError")
