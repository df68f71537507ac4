"""How often one caller may ask: token buckets."""

import ipaddress
import threading
from collections import OrderedDict
from collections.abc import Mapping
from functools import lru_cache
from typing import Any


@lru_cache(4096)
def party(address: str) -> str:
    """Whom an address stands for: whoever has one IPv6 address has all 2⁶⁴ of its network."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is None:
            return f"{int(ip) >> 64:x}/64"
        ip = ip.ipv4_mapped
    return str(ip)


def caller(scope: Mapping[str, Any]) -> str:
    """Whom a request comes from, by its ASGI scope."""
    client = scope.get("client")
    return party(client[0]) if client else "unknown"


class Buckets:
    """Token buckets by key: `rate` a second, `burst` at once. At most `most` keys are remembered, oldest forgotten.

    Safe to share between threads.
    """

    def __init__(self, rate: float, burst: float, most: int = 10_000) -> None:
        self._rate, self._burst, self._most = rate, burst, most
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, key: str, now: float) -> bool:
        """Take one token at `now` (monotonic seconds); False if there is none."""
        with self._lock:
            level, since = self._levels.pop(key, (self._burst, now))
            level = min(self._burst, level + max(0.0, now - since) * self._rate)
            allowed = level >= 1.0
            self._levels[key] = (level - 1.0 if allowed else level, now)
            if len(self._levels) > self._most:
                self._levels.popitem(last=False)
            return allowed
