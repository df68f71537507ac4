"""A relay's HTTP side, as an ASGI application: objects with ranges, to GET and HEAD; health and metrics.

Only keys that verified manifests name are served, and within limits for each client address.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import prometheus_client
from pydantic import Field, field_validator
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.types import Message, Receive, Scope, Send

from protocol.api.endpoints import ANNOUNCEMENT, OBJECTS
from protocol.encoding import Document
from protocol.http.limits import Buckets, client_key
from protocol.http.signing import service_url
from storage.relay.cache import RelayCache, RelayFetches

# Longest wait for an object that is on its way.
ARRIVAL_SECONDS = 30.0
# Bytes a second that a client has to take in the long run.
LEAST_RATE = 16 << 10
HEADERS = {"x-content-type-options": "nosniff", "cache-control": "no-store"}


class ServeWeights(Document):
    """`public_url`: where others reach it; it announces itself there, and nowhere if that is empty. Held are the newest
    `steps` policy steps, those whose files are still being judged, and what these build on, as far as `disk_bytes`
    allow. `rate`, `burst`, `transfers` and `connections_of_one` are for each client address (a network of 2⁶⁴ IPv6
    addresses counts as one), `connections` for all together."""

    host: str = "0.0.0.0"
    port: int = Field(8790, ge=1, le=65535)
    public_url: str = ""
    steps: int = Field(8, ge=1, le=1000)
    disk_bytes: int = Field(64 << 30, ge=1 << 20)
    connections: int = Field(512, ge=4, le=100_000)
    connections_of_one: int = Field(64, ge=1, le=100_000)
    rate: float = Field(50.0, gt=0)
    burst: float = Field(200.0, ge=1)
    transfers: int = Field(16, ge=1, le=10_000)

    @field_validator("public_url")
    @classmethod
    def _spelt(cls, value: str) -> str:
        return service_url(value) if value else ""


class _ObjectResponse(FileResponse):
    chunk_size = 256 << 10
    max_ranges = 1


class RelayApp:
    """`facts`: what its status tells besides. `announcement`: the signed document of whose relay this is, or empty."""

    def __init__(
        self,
        cache: RelayCache,
        fetches: RelayFetches,
        limits: ServeWeights,
        facts: Callable[[], dict[str, Any]] = dict,
    ) -> None:
        self._cache, self._fetches, self._limits, self._facts = cache, fetches, limits, facts
        self._buckets = Buckets(limits.rate, limits.burst)
        self._busy: Counter[str] = Counter()
        self.announcement = b""
        self.metrics = prometheus_client.CollectorRegistry(auto_describe=False)
        self._requests = self._counter("requests", "Requests by HTTP status.", "status")
        self._sent = self._counter("sent_bytes", "Bytes of answers.")
        self._broken = self._counter("broken_transfers", "Transfers that ended before the object did.")
        self._gauge("objects", "Objects held.", lambda: cache.held()[0])
        self._gauge("held_bytes", "Bytes held.", lambda: cache.held()[1])
        self._gauge("transfers", "Transfers under way.", self._busy.total)
        self._gauge("received_bytes_total", "Bytes fetched from other sources.", lambda: fetches.received)
        self._gauge("failed_fetches_total", "Fetches that brought nothing.", lambda: fetches.failed)

    def _counter(self, name: str, words: str, *labels: str) -> prometheus_client.Counter:
        return prometheus_client.Counter(f"muster_relay_{name}", words, labels, registry=self.metrics)

    def _gauge(self, name: str, words: str, value: Callable[[], float]) -> None:
        prometheus_client.Gauge(f"muster_relay_{name}", words, registry=self.metrics).set_function(value)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._requests.labels(message["status"]).inc()
            await send(message)
            self._sent.inc(len(message.get("body", b"")))

        client, path = client_key(scope), str(scope["path"])
        if not self._buckets.take(client, time.monotonic()):
            response: Response = _refusal(429, "too many requests from this address", {"retry-after": "1"})
        elif scope["method"] not in ("GET", "HEAD"):
            response = _refusal(405, "GET only", {"allow": "GET, HEAD"})
        elif path.startswith(OBJECTS + "/"):
            return await self._object(path.removeprefix(OBJECTS + "/"), client, scope, receive, counted)
        else:
            response = self._page(path)
        await response(scope, receive, counted)

    def _page(self, path: str) -> Response:
        if path in ("/", "/health"):
            return JSONResponse(self.status(), headers=HEADERS)
        if path == "/metrics":
            exposition = prometheus_client.generate_latest(self.metrics)
            return Response(exposition, media_type=prometheus_client.CONTENT_TYPE_LATEST, headers=HEADERS)
        if path == ANNOUNCEMENT and self.announcement:
            return Response(self.announcement, media_type="application/json", headers=HEADERS)
        return _refusal(404, "no such page")

    async def _object(self, key: str, client: str, scope: Scope, receive: Receive, send: Send) -> None:
        size = self._cache.size(key)
        if size is None:
            return await _refusal(404, "no such object here")(scope, receive, send)
        if self._busy[client] >= self._limits.transfers:
            busy = _refusal(429, "too many transfers to this address", {"retry-after": "1"})
            return await busy(scope, receive, send)
        self._busy[client] += 1
        try:
            path = await self._arrived(key)
            if path is None:
                return await _refusal(404, "this object cannot be had now")(scope, receive, send)
            async with asyncio.timeout(ARRIVAL_SECONDS + size / LEAST_RATE):
                await _ObjectResponse(path, media_type="application/octet-stream", headers=HEADERS)(
                    scope, receive, send
                )
        except (OSError, RuntimeError):  # the server ends the connection, as the answer is not complete
            self._broken.inc()
        finally:
            self._busy[client] -= 1
            self._busy += Counter()  # forgets clients that are at 0

    async def _arrived(self, key: str) -> Path | None:
        """Return the file of a named object once it is here; None if it does not come."""
        if (path := self._cache.path(key)) is None and (fetch := self._fetches.start(key)) is not None:
            await asyncio.wait([asyncio.wrap_future(fetch)], timeout=ARRIVAL_SECONDS)
            path = self._cache.path(key)
        return path

    def status(self) -> dict[str, Any]:
        objects, held = self._cache.held()
        return {"ok": True, "objects": objects, "bytes": held, "clients": len(self._busy), **self._facts()}


def _refusal(status: int, words: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"error": words}, status, {**HEADERS, **(headers or {})})
