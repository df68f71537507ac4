"""How the owner's process waits: it retries what may be temporary, says what it waits for, and knows when to give up.

A node works only for steps whose seed is later than its join. If only nodes that joined after the newest step are left,
`StallTimeout` says when to publish the next one without training."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from chain.indexer.state import Standing, State, standing_of
from protocol.errors import ConfigError, IntegrityError, MusterError
from protocol.waits import WAITS
from trainer.exits import RanksLostError

T = TypeVar("T")
log = logging.getLogger("muster.trainer")
_FIRST_LINE_SECONDS, _LONGEST_SILENCE = 8.0, 60.0
_NOBODY = "no node may work: an operator with a stake joins by `muster node up --pool URL`"


class Waiting:
    """Waits until `stopping` is set. Between two attempts it calls `meanwhile`."""

    def __init__(
        self,
        stopping: threading.Event,
        poll_seconds: float,
        meanwhile: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stopping, self._poll_seconds, self._meanwhile, self._clock = stopping, poll_seconds, meanwhile, clock

    def until(
        self, what: str, attempt: Callable[[], T | None], pause: float = 0.0, why: Callable[[], str] = str
    ) -> T | None:
        """Repeat `attempt` until it returns a value; return None if asked to stop first. Failures that may be temporary
        are logged and retried, after at least `pause` seconds. `why` tells what the last attempt lacked, for `status`,
        the dashboard and the log: after some seconds, when the reason changes, and then ever more rarely."""
        since, last = datetime.now().strftime("%H:%M:%S"), self._clock()
        logged_reason, silence = "", _FIRST_LINE_SECONDS
        with WAITS.on(what):
            while not self._stopping.is_set():
                failure = ""
                try:
                    result = attempt()
                    if result is not None:
                        return result
                except (ConfigError, IntegrityError, RanksLostError):
                    raise
                except MusterError as error:
                    log.warning("%s; trying again", error)
                    failure = error.what
                WAITS.explain(what, reason := failure or why())
                now = self._clock()
                if now - last >= (_FIRST_LINE_SECONDS if reason != logged_reason else silence):
                    log.info("waiting for %s since %s%s", what, since, f": {reason}" if reason else "")
                    logged_reason, last, silence = reason, now, min(2 * silence, _LONGEST_SILENCE)
                self._meanwhile()
                self._stopping.wait(max(pause, self._poll_seconds))
        return None


@dataclass(frozen=True)
class AwaitedFiles:
    """Files for the next step: `wanted` of them; `ready` to train on, `fetching` from the bucket, `confirming`
    (accepted, not yet deep or disputed), `judging` (no verdict yet). `any_submitted`: whether the pool ever got one."""

    wanted: int
    ready: int
    fetching: int
    confirming: int
    judging: int
    any_submitted: bool = True

    @property
    def cause(self) -> str:
        """The last stage that enough files for the step still have to pass."""
        known = self.ready
        for stage in ("fetching", "confirming", "judging"):
            known += getattr(self, stage)
            if known >= self.wanted:
                return stage
        return "generating" if self.any_submitted else "starting"

    @property
    def summary(self) -> str:
        """How many files are at which stage."""
        stages = ("ready", "to be fetched", "accepted but not final", "not judged")
        counts = (self.ready, self.fetching, self.confirming, self.judging)
        parts = [f"{count} {stage}" for count, stage in zip(counts, stages, strict=True) if count]
        return ", ".join(parts) or "no file is submitted"


class IdleClock:
    """Where the trainer's time goes between two records: seconds of waiting by cause, and their share."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._cause = clock, "fetching"
        self._since = self._last = clock()
        self._seconds: dict[str, float] = {}

    def begin(self) -> None:
        """Start a wait."""
        self._last, self._cause = self._clock(), "fetching"

    def tick(self, cause: str = "") -> None:
        """Count the time since the last tick, during which `cause` was missing: the same as before if empty."""
        now, self._cause = self._clock(), cause or self._cause
        self._seconds[self._cause] = self._seconds.get(self._cause, 0.0) + now - self._last
        self._last = now

    def record(self) -> dict[str, Any]:
        """Return the seconds waited by cause and their share of the time since the last record, and begin again."""
        now = self._clock()
        elapsed, seconds = now - self._since, self._seconds
        self._since, self._seconds = now, {}
        return {
            "idle": {cause: round(spent, 3) for cause, spent in seconds.items()},
            "idle_share": round(sum(seconds.values()) / elapsed, 4) if elapsed > 0 else 0.0,
        }


def count_nodes(state: State, pool: int, decoy: str = "") -> tuple[int, int]:
    """Return how many nodes may work for the newest published step, now or once a refusal is final, and how many only
    for the next. The `decoy` does not count: its files are never trained on."""
    members = (Standing.MEMBER, Standing.FROZEN)
    accounts = [account for (of, _), account in state.accounts.items() if of == pool and account.node != decoy]
    joined = [account.joined_step for account in accounts if standing_of(account) in members]
    able = sum(step <= state.pools[pool].step for step in joined)
    return able, len(joined) - able


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
        able, waiting = count_nodes(state, pool, decoy)
        limit, newest = self._silence if able else self._patience, state.pools[pool].step
        self.why = "" if able or undecided else _NOBODY
        situation = (newest, len(state.pools[pool].sequences), bool(able))
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
