"""Why the trainer waits for files: each second of waiting is put down to what was missing then."""

import time
from collections.abc import Callable
from dataclasses import dataclass

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


class IdleClock:
    """Seconds by cause since `restart`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.restart()

    def restart(self) -> None:
        self._seconds: dict[str, float] = {}
        self._last = self._clock()

    def tick(self, cause: str) -> None:
        """Since the last tick, `cause` was what was missing."""
        now = self._clock()
        self._seconds[cause] = self._seconds.get(cause, 0.0) + now - self._last
        self._last = now

    @property
    def seconds(self) -> dict[str, float]:
        return {cause: round(self._seconds[cause], 3) for cause in CAUSES if cause in self._seconds}
