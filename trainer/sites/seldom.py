"""How often something is looked for that may not be there yet."""

import time
from collections.abc import Callable
from types import TracebackType

TIMES, MOST = 8.0, 2.0


class Seldom:
    """As a context, around a look. The next is `due` after `times` (`TIMES`) as long as it took, `MOST` seconds at
    most: so looking takes a small part of bucket and processor, whatever the distance to the one and however busy the
    other."""

    def __init__(self, times: float | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._times, self._clock = times, clock
        self._began = self._next = 0.0

    def due(self) -> bool:
        return self._clock() >= self._next

    def __enter__(self) -> None:
        self._began = self._clock()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        now = self._clock()
        self._next = now + min(MOST, (TIMES if self._times is None else self._times) * (now - self._began))
