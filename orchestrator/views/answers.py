"""AnswerCache that many ask for, made once: none is made again before ten times the time that it took has passed."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

MOST = 256
SHARE = 10


class AnswerCache:
    """The newest answer under each name, at least `seconds` old before it is made anew; the `most` used last are kept.

    However many ask, a view takes at most a tenth of one core, and whoever asks for another does not wait for it.
    """

    def __init__(self, seconds: float, most: int = MOST, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._most, self._clock = seconds, most, clock
        self._lock = threading.Lock()
        self._kept: OrderedDict[object, _Answer] = OrderedDict()

    def get(self, name: object, make: Callable[[], Any]) -> Any:
        """What `make` returned for `name` not long ago. What it raises is not kept."""
        with self._lock:
            kept = self._kept.setdefault(name, _Answer())
            self._kept.move_to_end(name)
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
        with kept.lock:
            start = self._clock()
            if start >= kept.until:
                kept.value = make()
                took = self._clock() - start
                kept.until = start + took + (max(self._seconds, SHARE * took) if self._seconds else 0.0)
            return kept.value


class _Answer:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.until = float("-inf")
        self.value: Any = None
