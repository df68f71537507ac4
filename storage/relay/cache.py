"""What a relay holds on its disk, and what it is fetching: objects that verified manifests name, each fetched once
however many clients ask, and checked against its hash before anybody gets it."""

import hashlib
import logging
import os
import threading
import time
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from protocol.errors import IntegrityError, MusterError
from protocol.files import explained
from storage.keys import check_sha256, parse_key
from storage.partial import PartFile, PartialDownload
from storage.sources import MultiSource

log = logging.getLogger("muster.relay")
KINDS = ("manifests", "shards")
_PIECE = 256 << 10


class RelayCache:
    """Objects of at most `room` bytes, in one process's folder. Only named keys are looked up: a stranger's key leads
    nowhere. Thread-safe."""

    def __init__(self, folder: Path, room: int) -> None:
        self.folder, self._room = folder, room
        self._lock = threading.Lock()
        self._named: dict[str, int] = {}
        self._here: dict[str, int] = {}
        for kind in KINDS:
            with explained(f"make the relay's folder {folder / kind}", "choose another"):
                (folder / kind).mkdir(parents=True, exist_ok=True)
                for part in (folder / kind).glob(".*"):  # a dead process left it half-written
                    part.unlink(missing_ok=True)

    def name(self, objects: Iterable[tuple[str, int]]) -> list[str]:
        """Hold these keys with their sizes in bytes, the most wanted first, as far as there is room; delete everything
        else. Return the keys that are not here yet, in order."""
        named, total = dict[str, int](), 0
        for key, size in objects:
            if key not in named and total + size <= self._room:
                named[str(parse_key(key))] = size
                total += size
        with self._lock:
            self._named = named
            self._here = {key: size for key, size in self._here.items() if key in named}
        for kind in KINDS:
            for path in (self.folder / kind).iterdir():
                if f"{kind}/{path.name}" not in named and not path.name.startswith("."):
                    path.unlink(missing_ok=True)
        return [key for key in named if not self.has(key)]

    def size(self, key: str) -> int | None:
        """Return the size of an object that may be served, None for any other key."""
        return self._named.get(key)

    def has(self, key: str) -> bool:
        """Return whether the object is here; one that an earlier process left is checked now, and deleted if wrong."""
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
        """Return the size of a right file. A shard is read a piece at a time, and not at all if its size is not
        `named`. Raises OSError, IntegrityError."""
        path = self.folder / key
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if parse_key(key).is_sha256 and size != named:
                raise IntegrityError(f"{key} has {size} bytes, not {named}")
            check_sha256(key, hashlib.file_digest(file, "sha256").digest(), path.read_bytes)
            return size

    def path(self, key: str) -> Path | None:
        """Return the object's file, if it is here, without reading it. A file of the wrong size is deleted."""
        if key not in self._here or key not in self._named:
            return None
        path = self.folder / key
        try:
            if path.stat().st_size == self._here[key]:
                return path
        except (OSError, KeyError):
            pass
        self._delete(key)
        return None

    def copy(self, key: str, whole: PartialDownload) -> bool:
        """Append a named shard's bytes to `whole`; return False, with nothing appended, if it is not here. A shard that
        the disk has damaged is deleted, so that it is fetched again."""
        size = self._named.get(key)
        if size is None or not self.has(key):
            return False
        try:
            with (self.folder / key).open("rb") as file:
                while data := file.read(min(_PIECE, size - len(whole))):
                    whole.append(data)
            check_sha256(key, whole.sha256, whole.whole)
        except (OSError, IntegrityError) as error:
            log.warning("%s is damaged on the disk: %s", key, error)
            self._delete(key)
            whole.restart()
            return False
        return True

    def _delete(self, key: str) -> None:
        with self._lock:
            self._here.pop(key, None)
            (self.folder / key).unlink(missing_ok=True)

    def stored(self, key: str) -> bytes | None:
        """Return the unchecked bytes that an earlier process left under a key that is yet to be named."""
        try:
            return (self.folder / str(parse_key(key))).read_bytes()
        except OSError:
            return None

    def part_file(self) -> PartFile:
        """Make a part file for an object that is passed to `keep` later. Raises OSError."""
        return PartFile(self.folder / "shards")

    def put(self, key: str, data: bytes) -> bool:
        """Keep a checked object; return False if it is no longer named, or the disk is full."""
        part = None
        try:
            part = self.part_file()
            part.append(data)
        except OSError as error:
            log.warning("cannot keep %s: %s", key, error.strerror)
            if part is not None:
                part.drop()
            return False
        return self.keep(key, part)

    def keep(self, key: str, whole: PartFile) -> bool:
        """Keep a checked object that is in a `part_file`; see `put`."""
        try:
            with self._lock:  # `has` must not delete a file that arrives now
                if key in self._named:
                    whole.keep(self.folder / key)
                    self._here[key] = len(whole)
                    return True
        except OSError as error:
            log.warning("cannot keep %s: %s", key, error.strerror)
        whole.drop()
        return False

    def held(self) -> tuple[int, int]:
        """Return the numbers of objects and bytes."""
        with self._lock:
            return len(self._here), sum(self._here.values())


# Objects on their way to a relay


# Few at a time: clients get an object once it is whole, so the first ones must not wait for many others.
PARALLEL = 4
# Seconds before a failed fetch of an object is repeated, however many clients ask.
AGAIN_SECONDS = 2.0


class RelayFetches:
    """Fetches objects from `sources` into the cache, in the order of the first request for each. Thread-safe."""

    def __init__(self, sources: MultiSource, cache: RelayCache) -> None:
        self._sources, self._cache = sources, cache
        self._lock = threading.Lock()
        self._in_flight: dict[str, Future[None]] = {}
        self._not_before: dict[str, float] = {}
        self._pool = ThreadPoolExecutor(PARALLEL, thread_name_prefix="relay")
        self.received = self.failed = 0

    def start(self, key: str) -> "Future[None] | None":
        """Return the fetch that brings an object into the cache; None if it is not named, or failed a moment ago."""
        with self._lock:
            size = self._cache.size(key)
            if size is None or time.monotonic() < self._not_before.get(key, 0.0):
                return None
            if key not in self._in_flight:
                self._in_flight[key] = self._pool.submit(self._fetch, key, size)
            return self._in_flight[key]

    def _fetch(self, key: str, size: int) -> None:
        try:
            if self._cache.path(key) is None:  # it may have arrived since it was requested
                self._cache.keep(key, self._sources.fetch(key, size, self._cache.part_file).part)
                self.received += size
        except Exception as error:
            log.info("no %s: %s", key, error, exc_info=None if isinstance(error, MusterError | OSError) else error)
            with self._lock:
                self.failed += 1
                now = time.monotonic()
                self._not_before = {key: at for key, at in self._not_before.items() if at > now}
                self._not_before[key] = now + AGAIN_SECONDS
        finally:
            with self._lock:
                self._in_flight.pop(key, None)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
