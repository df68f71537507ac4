"""Whether a computation moves: a device that hangs raises nothing, so that nobody but the clock can tell."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_LEAST_SECONDS = 5.0
_TIMES = 20.0
_FIRST_SECONDS = 120.0
"""The first computation of a process compiles, and starts the device: its steps are no measure of the others."""


class StepPace:
    """Steps of a process's computations, such as one more token of every completion. One computation at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: float | None = None
        self._warm = False
        self.longest = 0.0
        """Seconds that a step took at most so far, the first computation's apart; 0 before there was one."""
        self.steps = 0
        """How many ended so far, in all computations."""

    @contextmanager
    def computing(self) -> Iterator[None]:
        """While the block runs, steps are due. Within another such block it says nothing more."""
        with self._lock:
            outermost, now = self._last is None, time.monotonic()
            self._last = self._last or now
        try:
            yield
        finally:
            if outermost:
                with self._lock:
                    self._last, self._warm = None, True

    def step(self) -> None:
        """One step ended: what it computed was looked at, not only asked for."""
        with self._lock:
            if self._last is not None:
                now = time.monotonic()
                self.longest = max(self.longest, now - self._last) if self._warm else 0.0
                self._last = now
                self.steps += 1

    @property
    def limit(self) -> float:
        """Seconds after which a step is taken for one that does not end."""
        return max(_LEAST_SECONDS, _TIMES * self.longest) if self.longest else _FIRST_SECONDS

    def overdue(self) -> float:
        """Seconds since the last step of the computation under way, once that is longer than the limit; else 0."""
        with self._lock:
            waited = 0.0 if self._last is None else time.monotonic() - self._last
        return waited if waited > self.limit else 0.0


PACE = StepPace()
"""This process's."""
