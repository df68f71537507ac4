"""The owner's process waits: until something is there, trying again what may be temporary, and never in silence."""

import logging
import threading
import time
from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

from protocol.errors import ConfigError, IntegrityError, MusterError
from protocol.waits import WAITS
from trainer.exits import RanksLostError

T = TypeVar("T")
log = logging.getLogger("muster.trainer")
_FIRST_WORD, _LONGEST_SILENCE = 8.0, 60.0


class WaitLog:
    """Says of one wait what for, since when and why: after some seconds, when the reason has changed, and ever more
    rarely."""

    def __init__(self, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._what, self._clock, self._said = what, clock, ""
        self._since = datetime.now().strftime("%H:%M:%S")
        self._pause, self._last = _FIRST_WORD, clock()

    def look(self, why: str) -> None:
        """It still waits."""
        now = self._clock()
        if now - self._last < (_FIRST_WORD if why != self._said else self._pause):
            return
        log.info("waiting for %s since %s%s", self._what, self._since, f": {why}" if why else "")
        self._pause = min(2 * self._pause, _LONGEST_SILENCE)
        self._said, self._last = why, now


class Waiting:
    """Until `stopping` is set; between two attempts it does what is to be done `meanwhile`."""

    def __init__(self, stopping: threading.Event, poll_seconds: float, meanwhile: Callable[[], None]) -> None:
        self._stopping, self._poll_seconds, self._meanwhile = stopping, poll_seconds, meanwhile

    def until(
        self, what: str, attempt: Callable[[], T | None], pause: float = 0.0, why: Callable[[], str] = str
    ) -> T | None:
        """Repeat `attempt` until it returns something; None if asked to stop first. Failures of chain, bucket, service
        or disk that may be temporary are logged and retried, after at least `pause` seconds. `why`: what holds it up,
        as of the last attempt; log, `status` and dashboard say it."""
        said = WaitLog(what)
        with WAITS.on(what):
            while not self._stopping.is_set():
                try:
                    result = attempt()
                    if result is not None:
                        return result
                except (ConfigError, IntegrityError, RanksLostError):
                    raise
                except MusterError as error:
                    log.warning("%s; trying again", error)
                WAITS.explain(what, why())
                said.look(why())
                self._meanwhile()
                self._stopping.wait(max(pause, self._poll_seconds))
        return None
