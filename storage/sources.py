"""Fetch objects from several untrusted sources at once.

A source gives the bytes of a key, checked against the hash in it: the pool's service, a mirror, a relay. The one that
should finish first is asked first, a slow one is hedged with another, and a hostile one costs little. `TransferStats`
and `SourceSelection` are pure; `MultiSource` runs them with threads.
"""

import hashlib
import logging
import math
import queue
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from protocol.errors import MusterError, UnreachableError
from storage.keys import MissingObjectError
from storage.partial import AbandonedError, PartFile, PartialDownload

log = logging.getLogger("muster.weights")
# A request that takes this many times its expected duration is hedged with another source.
HEDGE_FACTOR = 6.0
MIN_HEDGE_SECONDS = 1.0
# Seconds without a single byte before another source is asked too.
SILENCE_SECONDS = 3.0
# A source to be avoided counts as this many times slower than it is.
AVOIDED_COST = 16
# Requests at once, including those that nobody waits for any more.
MAX_REQUESTS = 64
# An object other than a shard is rarely larger than this, whatever its limit.
_OBJECT_BYTES = 1 << 20
_DEFAULT_RATE, _SMOOTHING, _MAX_FAILURES = 1e6, 0.3, 10
# Shorter transfers measure latency, not bandwidth.
_MEASURABLE_BYTES, _MEASURABLE_SECONDS = 64 << 10, 1.0
Source = Callable[[str, int, PartialDownload], None]
"""(key, limit in bytes, partial download): appends what it receives and returns once that is the object, checked.
Raises MusterError, in bounded time, if it has no such bytes."""


# Which source is asked


@dataclass(slots=True)
class TransferStats:
    """How a source has done: `rate` in bytes per second, smoothed, 0 while unknown; failures and missing objects in a
    row; `busy` requests in flight."""

    rate: float = 0.0
    failures: int = 0
    misses: int = 0
    busy: int = 0

    @property
    def _penalty(self) -> float:
        return 4.0 ** min(self.failures, _MAX_FAILURES) * 2.0 ** min(self.misses, _MAX_FAILURES)

    def seconds(self, size: int) -> float:
        """Return seconds until it would have sent `size` more bytes, if it works."""
        return (self.busy + 1) * max(size, 0) / (self.rate or _DEFAULT_RATE)

    def expected(self, size: int) -> float:
        """`seconds`, multiplied for recent failures. An unknown source costs nothing, so that it is tried once."""
        return self.seconds(size) * self._penalty if self.rate or self.busy or self._penalty > 1.0 else 0.0

    def succeeded(self, size: int, seconds: float) -> None:
        if size >= _MEASURABLE_BYTES or seconds >= _MEASURABLE_SECONDS:
            measured = size / max(seconds, 1e-6)
            self.rate = (1 - _SMOOTHING) * self.rate + _SMOOTHING * measured if self.rate else measured
        self.failures = self.misses = 0

    def failed(self) -> None:
        self.failures += 1


class SourceSelection:
    """The stats of every source, and which one to ask next. Those in `avoided` are asked where the others are much
    slower, or fail. Not thread-safe."""

    def __init__(self, names: Iterable[str], avoided: Collection[str] = ()) -> None:
        self.stats, self._avoided = dict[str, TransferStats](), frozenset[str]()
        self.change(names, avoided)

    def change(self, names: Iterable[str], avoided: Collection[str] = ()) -> None:
        """Replace the sources; those that stay keep their stats."""
        self.stats = {name: self.stats.get(name) or TransferStats() for name in names}
        self._avoided = frozenset(avoided)

    def begin(self, candidates: Iterable[str], expected_bytes: int) -> tuple[str, float]:
        """Choose the candidate that should finish an object of about `expected_bytes` first; of equal ones the first.
        Return it, and after how many seconds the request is to be hedged."""
        best, least = list[str](), math.inf
        for name in candidates:
            stats = self.stats_of(name)
            cost = stats.expected(expected_bytes)
            if name in self._avoided:
                cost = AVOIDED_COST * max(cost, stats.seconds(expected_bytes))
            if cost < least or not best:
                best, least = [name], cost
                if not cost:
                    break
        stats = self.stats_of(best[0])
        hedge_after = max(MIN_HEDGE_SECONDS, HEDGE_FACTOR * stats.seconds(expected_bytes))
        stats.busy += 1
        return best[0], hedge_after

    def stats_of(self, name: str) -> TransferStats:
        """Return the stats of a source, new ones for a source that has left the list."""
        return self.stats.setdefault(name, TransferStats())

    def ended(self, stats: TransferStats, failure: Exception | None, size: int, seconds: float) -> None:
        """Record the end of a request, in which the source sent `size` bytes, with the object or a `failure`."""
        stats.busy -= 1
        if failure is None:
            stats.succeeded(size, seconds)
        elif isinstance(failure, AbandonedError | OSError):  # no fault of the source
            if size:
                stats.succeeded(size, seconds)
        elif isinstance(failure, MissingObjectError):
            stats.misses += 1  # which may be nobody's fault
        else:
            stats.failed()


def is_late(taken: float, still: float, sent: int, need: int, hedge_after: float) -> bool:
    """Return whether to ask another source: this one sent `sent` of `need` bytes, and nothing for `still` seconds."""
    if not sent:
        return taken >= min(SILENCE_SECONDS, hedge_after)
    return still >= SILENCE_SECONDS or taken * need / sent > hedge_after


def comes_before(key: str, name: str, own: str) -> bool:
    """Return whether a process that serves as `own` may ask `name` for an object. Every object orders the relays in its
    own way, so no two ever wait for each other, and every relay is near the origin for some objects."""
    rank, ours = (hashlib.sha256(f"{key} {source}".encode()).digest() for source in (name, own))
    return rank < ours


