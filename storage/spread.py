"""Objects from several sources at once: the fastest is asked first, the slowest is hedged, and a bad one costs little.

A source is anything that gives the bytes of a key, checked against the hash in it: the pool's service with the bucket
behind it, a mirror, a relay. None is trusted, and none is needed as long as another has the bytes.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from protocol.errors import MusterError, UnreachableError
from storage.keys import MissingObjectError

log = logging.getLogger("muster.weights")
Source = Callable[[str, int], bytes]
"""(key, limit in bytes) → the object's bytes, checked; MusterError, in bounded time, if it has no such bytes."""
UNDER_WAY = 32
"""Requests at once, those included that nobody waits for any more."""
PATIENCE = 3.0
"""So many times as long as expected may a request take before another source is asked too."""
LEAST_PATIENCE = 1.0
_GUESS, _SMOOTH, _WORST = 1e6, 0.3, 10


@dataclass
class SourcePace:
    """How a source has done so far: bytes a second, smoothed, 0 while unknown; failures in a row; requests under way.
    Seconds are the caller's."""

    rate: float = 0.0
    failures: int = 0
    busy: int = 0

    def expected(self, size: int) -> float:
        """Seconds until it would have sent `size` bytes more. An unknown source is tried once, then it has to show."""
        if not self.rate and not self.busy and not self.failures:
            return 0.0
        return (self.busy + 1) * size / (self.rate or _GUESS) * 4.0 ** min(self.failures, _WORST)

    def succeeded(self, size: int, seconds: float) -> None:
        now = size / max(seconds, 1e-6)
        self.rate, self.failures = (1 - _SMOOTH) * self.rate + _SMOOTH * now if self.rate else now, 0

    def failed(self) -> None:
        self.failures += 1


class SpreadSources:
    """Calls like a source, and asks `sources`, by name. Thread-safe; requests that are in flight together spread over
    the sources by their pace."""

    def __init__(self, sources: Mapping[str, Source], clock: Callable[[], float] = time.monotonic) -> None:
        if not sources:
            raise ValueError("at least one source is needed")
        self._sources, self._clock = dict(sources), clock
        self.paces = {name: SourcePace() for name in sources}
        self._lock = threading.Lock()
        self._room = threading.BoundedSemaphore(UNDER_WAY)

    def __call__(self, key: str, limit: int) -> bytes:
        """The object's bytes from whichever source has them first. If none does, raises what the most informative
        failure was: MissingObjectError or IntegrityError if any source answered, UnreachableError if none did."""
        if len(self._sources) == 1:
            return next(iter(self._sources.values()))(key, limit)
        answers: queue.SimpleQueue[bytes | MusterError] = queue.SimpleQueue()
        left, waiting, failures = set(self._sources), 0, list[MusterError]()
        patience = 0.0
        while left or waiting:
            if left and (not waiting or patience == 0.0):
                name, expected = self._begin(left, limit)
                left.discard(name)
                threading.Thread(target=self._ask, args=(name, key, limit, answers), daemon=True).start()
                waiting, patience = waiting + 1, max(LEAST_PATIENCE, PATIENCE * expected)
            try:
                answer = answers.get(timeout=patience if left else None)
            except queue.Empty:
                self.paces[name].failed()  # until it has answered after all
                patience = 0.0
                continue
            waiting -= 1
            if isinstance(answer, bytes):
                return answer
            failures.append(answer)
            patience = 0.0
        raise min(failures, key=lambda error: isinstance(error, UnreachableError))

    def _begin(self, names: set[str], size: int) -> tuple[str, float]:
        """Choose who is asked next, and count it as under way."""
        with self._lock:
            name = min(sorted(names), key=lambda one: self.paces[one].expected(size))
            expected = self.paces[name].expected(size)
            self.paces[name].busy += 1
        return name, expected

    def _ask(self, name: str, key: str, limit: int, answers: "queue.SimpleQueue[bytes | MusterError]") -> None:
        answer: bytes | MusterError
        pace = self.paces[name]
        with self._room:
            started = self._clock()
            try:
                answer = self._sources[name](key, limit)
            except MusterError as error:
                answer = error
            except Exception as error:  # a thread's end must be heard of
                log.exception("source %s failed", name)
                answer = MusterError(f"source {name} failed: {error}")
            taken = self._clock() - started
        with self._lock:
            pace.busy -= 1
            if isinstance(answer, bytes):
                pace.succeeded(len(answer), taken)
            elif not isinstance(answer, MissingObjectError):
                pace.failed()
        if isinstance(answer, MusterError) and not isinstance(answer, MissingObjectError):
            log.info("source %s: %s", name, answer)
        answers.put(answer)
