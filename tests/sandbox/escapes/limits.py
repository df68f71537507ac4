"""Taking more of the machine than is allowed."""

import mmap
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from .base import Attempt, Told

FORKS = 150
"""More than the suite's policy allows, few enough for any machine."""
BLOCK = 8 << 20


def fork_bomb(told: Told) -> str | None:
    """All at once at the end of the pipe, which ends when we end."""
    reading, writing = os.pipe()
    children: list[int] = []
    try:
        for _ in range(FORKS):
            child = os.fork()
            if child == 0:
                os.close(writing)
                os.read(reading, 1)
                os._exit(0)
            children.append(child)
        return f"{FORKS} processes"
    finally:
        os.close(writing)
        for child in children:
            os.waitpid(child, 0)


def too_much_memory(told: Told) -> str | None:
    """In processes of their own, which may be killed for it; two of them, for limits that only count per process."""
    return _in_processes("hold", told, 1)


def too_much_memory_together(told: Told) -> str | None:
    return _in_processes("hold", told, 2)


def too_much_memory_in_files(told: Told) -> str:
    path, written = Path("/tmp") / f"{told['token']}-large", 0
    try:
        with path.open("wb") as file:
            while written < told["memory"] + 4 * BLOCK:
                written += file.write(bytes(BLOCK))
        return f"{written} bytes in /tmp"
    finally:
        path.unlink(missing_ok=True)


def _in_processes(what: str, told: Told, count: int) -> str | None:
    share = (told["memory"] + 8 * BLOCK) // count
    argv = [sys.executable, "-S", "-m", str(__package__), f"--{what}", str(share)]
    running = [subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(count)]
    held = [process.stdout.readline() for process in running if process.stdout]
    alive = [process.poll() is None for process in running]
    for process in running:
        with suppress(BrokenPipeError):
            process.communicate(b"\n", timeout=20)
    return f"{count} times {share} bytes" if all(b"held" in one for one in held) and all(alive) else None


def hold(size: int) -> None:
    """Allocate and touch; then wait for a line."""
    blocks = []
    for _ in range(size // BLOCK):
        block = mmap.mmap(-1, BLOCK, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        for page in range(0, BLOCK, mmap.PAGESIZE):
            block[page] = 1
        blocks.append(block)
    print("held", flush=True)
    sys.stdin.readline()


def many_open_files(told: Told) -> str:
    handles: list[int] = []
    try:
        while len(handles) < told["open_files"] + 16:
            handles.append(os.open("/dev/null", os.O_RDONLY))
        return f"{len(handles)} open files"
    finally:
        for handle in handles:
            os.close(handle)


TOGETHER: tuple[Attempt, ...] = (too_much_memory_together,)
LIMITS: tuple[Attempt, ...] = (
    *(many_open_files, fork_bomb, too_much_memory, too_much_memory_in_files),
    *TOGETHER,
)
