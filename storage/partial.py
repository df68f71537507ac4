"""The bytes of an object that is on its way: who sent them, and from where to go on when a source breaks off."""

import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from protocol.errors import UnreachableError
from storage.draft import Bytes, Draft


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
