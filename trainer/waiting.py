"""The owner's process waits: until something is there, trying again what may be temporary, and never in silence."""

import logging
import threading
import time
from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

from chain.indexer.state import Standing, State, standing_of
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


# When a run stands still because of who joined when: a node works for steps whose seed is later than its join.
#
# Nodes that joined after the newest step wait for the next one. If nobody else makes files, that step never comes: the
# trainer then publishes it without training, with the same weights. So step 0 need not wait for nodes: who wants to
# rehearse before it joins needs weights, and who joins after that gets step 1.


_NOBODY = "no node may work: whoever has a stake joins by `muster node up --pool URL`"


def kept_waiting(state: State, pool: int, carrier: str) -> bool:
    """Whether a node may work for the next step, but for none that is published (`carrier`'s files are never trained
    on)."""
    newest = state.pools[pool].step
    return any(joined > newest for joined in _members(state, pool, carrier))


def makers(state: State, pool: int, carrier: str) -> int:
    """How many nodes may work for the newest published step, now or once a refusal is final."""
    newest = state.pools[pool].step
    return sum(joined <= newest for joined in _members(state, pool, carrier))


def _members(state: State, pool: int, carrier: str) -> list[int]:
    """From which step on each node may work that is a member."""
    may = (Standing.MEMBER, Standing.FROZEN)
    accounts = (account for (of, _), account in state.accounts.items() if of == pool)
    return [one.joined_step for one in accounts if standing_of(one) in may and one.node != carrier]


class Standstill:
    """Told of every look at the chain, says when to go on without files: nodes wait for the next step, no file is on
    its way, and for `patience` seconds nobody could make one or for `silence` seconds nobody did. `why`: what holds the
    run up as of the last look, empty if it is not who joined when."""

    def __init__(self, patience: float, silence: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._patience, self._silence, self._clock = patience, silence, clock
        self._seen: tuple[int, int, bool] | None = None
        self._since, self.why = clock(), ""

    def look(self, state: State, pool: int, carrier: str, coming: int) -> bool:
        """Whether to publish the next step without training. `coming`: files that have no final verdict yet."""
        idle, late = bool(makers(state, pool, carrier)), kept_waiting(state, pool, carrier)
        limit, newest = self._silence if idle else self._patience, state.pools[pool].step
        self.why = "" if idle or coming else _NOBODY
        seen = (newest, len(state.pools[pool].sequences), idle)
        if seen != self._seen or coming or not late:
            self._seen, self._since = seen, self._clock()
        if coming or not late:
            return False
        who = "no file is on its way" if idle else f"nobody may work for step {newest}"
        self.why = (
            f"{who}; nodes that joined after step {newest} get step {newest + 1}, without training, once that has "
            f"lasted {limit:.0f} s"
        )
        return self._clock() - self._since >= limit
