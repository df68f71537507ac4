"""The bytes of an object on its way: in a file that nobody takes for whole, or in memory."""

import hashlib
import os
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import BinaryIO

from protocol.errors import UnreachableError

Bytes = bytes | bytearray | memoryview
_COPY = 1 << 20


class Draft:
    """Filled by one thread, read by any. In a hidden file in `folder`, or `at` a place in a file of the caller's, as
    long as the disk takes the bytes; what it does not take is held in memory with all before it, so a full disk is
    heard of by `keep` and `put` alone. Whoever writes to that file takes `turns`."""

    def __init__(
        self,
        folder: Path | None = None,
        at: tuple[BinaryIO, int] | None = None,
        turns: AbstractContextManager[object] | None = None,
    ) -> None:
        self._lock, self._turns = threading.Lock(), nullcontext() if turns is None else turns
        self._memory, self._size, self.sealed = bytearray(), 0, False
        self._place = at
        self._path: Path | None = None
        if folder is not None:
            path = folder / f".{secrets.token_hex(12)}"
            with suppress(OSError):  # it is heard of when it is to be kept
                self._place, self._path = (path.open("xb+", buffering=0), 0), path

    def __len__(self) -> int:
        return self._size

    @property
    def place(self) -> tuple[BinaryIO, int] | None:
        """The file that the bytes are in, if they are in one, and where they begin; readable by whoever has it."""
        return self._place

    def append(self, data: Bytes) -> None:
        """Nothing of what comes after `seal` is written."""
        with self._lock:
            if self.sealed:
                return
            if self._place is not None and not self._written(*self._place, data):
                self._memory = bytearray(_read(*self._place, 0, self._size))
                self._place = None
                self._remove()
            if self._place is None:
                self._memory += data
            self._size += len(data)

    def read(self, start: int, most: int) -> bytes:
        """At most `most` bytes from `start` on; empty if none is there yet."""
        with self._lock:
            most = max(0, min(most, self._size - start))
            if (place := self._place) is None:
                with memoryview(self._memory) as view:
                    return bytes(view[start : start + most])
        return _read(*place, start, most)

    def copy_to(self, other: "Draft") -> None:
        """Append all bytes that are here now to another one."""
        at = 0
        while data := self.read(at, _COPY):
            other.append(data)
            at += len(data)

    def keep(self, path: Path) -> None:
        """Let it be the file at `path`, of the same disk as its folder. Raises OSError."""
        self.seal()
        if self._path is not None and self._place is not None:
            self._path.replace(path)
            return
        aside = path.parent / f".{secrets.token_hex(12)}"
        try:
            with aside.open("xb", buffering=0) as file:
                self.put(file, 0)
            aside.replace(path)
        except OSError:
            aside.unlink(missing_ok=True)
            raise

    def put(self, file: BinaryIO, start: int) -> None:
        """Let the bytes be in `file` from `start` on, where they may be already. Raises OSError."""
        self.seal()
        if self._place == (file, start):
            return
        at = 0
        while data := self.read(at, _COPY):
            write(file, start, at, data)
            at += len(data)
        if at < self._size:
            raise OSError("the disk has lost bytes that it took")

    def seal(self) -> None:
        """From now on nothing changes, whatever thread still tries."""
        with self._lock:
            self.sealed = True

    def drop(self) -> None:
        """Nobody needs it; who is reading it may go on."""
        self.seal()
        self._remove()

    def _remove(self) -> None:
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def _written(self, file: BinaryIO, start: int, data: Bytes) -> bool:
        """Whether the disk took all of it."""
        try:
            with self._turns:
                write(file, start, self._size, data)
        except (OSError, ValueError):  # ValueError: a file of the caller's that was closed
            return False
        return True


def write(file: BinaryIO, start: int, at: int, data: Bytes) -> None:
    """Write all of the bytes, `at` behind `start`, however few of them the disk takes at once. Raises OSError."""
    with memoryview(data) as view:
        done = 0
        while done < len(view):
            done += os.pwrite(file.fileno(), view[done:], start + at + done)


def _read(file: BinaryIO, start: int, at: int, size: int) -> bytes:
    """Less than that if the disk has lost it."""
    try:
        return os.pread(file.fileno(), size, start + at)
    except (OSError, ValueError):
        return b""


# ---- The bytes of an object that is on its way


class AbandonedError(UnreachableError):
    """Nobody waits for these bytes any more."""


