"""Locks between processes, on files: one process works, the others say what they wait for."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from protocol.waits import wait_for


@contextmanager
def locked(path: Path, what: str, timeout: float) -> Iterator[None]:
    """Hold the lock file `path`, whose folder exists, while the block runs; a process that ends lets go of it.

    Whoever else wants it waits for `what`. Raises MusterError after `timeout` seconds, OSError for an unusable path.
    """
    lock = FileLock(path)

    def taken() -> bool:
        try:
            lock.acquire(blocking=False)
        except Timeout:
            return False
        return True

    wait_for(what, taken, timeout, poll=0.05)
    try:
        yield
    finally:
        lock.release()


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock file. It need not be writable for us, and nothing of it changes."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        # Shared, so that two who look do not take each other for the holder.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False
