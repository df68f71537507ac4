"""The ends of log files, and what is written to them from now on."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path

_BLOCK = 1 << 16
_POLL_SECONDS = 0.3


def last_lines(path: Path, count: int) -> list[str]:
    """The last `count` whole or partial lines, read from the end. Raises OSError."""
    if not count:
        return []
    with path.open("rb") as file:
        left = file.seek(0, 2)
        data = b""
        while left and data.count(b"\n") <= count:
            step = min(_BLOCK, left)
            left -= step
            file.seek(left)
            data = file.read(step) + data
    return data.decode(errors="replace").splitlines()[-count:]


class LogTail:
    """What was added to a file since the last look, as whole lines. A file that shrank or is another is read from its
    start."""

    def __init__(self, path: Path) -> None:
        self._path = path
        status = path.stat()
        self._at, self._inode = status.st_size, status.st_ino

    def take(self) -> list[str]:
        """Empty while the file is not there."""
        try:
            status = self._path.stat()
        except FileNotFoundError:
            return []
        if status.st_size < self._at or status.st_ino != self._inode:
            self._at, self._inode = 0, status.st_ino
        with self._path.open("rb") as file:
            file.seek(self._at)
            data = file.read()
        whole = data.rpartition(b"\n")[0]
        if not whole:
            return []
        self._at += len(whole) + 1
        return whole.decode(errors="replace").splitlines()


def follow_logs(paths: Mapping[str, Path], say: Callable[[str], None]) -> None:
    """Say every new line after its file's name, until interrupted."""
    tails = {name: LogTail(path) for name, path in paths.items()}
    while True:
        for name, tail in tails.items():
            for line in tail.take():
                say(f"{name} | {line}")
        time.sleep(_POLL_SECONDS)
