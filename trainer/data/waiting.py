"""How the owner's process waits: it retries what may be temporary, says what it waits for, and knows when to give up.

A node works only for steps whose seed is later than its join. Nodes that joined after the newest step wait for the next
one, and if nobody else makes files that step never comes. `StallTimeout` says when to publish it without training, with
unchanged weights. So step 0 need not wait for nodes: a dry run needs weights, and whoever joins after it gets step 1.
"""

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
_FIRST_LINE_SECONDS, _LONGEST_SILENCE = 8.0, 60.0
_NOBODY = "no node may work: whoever has a stake joins by `muster node up --pool URL`"


class WaitLog:
    """Logs one wait: after some seconds, when the reason changes, and then ever more rarely."""

    def __init__(self, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._what, self._clock, self._logged_reason = what, clock, ""
        self._since = datetime.now().strftime("%H:%M:%S")
        self._pause, self._last = _FIRST_LINE_SECONDS, clock()

    def update(self, reason: str) -> None:
        """Log that the wait goes on, if a line is due."""
        now = self._clock()
        if now - self._last < (_FIRST_LINE_SECONDS if reason != self._logged_reason else self._pause):
            return
        log.info("waiting for %s since %s%s", self._what, self._since, f": {reason}" if reason else "")
        self._pause = min(2 * self._pause, _LONGEST_SILENCE)
        self._logged_reason, self._last = reason, now


class Waiting:
    """Waits until `stopping` is set. Between two attempts it calls `meanwhile`."""

    def __init__(self, stopping: threading.Event, poll_seconds: float, meanwhile: Callable[[], None]) -> None:
        self._stopping, self._poll_seconds, self._meanwhile = stopping, poll_seconds, meanwhile

    def until(
        self, what: str, attempt: Callable[[], T | None], pause: float = 0.0, why: Callable[[], str] = str
    ) -> T | None:
        """Repeat `attempt` until it returns a value; return None if asked to stop first. Failures of chain, bucket,
        service or disk that may be temporary are logged and retried, after at least `pause` seconds. `why` tells what
        the last attempt lacked, for the log, `status` and the dashboard."""
        wait_log = WaitLog(what)
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
                wait_log.update(why())
                self._meanwhile()
                self._stopping.wait(max(pause, self._poll_seconds))
        return None


def nodes_waiting(state: State, pool: int, decoy: str) -> bool:
    """Return whether a node may work for the next step but for none that is published. `decoy` does not count: its
    files are never trained on."""
    newest = state.pools[pool].step
    return any(joined > newest for joined in _joined_steps(state, pool, decoy))


def eligible_nodes(state: State, pool: int, decoy: str) -> int:
    """Return how many nodes may work for the newest published step, now or once a refusal is final."""
    newest = state.pools[pool].step
    return sum(joined <= newest for joined in _joined_steps(state, pool, decoy))


def _joined_steps(state: State, pool: int, decoy: str) -> list[int]:
    """From which step on each member may work."""
    members = (Standing.MEMBER, Standing.FROZEN)
    accounts = (account for (of, _), account in state.accounts.items() if of == pool)
    return [account.joined_step for account in accounts if standing_of(account) in members and account.node != decoy]


class StallTimeout:
    """Decides when to publish a step without training: nodes wait for the next step, no file is on its way, and for
    `patience` seconds nobody could make one or for `silence` seconds nobody did. `why`: what held the run up at the
    last check, empty if it is not who joined when."""

    def __init__(self, patience: float, silence: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._patience, self._silence, self._clock = patience, silence, clock
        self._situation: tuple[int, int, bool] | None = None
        self._since, self.why = clock(), ""

    def check(self, state: State, pool: int, decoy: str, undecided: int) -> bool:
        """Return whether to publish the next step without training. `undecided`: files without a final verdict."""
        able, waiting = bool(eligible_nodes(state, pool, decoy)), nodes_waiting(state, pool, decoy)
        limit, newest = self._silence if able else self._patience, state.pools[pool].step
        self.why = "" if able or undecided else _NOBODY
        situation = (newest, len(state.pools[pool].sequences), able)
        if situation != self._situation or undecided or not waiting:
            self._situation, self._since = situation, self._clock()
        if undecided or not waiting:
            return False
        cause = "no file is on its way" if able else f"nobody may work for step {newest}"
        self.why = (
            f"{cause}; nodes that joined after step {newest} get step {newest + 1}, without training, once that has "
            f"lasted {limit:.0f} s"
        )
        return self._clock() - self._since >= limit
