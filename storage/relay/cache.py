"""What a relay holds: objects that verified manifests name, on its disk, each checked against its hash."""

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
from storage.partial import Draft, PartialObject
from storage.sources import SpreadSources

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


# ---- Objects on their way to a relay


PARALLEL = 8
AGAIN_SECONDS = 2.0
"""An object that could not be had is not looked for again before, however many ask."""
SWITCH_SECONDS = 0.05
"""For `sys.setswitchinterval` of a process that does nothing but serve. Its threads compute for less than a millisecond
before they wait for line or disk; whoever wants the interpreter's lock from one that the machine has stopped asks for
it again after every such interval: 5 ms by default, which took a tenth of a crowded relay's CPU."""
_COPIES = 2
"""Sources that may be sending one object at the same time."""


class Flight:
    """One object on its way. `ended`: nothing more comes, at `ended_at` (monotonic seconds). If it came, checked, it is
    at `path`, or where there was no room on the disk, `data`: who reads slowly holds no more memory than that. `winner`
    is the request that it came by."""

    def __init__(self, key: str, size: int) -> None:
        self.key, self.size = key, size
        self.partials: list[PartialObject] = []
        self.winner: PartialObject | None = None
        self.data: bytes | None = None
        self.path: Path | None = None
        self.ended = threading.Event()
        self.ended_at = 0.0
        self._lock = threading.Lock()
        self._waiting: list[Callable[[], object]] = []

    @property
    def came(self) -> bool:
        return self.data is not None or self.path is not None

    def furthest(self) -> PartialObject | None:
        """The request that has the most bytes."""
        return max((one for one in list(self.partials) if not one.abandoned), key=len, default=None)

    def watch(self, partial: PartialObject) -> None:
        """Another request was begun."""
        partial.on_news = self.tell
        self.partials.append(partial)
        self.tell()

    def when_news(self, wake: Callable[[], object]) -> None:
        """Call `wake` once, from any thread, when there are more bytes, or fewer, or it ended."""
        with self._lock:
            self._waiting.append(wake)

    def tell(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for wake in waiting:
            wake()

    def end(self) -> None:
        self.ended_at = time.monotonic()
        self.ended.set()
        self.partials.clear()
        self.tell()


class Flights:
    """Brings objects from `sources` to the shelf, within `memory` bytes. Thread-safe."""

    def __init__(self, sources: SpreadSources, shelf: RelayShelf, memory: int) -> None:
        self._sources, self._shelf, self._memory = sources, shelf, memory
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._used = 0
        self._flying: dict[str, Flight] = {}
        self._not_before: dict[str, float] = {}
        self._pool = ThreadPoolExecutor(PARALLEL, thread_name_prefix="relay")
        self.received = self.failed = 0

    def bring(self, key: str) -> Flight | None:
        """The flight of an object that is not here; None if it is not named, or could not be had a moment ago."""
        size = self._shelf.size(key)
        if size is None:
            return None
        with self._lock:
            if (flight := self._flying.get(key)) is not None:
                return flight
            if time.monotonic() < self._not_before.get(key, 0.0):
                return None
            flight = self._flying[key] = Flight(key, size)
        self._pool.submit(self._fly, flight)
        return flight

    def _fly(self, flight: Flight) -> None:
        try:
            with self._reserved(_COPIES * flight.size):
                flight.path = self._shelf.path(flight.key)  # it may have come since it was asked for
                if flight.path is None:
                    whole = self._sources.bring(flight.key, flight.size, self._shelf.draft, flight.watch)
                    flight.winner = whole
                    if self._shelf.keep(flight.key, whole):
                        flight.path = self._shelf.path(flight.key)
                    if flight.path is None:
                        flight.data = whole.whole()
                    whole.drop()
                    self.received += len(whole)
        except MusterError as error:
            self._fail(flight, error)
        except Exception as error:
            log.exception("fetching %s failed", flight.key)
            self._fail(flight, error)
        finally:
            flight.end()
            with self._lock:
                self._flying.pop(flight.key, None)

    def _fail(self, flight: Flight, error: Exception) -> None:
        log.info("no %s: %s", flight.key, error)
        with self._lock:
            self.failed += 1
            now = time.monotonic()
            self._not_before = {key: at for key, at in self._not_before.items() if at > now}
            self._not_before[flight.key] = now + AGAIN_SECONDS

    @contextmanager
    def _reserved(self, size: int) -> Iterator[None]:
        """One object may always fly, whatever its size."""
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
