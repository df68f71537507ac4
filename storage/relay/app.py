"""A relay's HTTP side, as an ASGI application: objects with ranges, also while they come; health, figures, whose it is.

Only GET and HEAD, only keys that verified manifests name, only so much for each client address at a time.
"""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from starlette.types import Receive, Scope, Send

from protocol.api.endpoints import ANNOUNCEMENT, OBJECTS
from protocol.http.limits import Buckets, rate_limit_key
from storage.relay.answer import SILENCE_SECONDS, BrokenOffError, RelayAnswer, Served
from storage.relay.flights import Flights
from storage.relay.following import first_byte, follow, from_disk
from storage.relay.ranges import part_of
from storage.relay.shelf import RelayShelf

LEAST_RATE = 16 << 10
"""Bytes a second that a client has to take in the long run."""
_NOT_NOW = "this object cannot be had now"


@dataclass(frozen=True)
class RelayLimits:
    """`rate` requests a second and `burst` at once for each client address, and `transfers` at the same time. A network
    of 2⁶⁴ IPv6 addresses counts as one."""

    rate: float = 50.0
    burst: float = 200.0
    transfers: int = 16


class RelayApp:
    """`facts`: what its status tells besides. `announcement`: the signed document that says whose relay this is, empty
    if it announces nothing."""

    def __init__(
        self, shelf: RelayShelf, flights: Flights, limits: RelayLimits, facts: Callable[[], dict[str, Any]] = dict
    ) -> None:
        self._shelf, self._flights, self._limits, self._facts = shelf, flights, limits, facts
        self._buckets = Buckets(limits.rate, limits.burst)
        self._busy: Counter[str] = Counter()
        self.served = Served()
        self.announcement = b""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        answer = RelayAnswer(scope, receive, send, self.served)
        client, path = rate_limit_key((scope.get("client") or ("unknown",))[0]), str(scope["path"])
        if not self._buckets.take(client, time.monotonic()):
            await answer.short(429, "too many requests from this address", retry_after="1")
        elif scope["method"] not in ("GET", "HEAD"):
            await answer.short(405, "GET only", allow="GET, HEAD")
        elif path.startswith(OBJECTS + "/"):
            await self._object(path.removeprefix(OBJECTS + "/"), _range(scope), client, answer)
        else:
            await self._page(path, answer)

    async def _page(self, path: str, answer: RelayAnswer) -> None:
        if path in ("/", "/health"):
            await answer.whole(200, json.dumps(self.status()).encode(), "application/json")
        elif path == "/metrics":
            await answer.whole(200, self.exposition().encode(), "text/plain; version=0.0.4")
        elif path == ANNOUNCEMENT and self.announcement:
            await answer.whole(200, self.announcement, "application/json")
        else:
            await answer.short(404, "no such page")

    async def _object(self, key: str, wanted: str | None, client: str, answer: RelayAnswer) -> None:
        size = self._shelf.size(key)
        if size is None:
            return await answer.short(404, "no such object here")
        if self._busy[client] >= self._limits.transfers:
            return await answer.short(429, "too many transfers to this address", retry_after="1")
        self._busy[client] += 1
        try:
            async with asyncio.timeout(SILENCE_SECONDS + size / LEAST_RATE), answer:
                await self._transfer(key, size, wanted, answer)
        except (BrokenOffError, TimeoutError):
            self.served.broken += 1
            if not answer.begun:  # otherwise the server ends the connection, as the answer is not complete
                await answer.short(404, _NOT_NOW)
        finally:
            self._busy[client] -= 1
            self._busy += Counter()  # forgets whoever is at 0

    async def _transfer(self, key: str, size: int, wanted: str | None, answer: RelayAnswer) -> None:
        part = part_of(wanted, size)
        if part is None:
            return await answer.short(416, "there are no such bytes", content_range=f"bytes */{size}")
        path = self._shelf.path(key)
        if path is not None:
            return await answer.stream(part, from_disk(path, part))
        flight = self._flights.bring(key)
        if flight is None:
            return await answer.short(404, _NOT_NOW)
        await first_byte(flight, part.start)
        await answer.stream(part, follow(flight, part))

    def status(self) -> dict[str, Any]:
        objects, held = self._shelf.held()
        return {"ok": True, "objects": objects, "bytes": held, "clients": len(self._busy), **self._facts()}

    def exposition(self) -> str:
        """Prometheus' text format."""
        objects, held = self._shelf.held()
        figures = {
            "objects": ("gauge", objects),
            "held_bytes": ("gauge", held),
            "transfers": ("gauge", self._busy.total()),
            "sent_bytes_total": ("counter", self.served.sent),
            "received_bytes_total": ("counter", self._flights.received),
            "broken_transfers_total": ("counter", self.served.broken),
            "failed_fetches_total": ("counter", self._flights.failed),
        }
        lines = [f"# TYPE muster_relay_{name} {kind}\nmuster_relay_{name} {n}" for name, (kind, n) in figures.items()]
        lines.append("# TYPE muster_relay_requests_total counter")
        counted = sorted(self.served.requests.items())
        lines += [f'muster_relay_requests_total{{status="{status}"}} {count}' for status, count in counted]
        return "\n".join(lines) + "\n"


def _range(scope: Scope) -> str | None:
    return next((value.decode("latin-1") for name, value in scope["headers"] if name == b"range"), None)
