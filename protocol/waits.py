"""Bounded waits that say what they wait for: nothing in muster hangs silently."""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypedDict, TypeVar

from protocol.errors import MusterError

T = TypeVar("T")
log = logging.getLogger("muster.wait")
_REMIND_SECONDS = 8.0


class WaitReport(TypedDict):
    what: str
    since: float


@dataclass
class Waits:
    """What this process waits for now: reason → since (Unix seconds). Several threads may wait for the same."""

    current: dict[str, float] = field(default_factory=dict)
    _held_up: dict[str, str] = field(default_factory=dict)
    _waiting: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def on(self, what: str) -> Iterator[None]:
        """Report `what` while the block runs."""
        with self._lock:
            self.current.setdefault(what, time.time())
            self._waiting[what] += 1
        try:
            yield
        finally:
            with self._lock:
                self._waiting[what] -= 1
                if not self._waiting[what]:
                    del self._waiting[what], self.current[what]
                    self._held_up.pop(what, None)

    def explain(self, what: str, why: str) -> None:
        """Report what holds a wait up now, or nothing if `why` is empty."""
        with self._lock:
            if what in self.current:
                self._held_up[what] = f": {why}" if why else ""

    def report(self) -> list[WaitReport]:
        """Return everything that is waited for, by name."""
        with self._lock:
            waits = sorted(self.current.items())
            return [{"what": what + self._held_up.get(what, ""), "since": since} for what, since in waits]


WAITS = Waits()


def wait_for(
    what: str,
    ready: Callable[[], T | None],
    timeout: float,
    poll: float = 0.2,
    hint: str = "",
    stop: Callable[[], bool] = lambda: False,
) -> T:
    """Poll `ready` until it returns something other than None or False; log a wait of more than a second now and then.
    Raises MusterError after `timeout` seconds or as soon as `stop()` is true."""
    start = time.monotonic()
    since = datetime.now().strftime("%H:%M:%S")
    next_log = start + 1.0
    with WAITS.on(what):
        while True:
            value = ready()
            if value is not None and value is not False:
                return value
            now = time.monotonic()
            if stop():
                raise MusterError(f"stopped while waiting for {what}")
            if now - start > timeout:
                raise MusterError(f"waited {timeout:.0f} s for {what} in vain", hint)
            if now >= next_log:
                log.info("waiting for %s since %s", what, since)
                next_log = now + _REMIND_SECONDS
            time.sleep(poll)
