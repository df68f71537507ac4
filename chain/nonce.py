"""Which nonce comes next, for one account whose transactions leave from many threads.

The chain's own count is the authority whenever nothing is in flight, so that restarts, dropped transactions,
reorganisations and other processes with the same key are all seen. Signed transactions are remembered, so that those
that a reorganisation or a restarted node forgot can be sent again byte for byte, which can never act twice.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable

_REMEMBERED = 256


class Nonces:
    """Hold `lock` from `next` until the transaction was handed to the chain."""

    def __init__(self, chain_count: Callable[[], int]) -> None:
        self.lock = threading.RLock()
        self._chain_count = chain_count
        self._in_flight: set[int] = set()
        self._sent: OrderedDict[int, bytes] = OrderedDict()

    def next(self) -> int:
        """The nonce for the next transaction; `chain_count` (pending included) is asked when nothing is in flight."""
        if not self._in_flight:
            return self._chain_count()
        return max(self._in_flight) + 1

    def after_conflict(self, nonce: int) -> int:
        """The nonce to try when `nonce` turned out to be taken by a transaction that is not ours."""
        return max(self._chain_count(), nonce + 1)

    def sent(self, nonce: int, raw: bytes) -> None:
        """A transaction was handed to the chain."""
        with self.lock:
            self._in_flight.add(nonce)
            self._sent[nonce] = raw
            self._sent.move_to_end(nonce)
            while len(self._sent) > _REMEMBERED:
                self._sent.popitem(last=False)

    def done(self, nonce: int) -> None:
        """Its receipt is known, or nobody waits for it any more."""
        with self.lock:
            self._in_flight.discard(nonce)

    def is_in_flight(self, nonce: int) -> bool:
        with self.lock:
            return nonce in self._in_flight

    def remembered(self, nonce: int) -> bytes | None:
        """The last transaction sent with this nonce."""
        with self.lock:
            return self._sent.get(nonce)
