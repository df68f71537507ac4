"""Objects on their way: a part file that holds the bytes, and a partial download that knows who sent them."""

import hashlib
import os
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from protocol.errors import UnreachableError

Bytes = bytes | bytearray | memoryview
_COPY_BYTES = 1 << 20


class PartFile:
    """The bytes of an incomplete object; one thread fills it, any thread reads it.

    They are in memory, in a hidden file in `folder`, or from an offset on in a file of the caller's (`location`).
    Methods raise OSError.
    """

    def __init__(self, folder: Path | None = None, location: tuple[BinaryIO, int] | None = None) -> None:
        self._lock = threading.Lock()
        self._memory, self._size, self.sealed = bytearray(), 0, False
        self._location, self._path = location, None if folder is None else folder / f".{secrets.token_hex(12)}"
        if self._path is not None:
            self._location = self._path.open("xb+", buffering=0), 0

    def __len__(self) -> int:
        return self._size

    def append(self, data: Bytes) -> None:
        """Append bytes; does nothing after `seal`."""
        with self._lock:
            if self.sealed:
                return
            if self._location is None:
                self._memory += data
            else:
                file, start = self._location
                write(file, start + self._size, data)
            self._size += len(data)

    def read(self, start: int, most: int) -> bytes:
        """Return at most `most` bytes from `start` on; empty if none is there yet."""
        with self._lock:
            most = max(0, min(most, self._size - start))
            if self._location is None:
                return bytes(memoryview(self._memory)[start : start + most])
        file, offset = self._location
        return os.pread(file.fileno(), most, offset + start)

    def keep(self, path: Path) -> None:
        """Move a hidden file to `path`, on the same disk."""
        self.seal()
        assert self._path is not None, "only a part file of a folder can be kept"
        self._path.replace(path)

    def write_to(self, file: BinaryIO, start: int) -> None:
        """Write the bytes to `file` from `start` on, unless they are already there."""
        self.seal()
        if self._location == (file, start):
            return
        position = 0
        while data := self.read(position, _COPY_BYTES):
            write(file, start + position, data)
            position += len(data)
        if position < self._size:
            raise OSError("the disk has lost bytes that it took")

    def seal(self) -> None:
        """Ignore everything that is appended from now on."""
        with self._lock:
            self.sealed = True

    def drop(self) -> None:
        """Delete the hidden file; a thread that reads it may go on."""
        self.seal()
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def write(file: BinaryIO, start: int, data: Bytes) -> None:
    """Write all of `data` at offset `start`, however few bytes the disk takes at once. Raises OSError."""
    with memoryview(data) as view:
        done = 0
        while done < len(view):
            done += os.pwrite(file.fileno(), view[done:], start + done)


class AbandonedError(UnreachableError):
    """Nobody waits for these bytes any more."""


class PartialDownload:
    """The bytes that have arrived of one object, in order, hashed as they arrive; one thread fills it, any thread reads
    it. `source` names where they come from, `part_files` makes what holds them: `part`, which the caller may keep once
    the object is complete. Methods raise OSError."""

    def __init__(self, source: str = "", part_files: Callable[[], PartFile] = PartFile) -> None:
        self._lock, self._part_files = threading.Lock(), part_files
        self.part, self._hash = part_files(), hashlib.sha256()
        self.source, self.received, self.abandoned = source, 0, False
        # Another source can be asked, so this one is not worth many tries.
        self.has_alternatives = False
        self._hang_up: Callable[[], object] | None = None

    def __len__(self) -> int:
        return len(self.part)

    def append(self, data: Bytes) -> None:
        """Append bytes of the source. Raises AbandonedError."""
        self.check()
        self.part.append(data)
        self._hash.update(data)
        self.received += len(data)

    def restart(self) -> None:
        """Forget all bytes: they are wrong, or the source starts again at the first one."""
        with self._lock:
            self.part.drop()
            self.part, self._hash = PartFile() if self.abandoned else self._part_files(), hashlib.sha256()

    @property
    def sha256(self) -> bytes:
        """SHA-256 of all bytes, for the filling thread and any thread that was told that the object is complete."""
        return self._hash.digest()

    def whole(self) -> bytes:
        """Return all bytes."""
        with self._lock:
            part = self.part
        return part.read(0, len(part))

    def drop(self) -> None:
        """Delete the bytes."""
        with self._lock:
            self.part.drop()

    def abandon(self) -> None:
        """Stop the filling thread, even while it waits for a byte that never comes."""
        with self._lock:
            self.abandoned = True
            self.part.seal()  # its place in the caller's file may be given to another download
            if self._hang_up is not None:
                self._hang_up()

    @contextmanager
    def ended_by(self, hang_up: Callable[[], object]) -> Iterator[None]:
        """Let `abandon` call `hang_up`, from another thread, while the block runs. Raises AbandonedError."""
        with self._lock:
            self._hang_up = hang_up
        try:
            self.check()
            yield
        finally:
            with self._lock:
                self._hang_up = None

    def check(self) -> None:
        """Raise AbandonedError once nobody waits for the bytes."""
        if self.abandoned:
            raise AbandonedError("nobody waits for this download any more", "ask again")