class PartialObject:
    """What has come of one object, in order. One thread fills it; any may read it meanwhile.

    `source`: whose request it is. With `begun`, another request's partial, it goes on where that one is: these bytes
    are not checked, so what does not have its hash in the end is fetched anew from this source alone. The bytes are
    hashed as they come; `drafts` makes what holds them.
    """

    def __init__(
        self, source: str = "", begun: "PartialObject | None" = None, drafts: Callable[[], Draft] = Draft
    ) -> None:
        self._lock, self._drafts = threading.Lock(), drafts
        self._draft, self._hash = drafts(), hashlib.sha256()
        if begun is not None:
            self._begin_as(begun)
        self.source, self.restarts, self.own, self.abandoned = source, 0, 0, False
        here = begun is not None and len(self._draft) > 0
        self.givers: frozenset[str] = begun.givers | {begun.source} if begun is not None and here else frozenset()
        """Who else sent some of the bytes that are here."""
        self.on_news: Callable[[], object] | None = None
        """Called in the thread that fills it, after more bytes came or those that came were thrown away."""
        self._hang_up: Callable[[], object] | None = None
        self.hurried = False
        """Another source is there to be asked, so this one is not worth many tries."""
        self.suspects = frozenset[str]()
        """Who else sent some of the bytes that had to be thrown away."""
        self._answers = len(self.givers)

    def __len__(self) -> int:
        return len(self._draft)

    def begin_answer(self) -> None:
        """Another answer's bytes follow. Raises AbandonedError."""
        self._answers += 1
        self.check()

    def append(self, data: Bytes) -> None:
        """Raises AbandonedError."""
        self.check()
        self._draft.append(data)
        self._hash.update(data)
        self.own += len(data)
        self._tell()

    def restart(self) -> None:
        """Forget all bytes: the source begins at the first one."""
        with self._lock:
            self._draft.drop()
            self._draft, self._hash = Draft() if self.abandoned else self._drafts(), hashlib.sha256()
            self.givers, self._answers = frozenset(), 0
            self.restarts += 1
        self._tell()

    def _tell(self) -> None:
        if self.on_news is not None:
            self.on_news()

    def refuse(self) -> bool:
        """The bytes do not have the hash: forget them. Whether they came in more than one answer, so that it is not
        known yet who sent wrong ones."""
        mixed = self._answers > 1
        self.suspects |= self.givers
        self.restart()
        return mixed

    def _begin_as(self, begun: "PartialObject") -> None:
        with begun._lock:
            begun._draft.copy_to(self._draft)
        at = 0
        while data := self._draft.read(at, 1 << 20):
            self._hash.update(data)
            at += len(data)

    def read(self, start: int, most: int) -> bytes:
        """At most `most` bytes from `start` on; empty if none is there yet."""
        with self._lock:
            draft = self._draft
        return draft.read(start, most)

    @property
    def place(self) -> tuple[BinaryIO, int] | None:
        """The file that the bytes are in now, if they are in one, and where they begin."""
        with self._lock:
            return self._draft.place

    @property
    def sha256(self) -> bytes:
        """Of all bytes, for the thread that fills it and whoever was told that it is whole."""
        return self._hash.digest()

    def whole(self) -> bytes:
        """All bytes."""
        return self.read(0, len(self))

    def keep(self, path: Path) -> None:
        """Let it be the file at `path`, of the same disk. Raises OSError."""
        self._draft.keep(path)

    def put(self, file: BinaryIO, start: int) -> None:
        """Let the bytes be in `file` from `start` on. Raises OSError."""
        self._draft.put(file, start)

    def drop(self) -> None:
        """Nobody needs the bytes any more."""
        with self._lock:
            self._draft.drop()

    def abandon(self) -> None:
        """Tell the thread that fills it to stop, also while it waits for a byte that never comes."""
        with self._lock:
            self.abandoned = True
            self._draft.seal()  # whoever comes after may be given its place
            if self._hang_up is not None:
                self._hang_up()

    @contextmanager
    def ended_by(self, hang_up: Callable[[], object]) -> Iterator[None]:
        """While the block runs, who abandons this calls `hang_up`, from another thread. Raises AbandonedError."""
        with self._lock:
            self._hang_up = hang_up
        try:
            self.check()
            yield
        finally:
            with self._lock:
                self._hang_up = None

    def check(self) -> None:
        """Raises AbandonedError."""
        if self.abandoned:
            raise AbandonedError("nobody waits for this download any more", "ask again")
