"""Objects on their way to a relay: each is fetched once, however many ask, and can be read while it comes."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from protocol.errors import MusterError
from storage.partial import PartialObject
from storage.relay.shelf import RelayShelf
from storage.spread import SpreadSources

log = logging.getLogger("muster.relay")
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
