"""All time-outs of a run over several sites, derived from one: an outer one always outlasts what it waits for."""

import time
from collections.abc import Callable
from dataclasses import dataclass, fields

from protocol.sites.run import SitesRun


@dataclass(frozen=True)
class Timeouts:
    """In seconds, each longer than the one before; `of` derives them from the window."""

    request: float
    collective: float
    transfer: float
    window: float
    join: float
    collect: float
    step: float
    standstill: float

    @classmethod
    def of(cls, window_seconds: float, training_seconds: float, windows: int = 1) -> "Timeouts":
        """`window_seconds`: how long the payload of an outer step may take to arrive; `windows`: as many follow one
        another in an outer step. `training_seconds`: how long the slowest site that shall be waited for takes for its
        inner steps. Raises ValueError unless both are positive."""
        if not (window_seconds > 0 and training_seconds > 0):
            raise ValueError("a time-out must be longer than nothing")
        window = float(window_seconds)
        join = 2 * window
        collect = training_seconds + join
        step = collect + windows * window
        return cls(window / 8, window / 4, window / 2, window, join, collect, step, 2 * step)

    @classmethod
    def of_run(cls, run: SitesRun) -> "Timeouts":
        windows = 4 if run.reducing else 1  # payloads, products, means, checks
        return cls.of(run.settings.window_seconds, run.settings.training_seconds, windows)

    def table(self) -> str:
        """For a person, one line each."""
        return "\n".join(
            f"{one.name:11}{getattr(self, one.name):>10.1f} s  {_MEANING[one.name]}" for one in fields(self)
        )


class Patience:
    """How long something is waited for in one attempt at an outer step, from when it was first missing."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds, self._clock = seconds, clock
        self._since: tuple[int, int, float] | None = None

    def lasts(self, step: int, attempt: int) -> bool:
        """Asked each time that it is missing."""
        if self._since is None or self._since[:2] != (step, attempt):
            self._since = step, attempt, self._clock()
        return self._clock() - self._since[2] < self.seconds


_MEANING = {
    "request": "one try of one request to a bucket",
    "collective": "an exchange between the ranks inside a site",
    "transfer": "one shard, with all its tries from all sources",
    "window": "from the call for payloads until those that are missing do not count",
    "join": "a newcomer's fetch and check of weights, momentum and data position",
    "collect": "inner steps, and the signed hashes of what they led to; long enough for a newcomer too",
    "step": "an outer step: collect, and a window for the payloads; where shards are reduced, three more",
    "standstill": "without an outer step: an alarm, and the site stops",
}