# Asking them


@dataclass
class _Call:
    """An object that a caller waits for. `left`: sources not asked yet; `partials`: of each request, newest last."""

    key: str
    limit: int
    part_files: Callable[[], PartFile]
    check: Callable[[bytes], object] | None
    left: dict[str, Source]
    partials: list[PartialDownload] = field(default_factory=list)
    answers: "queue.SimpleQueue[PartialDownload | MusterError | OSError]" = field(default_factory=queue.SimpleQueue)

    @property
    def expected_bytes(self) -> int:
        return self.limit if self.key.startswith("shards/") else min(self.limit, _OBJECT_BYTES)


class MultiSource:
    """Fetches objects from `sources`, by name; call it like a source. Thread-safe; requests that are in flight at the
    same time spread over the sources by their rates."""

    def __init__(self, sources: Mapping[str, Source]) -> None:
        if not sources:
            raise ValueError("at least one source is needed")
        self._sources = dict(sources)
        self._selection = SourceSelection(sources)
        self._relays, self._own = frozenset[str](), ""
        self._lock = threading.Lock()
        self._requests = threading.BoundedSemaphore(MAX_REQUESTS)

    def change(
        self, sources: Mapping[str, Source], avoided: Collection[str] = (), relays: Collection[str] = (), own: str = ""
    ) -> None:
        """Ask these sources from now on, those in `avoided` only where the others are no good. Those in `relays` may in
        turn ask this process, which serves as `own`. Sources that stay keep their stats; requests in flight go on."""
        with self._lock:
            self._sources, self._relays, self._own = dict(sources), frozenset(relays), own
            self._selection.change(sources, avoided)

    @property
    def stats(self) -> dict[str, TransferStats]:
        """Stats by source."""
        return self._selection.stats

    def __call__(self, key: str, limit: int, check: Callable[[bytes], object] | None = None) -> bytes:
        """Return the object's bytes from whichever source has them first; see `fetch`."""
        return self.fetch(key, limit, PartFile, check=check).whole()

    def fetch(
        self, key: str, limit: int, part_files: Callable[[], PartFile], check: Callable[[bytes], object] | None = None
    ) -> PartialDownload:
        """Fetch an object into one of the `part_files`, for the caller to keep or drop.

        Bytes for which `check` raises a MusterError count as none. If no source has the object, raises the most
        informative failure: MissingObjectError or IntegrityError if any source answered, UnreachableError if none did.
        Raises OSError for a part file that takes no more.
        """
        with self._lock:
            call = _Call(key, limit, part_files, check, self._upstream(key) or dict(self._sources))
        waiting, failures = 0, list[MusterError]()
        answer: PartialDownload | MusterError | OSError | None = None
        try:
            while call.left or waiting:
                hedge_after = None
                if call.left:
                    hedge_after = self._begin(call)
                    waiting += 1
                answer = self._wait(call, hedge_after)
                if isinstance(answer, PartialDownload):
                    return answer
                if isinstance(answer, OSError):
                    raise answer
                if answer is None:
                    with self._lock:  # it counts as failing until it sends something after all
                        self._selection.stats_of(call.partials[-1].source).failed()
                else:
                    waiting -= 1
                    failures.append(answer)
            raise min(failures, key=lambda error: isinstance(error, UnreachableError))
        finally:
            for partial in call.partials:
                partial.abandon()
                if partial is not answer:
                    partial.drop()

    def _upstream(self, key: str) -> dict[str, Source]:
        return {
            name: source
            for name, source in self._sources.items()
            if not self._own or name not in self._relays or comes_before(key, name, self._own)
        }

    def _begin(self, call: _Call) -> float:
        """Start a request to the best source left; return after how many seconds to hedge it."""
        with self._lock:
            partial = PartialDownload(part_files=call.part_files)
            name, hedge_after = self._selection.begin(call.left, call.expected_bytes)
            stats, source = self._selection.stats_of(name), call.left.pop(name)
            partial.source = name
            partial.has_alternatives = bool(call.left)
        call.partials.append(partial)
        threading.Thread(target=self._request, args=(call, source, partial, stats), daemon=True).start()
        return hedge_after

    def _wait(self, call: _Call, hedge_after: float | None) -> PartialDownload | MusterError | OSError | None:
        """Return the next answer; None when it is time to ask another source, unless `hedge_after` is None."""
        began, partial = time.monotonic(), call.partials[-1]
        sent, moved = 0, began
        while True:
            try:
                return call.answers.get(timeout=None if hedge_after is None else MIN_HEDGE_SECONDS)
            except queue.Empty:
                assert hedge_after is not None
                now = time.monotonic()
                if partial.received > sent:
                    sent, moved = partial.received, now
                if is_late(now - began, now - moved, sent, call.expected_bytes, hedge_after):
                    return None

    def _request(self, call: _Call, source: Source, partial: PartialDownload, stats: TransferStats) -> None:
        failure: MusterError | OSError | None = None
        answer: PartialDownload | MusterError | OSError = MusterError(f"the request to {partial.source} broke off")
        try:
            with self._requests:
                started = time.monotonic()
                try:
                    source(call.key, call.limit, partial)
                    if call.check is not None:
                        call.check(partial.whole())
                except (MusterError, OSError) as error:
                    failure = error
                except BaseException as error:
                    log.exception("source %s failed", partial.source)
                    failure = MusterError(f"source {partial.source} failed: {error}")
                taken = time.monotonic() - started
            with self._lock:
                self._selection.ended(stats, failure, partial.received, taken)
            if failure is not None and not isinstance(failure, MissingObjectError | AbandonedError):
                log.info("source %s: %s", partial.source, failure)
            answer = failure or partial
        finally:
            call.answers.put(answer)  # however this thread ends: the caller waits for it
