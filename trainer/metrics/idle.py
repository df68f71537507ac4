"""Why the trainer waits for files: each second of waiting is put down to what was missing then."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

CAUSES = ("starting", "generating", "judging", "confirming", "fetching")
"""No file was ever submitted · too few files are submitted · too few verdicts · too few blocks on top of a verdict, or
a dispute · the bucket."""


@dataclass(frozen=True)
class Awaited:
    """Files for the next step: `wanted` of them; `ready` to train on, `fetching` from the bucket, `confirming`
    (accepted, not yet deep or disputed), `judging` (no verdict yet). `ever`: whether the pool ever got a file."""

    wanted: int
    ready: int
    fetching: int
    confirming: int
    judging: int
    ever: bool = True

    @property
    def cause(self) -> str:
        """The last thing in a file's life that has to happen to enough files: what holds the step up."""
        known = self.ready
        for cause, count in (
            ("fetching", self.fetching),
            ("confirming", self.confirming),
            ("judging", self.judging),
        ):
            known += count
            if known >= self.wanted:
                return cause
        return "generating" if self.ever else "starting"

    @property
    def words(self) -> str:
        """How many files are how far."""
        counts = {"there": self.ready, "to be fetched": self.fetching, "accepted but not final": self.confirming}
        known = [f"{count} {what}" for what, count in (counts | {"not judged": self.judging}).items() if count]
        return ", ".join(known) or "none is handed in"


class IdleClock:
    """Where the trainer's time goes between two records: seconds of waiting by cause, and their share."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since = self._last = clock()
        self._cause = ""
        self._seconds: dict[str, float] = {}

    def begin(self) -> None:
        """From here on the trainer waits."""
        self._last, self._cause = self._clock(), ""

    def tick(self, cause: str) -> None:
        """It still waits; since the last tick, `cause` was what was missing."""
        now = self._clock()
        self._seconds[cause] = self._seconds.get(cause, 0.0) + now - self._last
        self._last, self._cause = now, cause

    def end(self) -> None:
        """The files are there."""
        self.tick(self._cause or "fetching")

    def record(self) -> dict[str, Any]:
        """For the record of a step: seconds waited by cause, and their share of the time since the record before."""
        now = self._clock()
        elapsed, seconds = now - self._since, self._seconds
        self._since, self._seconds = now, {}
        return {
            "idle": {cause: round(seconds[cause], 3) for cause in CAUSES if cause in seconds},
            "idle_share": round(sum(seconds.values()) / elapsed, 4) if elapsed > 0 else 0.0,
        }
