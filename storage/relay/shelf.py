"""What a relay holds: objects that verified manifests name, on its disk, each checked against its hash."""

import hashlib
import logging
import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

from protocol.errors import IntegrityError
from protocol.files import explained
from storage.draft import Draft
from storage.keys import check_content, check_sha256, parse_key
from storage.partial import PartialObject

log = logging.getLogger("muster.relay")
KINDS = ("manifests", "shards")
_PIECE = 256 << 10


class RelayShelf:
    """Objects under `folder`, of at most `room` bytes. Only keys that were named are ever looked for, so nothing in a
    stranger's key can lead elsewhere. Thread-safe."""

    def __init__(self, folder: Path, room: int) -> None:
        self.folder, self._room = folder, room
        self._lock = threading.Lock()
        self._named: dict[str, int] = {}
        self._here: dict[str, int] = {}
        for kind in KINDS:
            with explained(f"make the relay's folder {folder / kind}", "choose another"):
                (folder / kind).mkdir(parents=True, exist_ok=True)

    def name(self, objects: Iterable[tuple[str, int]]) -> list[str]:
        """Hold these keys with their sizes in bytes, the most wanted first, as far as there is room; everything else
        goes. Returns the keys that are not here yet, in order."""
        named, total = dict[str, int](), 0
        for key, size in objects:
            if key not in named and total + size <= self._room:
                named[str(parse_key(key))] = size
                total += size
        with self._lock:
            self._named = named
            self._here = {key: size for key, size in self._here.items() if key in named}
        self._sweep(named)
        return [key for key in named if not self.has(key)]

    def _sweep(self, named: dict[str, int]) -> None:
        for kind in KINDS:
            for path in (self.folder / kind).iterdir():
                if f"{kind}/{path.name}" not in named and not path.name.startswith("."):
                    path.unlink(missing_ok=True)

    def size(self, key: str) -> int | None:
        """The size of an object that may be served, None for any other key."""
        return self._named.get(key)

    def has(self, key: str) -> bool:
        """Whether the object is here. One that a former process left is checked now, and thrown away if it is wrong."""
        if key in self._here:
            return True
        size = self._named.get(key)
        if size is None:
            return False
        try:
            size = self._checked_size(key, size)
        except (OSError, IntegrityError):
            with self._lock:
                if key not in self._here:  # it may have come meanwhile
                    (self.folder / key).unlink(missing_ok=True)
                return key in self._here
        with self._lock:
            self._here[key] = size
        return True

    def _checked_size(self, key: str, named: int) -> int:
        """Of the file; a shard is read a piece at a time, one of another size than `named` not at all. Raises OSError,
        IntegrityError."""
        with (self.folder / key).open("rb") as file:
            if parse_key(key).is_sha256:
                if (size := os.fstat(file.fileno()).st_size) != named:
                    raise IntegrityError(f"{key} has {size} bytes, not {named}")
                check_sha256(key, hashlib.file_digest(file, "sha256").digest())
            else:
                check_content(key, file.read())
            return file.tell()

    def path(self, key: str) -> Path | None:
        """Where the object is, if it is here; does not read it. One of another size is thrown away."""
        if key not in self._here or key not in self._named:
            return None
        path = self.folder / key
        try:
            if path.stat().st_size == self._here[key]:
                return path
        except (OSError, KeyError):
            pass
        self._throw_away(key)
        return None

    def copy(self, key: str, whole: PartialObject) -> bool:
        """Append a named shard's bytes, a piece at a time; False, and nothing appended, if it is not here. What the
        disk has spoilt since it came is thrown away, and fetched anew for whoever needs it."""
        size = self._named.get(key)
        if size is None or not self.has(key):
            return False
        try:
            with (self.folder / key).open("rb") as file:
                while data := file.read(min(_PIECE, size - len(whole))):
                    whole.append(data)
            check_sha256(key, whole.sha256)
        except (OSError, IntegrityError) as error:
            log.warning("%s is damaged on the disk: %s", key, error)
            self._throw_away(key)
            whole.restart()
            return False
        return True

    def _throw_away(self, key: str) -> None:
        with self._lock:
            self._here.pop(key, None)
            (self.folder / key).unlink(missing_ok=True)

    def stored(self, key: str) -> bytes | None:
        """What a former process left under a key that is to be named, unchecked."""
        try:
            return (self.folder / str(parse_key(key))).read_bytes()
        except OSError:
            return None

    def draft(self) -> Draft:
        """For an object that `keep` is called with later."""
        return Draft(self.folder / "shards")

    def put(self, key: str, data: bytes) -> bool:
        """Keep a checked object; False if it is not named any more, or the disk has no room."""
        draft = self.draft()
        draft.append(data)
        return self._keep(key, draft.keep, len(data))

    def keep(self, key: str, whole: PartialObject) -> bool:
        """The same, of one that came into a `draft`."""
        return self._keep(key, whole.keep, len(whole))

    def _keep(self, key: str, keep: Callable[[Path], None], size: int) -> bool:
        with self._lock:  # whoever finds nothing here removes nothing that comes now
            if key not in self._named:
                return False
            try:
                keep(self.folder / key)
            except OSError as error:
                log.warning("cannot keep %s: %s", key, error.strerror)
                return False
            self._here[key] = size
        return True

    def clear_drafts(self) -> None:
        """Remove what a process that died left half-written."""
        for kind in KINDS:
            for path in (self.folder / kind).glob(".*"):
                path.unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove everything."""
        self.name(())
        self.clear_drafts()

    def held(self) -> tuple[int, int]:
        """Objects and bytes."""
        with self._lock:
            return len(self._here), sum(self._here.values())
