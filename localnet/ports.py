"""Free ports on the loopback interface and folders for one process alone, with clear refusals of taken ones."""

import errno
import fcntl
import os
import random
import socket
import tempfile
from functools import cache
from pathlib import Path

from filelock import FileLock, Timeout

from protocol.errors import ConfigError, MusterError
from protocol.waits import wait_for

_RANGE = range(20_000, 32_000)
"""Below the ports that systems give to outgoing connections: one of those may be taken by the time that the process it
was chosen for listens, seconds later, or again after a restart."""
_claimed: set[int] = set()


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
            raise
    return True


def claim_port() -> int:
    """Return a free port, another each time and in every process. Raises ConfigError where there is none."""
    for port in random.SystemRandom().sample(_RANGE, len(_RANGE)):
        if port not in _claimed and _register(port) and is_free(port):
            _claimed.add(port)
            return port
    raise ConfigError(f"no port is free in {_RANGE.start}-{_RANGE.stop}", "stop what uses them")


def _register(port: int) -> bool:
    """Return whether no other process of muster has claimed it: its listener may start seconds later. The system lets
    go of what a process that ended had claimed."""
    try:
        fcntl.lockf(_register_file(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except BlockingIOError:
        return False
    except OSError:  # no place for such a file: then it is free if nobody listens
        return True
    return True


@cache
def _register_file() -> int:
    """Of which each process locks the bytes of its ports."""
    path = Path(tempfile.gettempdir()) / f"muster-ports-{os.getuid()}"
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def claim(port: int, what: str) -> None:
    """Raise ConfigError unless `port` is free on 127.0.0.1, or becomes so within three seconds of a restart."""
    try:
        wait_for(f"port {port}", lambda: is_free(port) or None, timeout=3, poll=0.1)
    except MusterError:
        raise ConfigError(f"port {port} for {what} is in use", "stop what uses it or choose another --port") from None


def lock_folder(folder: Path, what: str, option: str = "--data") -> FileLock:
    """Take `folder` for this process alone, until the returned lock is released or the process ends. Waits three
    seconds for a predecessor. `option` names the folder on the command line. Raises ConfigError."""
    lock = FileLock(folder / "lock", timeout=3)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock.acquire(poll_interval=0.1)
    except Timeout:
        raise ConfigError(
            f"{folder} is in use by another {what}", f"stop that one or choose another {option}"
        ) from None
    except OSError as error:
        raise ConfigError(f"cannot write {folder}: {error.strerror}", f"choose another {option}") from None
    return lock
