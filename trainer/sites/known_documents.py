"""Documents that were had or published already: each is named by its hash, so it need not be fetched again."""

import threading
from collections import OrderedDict

_LONGEST, _ROOM = 1 << 18, 1 << 24
"""Bytes of one that is kept, and of all: some thousands as they are, of contributions, products and means."""


class KnownDocuments:
    """By SHA-256, those used last; any thread."""

    def __init__(self) -> None:
        self._held: OrderedDict[str, bytes] = OrderedDict()
        self._bytes, self._lock = 0, threading.Lock()

    def get(self, sha256: str, limit: int) -> bytes | None:
        """None where it is not known, or longer than `limit` bytes."""
        with self._lock:
            data = self._held.get(sha256)
            if data is None or len(data) > limit:
                return None
            self._held.move_to_end(sha256)
            return data

    def keep(self, sha256: str, data: bytes) -> None:
        if len(data) > _LONGEST:
            return
        with self._lock:
            if sha256 in self._held:
                return
            self._held[sha256] = data
            self._bytes += len(data)
            while self._bytes > _ROOM:
                self._bytes -= len(self._held.popitem(last=False)[1])
