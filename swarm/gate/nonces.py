"""Nonces of the last minutes, in memory: a repeated request to a gate does no harm, so a restart may forget them."""

import threading
from collections import OrderedDict

from protocol.http.signing import WINDOW

MOST = 200_000


class RecentNonces:
    """`orchestrator.auth.UsedNonces`. Thread-safe."""

    def __init__(self) -> None:
        self._used: OrderedDict[tuple[str, bytes], float] = OrderedDict()
        self._lock = threading.Lock()

    def use(self, address: str, nonce: bytes, now: float) -> bool:
        with self._lock:
            fresh = (address, nonce) not in self._used
            self._used[address, nonce] = now
            while self._used and (len(self._used) > MOST or next(iter(self._used.values())) < now - 2 * WINDOW):
                self._used.popitem(last=False)
            return fresh
