"""What a relay holds on its disk, and what it is fetching: objects that verified manifests name, each fetched once
however many clients ask, checked against its hash, and readable while it arrives."""

import hashlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from protocol.errors import IntegrityError, MusterError
from protocol.files import explained
from storage.keys import check_content, check_sha256, parse_key
from storage.partial import PartFile, PartialDownload
from storage.sources import MultiSource

log = logging.getLogger("muster.relay")
KINDS = ("manifests", "shards")
_PIECE = 256 << 10


class RelayCache:
    """Objects under `folder`, of at most `room` bytes. Only named keys are ever looked up, so that a stranger's key
    cannot lead elsewhere. Thread-safe."""

    def __init__(self, folder: Path, room: int) -> None:
        self.folder, self._room = folder, room
        self._lock = threading.Lock()
        self._named: dict[str, int] = {}
        self._here: dict[str, int] = {}
        for kind in KINDS:
            with explained(f"make the relay's folder {folder / kind}", "choose another"):
                (folder / kind).mkdir(parents=True, exist_ok=True)

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
        self._sweep(named)
        return [key for key in named if not self.has(key)]

    def _sweep(self, named: dict[str, int]) -> None:
        for kind in KINDS:
            for path in (self.folder / kind).iterdir():
                if f"{kind}/{path.name}" not in named and not path.name.startswith("."):
                    path.unlink(missing_ok=True)

    def size(self, key: str) -> int | None:
        """Return the size of an object that may be served, None for any other key."""
        return self._named.get(key)

    def has(self, key: str) -> bool:
        """Return whether the object is here. One that an earlier process left is checked now, and deleted if it is
        wrong."""
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
        """The file's size. A shard is read a piece at a time, and not at all if its size is not `named`. Raises
        OSError, IntegrityError."""
        with (self.folder / key).open("rb") as file:
            if parse_key(key).is_sha256:
                if (size := os.fstat(file.fileno()).st_size) != named:
                    raise IntegrityError(f"{key} has {size} bytes, not {named}")
                check_sha256(key, hashlib.file_digest(file, "sha256").digest())
            else:
                check_content(key, file.read())
            return file.tell()

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
        the disk has damaged is deleted, so that it is fetched anew."""
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
        """Make a part file for an object that is passed to `keep` later."""
        return PartFile(self.folder / "shards")

    def put(self, key: str, data: bytes) -> bool:
        """Keep a checked object; return False if it is no longer named, or the disk is full."""
        part = self.part_file()
        part.append(data)
        return self._keep(key, part.keep, len(data))

    def keep(self, key: str, whole: PartialDownload) -> bool:
        """Keep a checked object that was fetched into a `part_file`; see `put`."""
        return self._keep(key, whole.keep, len(whole))

    def _keep(self, key: str, keep: Callable[[Path], None], size: int) -> bool:
        with self._lock:  # `has` must not delete a file that arrives now
            if key not in self._named:
                return False
            try:
                keep(self.folder / key)
            except OSError as error:
                log.warning("cannot keep %s: %s", key, error.strerror)
                return False
            self._here[key] = size
        return True

    def clear_part_files(self) -> None:
        """Delete what a dead process left half-written."""
        for kind in KINDS:
            for path in (self.folder / kind).glob(".*"):
                path.unlink(missing_ok=True)

    def remove(self) -> None:
        """Delete everything."""
        self.name(())
        self.clear_part_files()

    def held(self) -> tuple[int, int]:
        """Return the numbers of objects and bytes."""
        with self._lock:
            return len(self._here), sum(self._here.values())


# ---- Objects on their way to a relay


PARALLEL = 8
AGAIN_SECONDS = 2.0
"""Seconds before a failed fetch of an object is repeated, however many clients ask."""
SWITCH_SECONDS = 0.05
"""For `sys.setswitchinterval` of a process that only serves: its threads compute for less than a millisecond before
they wait for network or disk. At the default of 5 ms, threads that ask for the interpreter's lock took a tenth of the
CPU of a busy relay."""
_COPIES = 2
"""Sources that may be sending one object at the same time."""


class InFlightFetch:
    """One object that is being fetched. `ended` is set when nothing more comes, at `ended_at` (monotonic seconds). The
    checked object is then at `path`, or in `data` if the disk had no room. `winner` is the request that brought it."""

    def __init__(self, key: str, size: int) -> None:
        self.key, self.size = key, size
        self.partials: list[PartialDownload] = []
        self.winner: PartialDownload | None = None
        self.data: bytes | None = None
        self.path: Path | None = None
        self.ended = threading.Event()
        self.ended_at = 0.0
        self._lock = threading.Lock()
        self._waiting: list[Callable[[], object]] = []

    @property
    def complete(self) -> bool:
        return self.data is not None or self.path is not None

    def furthest(self) -> PartialDownload | None:
        """Return the request that has the most bytes."""
        return max((one for one in list(self.partials) if not one.abandoned), key=len, default=None)

    def watch(self, partial: PartialDownload) -> None:
        """Add a request."""
        partial.on_change = self.notify
        self.partials.append(partial)
        self.notify()

    def on_next_change(self, wake: Callable[[], object]) -> None:
        """Call `wake` once, from any thread, when there are more bytes, or fewer, or it ended."""
        with self._lock:
            self._waiting.append(wake)

    def notify(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for wake in waiting:
            wake()

    def end(self) -> None:
        self.ended_at = time.monotonic()
        self.ended.set()
        self.partials.clear()
        self.notify()


class InFlightFetches:
    """Fetches objects from `sources` into the cache, within `memory` bytes. Thread-safe."""

    def __init__(self, sources: MultiSource, cache: RelayCache, memory: int) -> None:
        self._sources, self._cache, self._memory = sources, cache, memory
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._used = 0
        self._in_flight: dict[str, InFlightFetch] = {}
        self._not_before: dict[str, float] = {}
        self._pool = ThreadPoolExecutor(PARALLEL, thread_name_prefix="relay")
        self.received = self.failed = 0

    def start(self, key: str) -> InFlightFetch | None:
        """Return the fetch of an object that is not here; None if it is not named, or failed a moment ago."""
        size = self._cache.size(key)
        if size is None:
            return None
        with self._lock:
            if (fetch := self._in_flight.get(key)) is not None:
                return fetch
            if time.monotonic() < self._not_before.get(key, 0.0):
                return None
            fetch = self._in_flight[key] = InFlightFetch(key, size)
        self._pool.submit(self._run, fetch)
        return fetch

    def _run(self, fetch: InFlightFetch) -> None:
        try:
            with self._reserved(_COPIES * fetch.size):
                fetch.path = self._cache.path(fetch.key)  # it may have arrived since it was requested
                if fetch.path is None:
                    whole = self._sources.fetch(fetch.key, fetch.size, self._cache.part_file, fetch.watch)
                    fetch.winner = whole
                    if self._cache.keep(fetch.key, whole):
                        fetch.path = self._cache.path(fetch.key)
                    if fetch.path is None:
                        fetch.data = whole.whole()
                    whole.drop()
                    self.received += len(whole)
        except MusterError as error:
            self._fail(fetch, error)
        except Exception as error:
            log.exception("fetching %s failed", fetch.key)
            self._fail(fetch, error)
        finally:
            fetch.end()
            with self._lock:
                self._in_flight.pop(fetch.key, None)

    def _fail(self, fetch: InFlightFetch, error: Exception) -> None:
        log.info("no %s: %s", fetch.key, error)
        with self._lock:
            self.failed += 1
            now = time.monotonic()
            self._not_before = {key: at for key, at in self._not_before.items() if at > now}
            self._not_before[fetch.key] = now + AGAIN_SECONDS

    @contextmanager
    def _reserved(self, size: int) -> Iterator[None]:
        """Reserve memory; a single object is always admitted, whatever its size."""
        with self._room:
            self._room.wait_for(lambda: not self._used or self._used + size <= self._memory)
            self._used += size
        try:
            yield
        finally:
            with self._room:
                self._used -= size
                self._room.notify_all()

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
