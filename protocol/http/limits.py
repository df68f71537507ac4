"""Token buckets: how often one client may ask."""

import ipaddress
import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any


def rate_limit_key(address: str) -> str:
    """Return whom an IP address counts as: itself, or its /64 network in IPv6, all of which one client may own. An
    IPv4-mapped address counts as the IPv4 address."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is None:
            return f"{int(ip) >> 64:x}/64"
        ip = ip.ipv4_mapped
    return str(ip)


def client_key(scope: Mapping[str, Any]) -> str:
    """Return the rate-limit key of a request's client, by its ASGI scope."""
    client = scope.get("client")
    return rate_limit_key(client[0]) if client else "unknown"


class Buckets:
    """Thread-safe token buckets by key: `rate` a second, at most `burst` at once, of the `most` keys used last."""

    def __init__(self, rate: float, burst: float, most: int = 10_000) -> None:
        self._rate, self._burst, self._most = rate, burst, most
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, key: str, now: float) -> bool:
        """Take one token at `now` (monotonic seconds); return False if there is none."""
        with self._lock:
            level, since = self._levels.pop(key, (self._burst, now))
            level = min(self._burst, level + max(0.0, now - since) * self._rate)
            allowed = level >= 1.0
            # Of two threads the later may have read its clock before: no time counts twice.
            self._levels[key] = (level - 1.0 if allowed else level, max(now, since))
            if len(self._levels) > self._most:
                self._levels.popitem(last=False)
            return allowed
