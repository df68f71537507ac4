"""Bounded waits that say what they wait for: nothing in muster hangs silently."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from operator import itemgetter
from typing import TypedDict, TypeVar

from protocol.errors import MusterError

T = TypeVar("T")
log = logging.getLogger("muster.wait")
_REMIND_SECONDS = 8.0


class WaitReport(TypedDict):
    what: str
    since: float


@dataclass
class _Wait:
    since: float
    threads: int = 0
    held_up: str = ""


class Waits:
    """What this process waits for now. Several threads may wait for the same."""

    def __init__(self) -> None:
        self._current: dict[str, _Wait] = {}
        self._lock = threading.Lock()

    @contextmanager
    def on(self, what: str) -> Iterator[None]:
        """Report `what` while the block runs."""
        with self._lock:
            wait = self._current.setdefault(what, _Wait(time.time()))
            wait.threads += 1
        try:
            yield
        finally:
            with self._lock:
                wait.threads -= 1
                if not wait.threads:
                    del self._current[what]

    def explain(self, what: str, why: str) -> None:
        """Report what holds a wait up now, or nothing if `why` is empty."""
        with self._lock:
            if what in self._current:
                self._current[what].held_up = f": {why}" if why else ""

    def report(self) -> list[WaitReport]:
        """Return everything that is waited for, by name."""
        with self._lock:
            waits = sorted(self._current.items(), key=itemgetter(0))
            return [{"what": what + wait.held_up, "since": wait.since} for what, wait in waits]


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
