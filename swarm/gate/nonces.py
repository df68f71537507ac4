"""UsedNonces of the last minutes, in memory: what a gate is asked twice does no harm, so a restart may forget them."""

import threading
from collections import OrderedDict
from collections.abc import Sequence

from orchestrator.nonces import Use
from protocol.http.signing import WINDOW

MOST = 200_000


class RecentNonces:
    """`orchestrator.nonces.UsedNonces`. Safe to share between threads."""

    def __init__(self) -> None:
        self._used: OrderedDict[Use, float] = OrderedDict()
        self._lock = threading.Lock()

    def use_many(self, uses: Sequence[Use], now: float) -> list[bool]:
        with self._lock:
            out = []
            for use in uses:
                out.append(use not in self._used)
                self._used[use] = now
            while self._used and (len(self._used) > MOST or next(iter(self._used.values())) < now - 2 * WINDOW):
                self._used.popitem(last=False)
            return out
