"""When a phase is worth looking at: by how long it took before, so that nobody asks the bucket for what cannot be there
yet."""

import time
from collections import deque
from collections.abc import Callable

from trainer.sites.events import OuterPhase
from trainer.sites.schedule import Schedule

SHARE, LONG, _KEPT, _MOST = 0.75, 30.0, 3, 2.0


class Rhythm:
    """Of one process. Whoever waits for a phase to end looks once three quarters of the time have passed that it took
    at least, of the last three times; before, every two seconds, for it may end in another way. Of phases shorter than
    half a minute that would spare little, and cost time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._took: dict[OuterPhase, deque[float]] = {}
        self._place: tuple[int, int, OuterPhase] | None = None
        self._began = self._looked = 0.0

    def due(self, schedule: Schedule) -> bool:
        """Whether to look now for what ends the phase under way; whoever is told so does."""
        now, place = self._clock(), (schedule.step, schedule.attempt, schedule.phase)
        if place != self._place:
            if self._place is not None:
                self._took.setdefault(self._place[2], deque(maxlen=_KEPT)).append(now - self._began)
            self._place, self._began, self._looked = place, now, now
        took = self._took.get(schedule.phase, ())
        early = bool(took) and min(took) >= LONG and now - self._began < SHARE * min(took)
        if early and now - self._looked < _MOST:
            return False
        self._looked = now
        return True
