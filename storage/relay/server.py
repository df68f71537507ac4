"""A relay's HTTP side, as an ASGI application: objects with ranges, also while they arrive; health and metrics.

It serves only GET and HEAD, only keys that verified manifests name, and within limits for each client address.
"""

import asyncio
import json
import os
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import Field, field_validator
from starlette.types import Receive, Scope, Send

from protocol.api.endpoints import ANNOUNCEMENT, OBJECTS
from protocol.encoding import Document
from protocol.http.limits import Buckets, rate_limit_key
from protocol.http.signing import service_url
from storage.partial import PartialDownload
from storage.relay.cache import InFlightFetch, InFlightFetches, RelayCache

_RANGE = re.compile(r"bytes=([0-9]{1,15})-([0-9]{0,15})")


@dataclass(frozen=True)
class ObjectPart:
    """Bytes `start` to `end` (exclusive) of `size`."""

    start: int
    end: int
    size: int

    @property
    def status(self) -> int:
        return 200 if (self.start, self.end) == (0, self.size) else 206

    @property
    def headers(self) -> dict[str, str]:
        common = {"content-length": str(self.end - self.start), "accept-ranges": "bytes"}
        shown = {"content-range": f"bytes {self.start}-{self.end - 1}/{self.size}"} if self.status == 206 else {}
        return common | shown


def part_of(wanted: str | None, size: int) -> ObjectPart | None:
    """Parse what a Range header asks for; everything where it is missing or of another kind, None where nothing is
    there."""
    match = _RANGE.fullmatch(wanted or "")
    if match is None:
        return ObjectPart(0, size, size)
    start, end = int(match[1]), int(match[2]) + 1 if match[2] else size
    if start >= size or end <= start:
        return None
    return ObjectPart(start, min(end, size), size)


# ---- Answers


SILENCE_SECONDS = 30.0
"""A transfer ends after so long without a byte from upstream, or with a client that takes none."""


class BrokenOffError(Exception):
    """The connection has to end before the object does: what was sent of it may be wrong, or nobody reads it."""


@dataclass(frozen=True)
class FilePiece:
    """`size` bytes of a file, from `start` on."""

    file: BinaryIO
    start: int
    size: int

    def __len__(self) -> int:
        return self.size

    def read(self) -> bytes:
        """Raises BrokenOffError where the disk has lost them, or cannot read them."""
        try:
            data = os.pread(self.file.fileno(), self.size, self.start)
        except OSError:
            raise BrokenOffError from None
        if len(data) < self.size:
            raise BrokenOffError
        return data


@dataclass
class Served:
    """Counters since the start; requests by HTTP status."""

    requests: Counter[int] = field(default_factory=Counter)
    sent: int = 0
    broken: int = 0


class RelayAnswer:
    """`begun`: its head is on its way. Within its asynchronous context it knows when the client goes."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, served: Served) -> None:
        self._head, self._receive, self._send, self._served = scope["method"] == "HEAD", receive, send, served
        self.begun = False
        self._gone: asyncio.Future[None] | None = None

    async def __aenter__(self) -> "RelayAnswer":
        self._gone = asyncio.ensure_future(self._wait_for_end())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._gone is not None:
            self._gone.cancel()

    async def _wait_for_end(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def short(self, status: int, words: str, **headers: str) -> None:
        """An error; underscores in names of headers become hyphens."""
        more = {name.replace("_", "-"): value for name, value in headers.items()}
        await self.whole(status, json.dumps({"error": words}).encode(), "application/json", more)

    async def whole(self, status: int, body: bytes, kind: str, headers: dict[str, str] | None = None) -> None:
        await self._begin(status, {"content-type": kind, "content-length": str(len(body)), **(headers or {})})
        await self._send({"type": "http.response.body", "body": b"" if self._head else body})

    async def stream(self, part: ObjectPart, chunks: AsyncIterator[bytes] | AsyncIterator[bytes | FilePiece]) -> None:
        """Each chunk is read once the client has taken the one before: nothing piles up for a slow one. Raises
        BrokenOffError, TimeoutError."""
        await self._begin(part.status, part.headers | {"content-type": "application/octet-stream"})
        if not self._head:
            async for chunk in chunks:
                if self._gone is not None and self._gone.done():
                    raise BrokenOffError
                async with asyncio.timeout(SILENCE_SECONDS):
                    await self._pass_on(chunk)
                self._served.sent += len(chunk)
        await self._send({"type": "http.response.body", "body": b""})

    async def _pass_on(self, chunk: bytes | FilePiece) -> None:
        if isinstance(chunk, FilePiece):
            chunk = await asyncio.to_thread(chunk.read)
        await self._send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def _begin(self, status: int, headers: dict[str, str]) -> None:
        self.begun = True
        self._served.requests[status] += 1
        given = {**headers, "x-content-type-options": "nosniff", "cache-control": "no-store"}
        start: dict[str, Any] = {"type": "http.response.start", "status": status}
        await self._send(start | {"headers": [(name.encode(), value.encode()) for name, value in given.items()]})


# ---- A shard's bytes: from the disk, or while they arrive from upstream


CHUNK = 256 << 10
FILE_CHUNK = 480 << 10
"""Of a file, which no memory holds; who cannot take that within SILENCE_SECONDS takes less than 16 KiB a second."""
GATHERING = 0.2
"""Seconds that bytes may wait for a FILE_CHUNK of them: sending any costs as much as sending many kilobytes."""
_COMPARED = 1 << 20
LEAST_MEMORY_RATE = 1 << 20
"""Bytes a second that a client has to take of what is in memory alone, as the disk had no room for it."""


async def from_disk(path: Path, part: ObjectPart) -> AsyncIterator[FilePiece]:
    """Read as it is sent; a file that is removed meanwhile stays readable."""
    try:
        file = path.open("rb", buffering=0)
    except OSError:
        raise BrokenOffError from None
    with file:
        for start in range(part.start, part.end, FILE_CHUNK):
            yield FilePiece(file, start, min(FILE_CHUNK, part.end - start))


async def from_memory(fetch: InFlightFetch, part: ObjectPart) -> AsyncIterator[bytes]:
    """Yield what could not be kept; for a while that suffices for all but the slowest."""
    assert fetch.data is not None
    last = fetch.ended_at + SILENCE_SECONDS + part.size / LEAST_MEMORY_RATE
    for start in range(part.start, part.end, CHUNK):
        if time.monotonic() > last:
            raise BrokenOffError
        yield fetch.data[start : min(start + CHUNK, part.end)]


async def first_byte(fetch: InFlightFetch, start: int) -> None:
    """Wait until the byte at `start` is here. Raises BrokenOffError or TimeoutError if it does not come."""

    def here() -> bool:
        furthest = fetch.furthest()
        return fetch.ended.is_set() or (furthest is not None and len(furthest) > start)

    await _until(fetch, here)
    if fetch.ended.is_set() and not fetch.complete:
        raise BrokenOffError


async def follow(fetch: InFlightFetch, part: ObjectPart) -> AsyncIterator[bytes | FilePiece]:
    """Yield the part as it comes. A shard's last byte stays here until the whole has its hash, so that no client ever
    gets all of a wrong one. Raises BrokenOffError when what was sent turns out to be wrong, or no more comes."""
    at, reading = part.start, _Reading(fetch, part.start)
    while at < part.end:
        if fetch.ended.is_set():
            if not fetch.complete or not await asyncio.to_thread(reading.agrees, at):
                raise BrokenOffError
            reading.end()
            rest = ObjectPart(at, part.end, part.size)
            async for chunk in from_memory(fetch, rest) if fetch.path is None else from_disk(fetch.path, rest):
                yield chunk
            return
        if reading.is_behind(at):
            await asyncio.to_thread(reading.change, at)
        chunk = reading.next(at, min(part.end, fetch.size - 1))
        at += len(chunk)
        if len(chunk):
            yield chunk
        else:
            await _until(fetch, partial(reading.has_news, at))
            with suppress(TimeoutError):
                await _until(fetch, partial(reading.has_news, at, FILE_CHUNK), GATHERING)


async def _until(fetch: InFlightFetch, reached: Callable[[], bool], seconds: float = SILENCE_SECONDS) -> None:
    loop, news = asyncio.get_running_loop(), asyncio.Event()

    def wake() -> None:
        with suppress(RuntimeError):  # the server has ended
            loop.call_soon_threadsafe(news.set)

    async with asyncio.timeout(seconds):
        while True:
            fetch.on_next_change(wake)
            if reached():
                return
            await news.wait()
            news.clear()


class _Reading:
    """Which request's bytes a client is being sent, from `start` on."""

    def __init__(self, fetch: InFlightFetch, start: int) -> None:
        self._fetch, self._start = fetch, start
        self._partial: PartialDownload | None = None
        self._restarts = 0

    def has_news(self, at: int, many: int = 1) -> bool:
        """Return whether the fetch ended, there are so many bytes after those that were sent, or all but the shard's
        last, or these are in doubt."""
        if self._fetch.ended.is_set():
            return True
        furthest, last = self._fetch.furthest(), self._fetch.size - 1
        more = furthest is not None and at < last and len(furthest) >= min(at + many, last)
        return more or self._is_void()

    def next(self, at: int, end: int) -> bytes | FilePiece:
        """Return bytes up to `end`, or none yet. Raises BrokenOffError when what was sent is in doubt."""
        if self._partial is None:
            return b""
        data: bytes | FilePiece
        if (location := self._partial.location) is not None:
            data = FilePiece(location[0], location[1] + at, max(0, min(end, len(self._partial), at + FILE_CHUNK) - at))
        else:
            data = self._partial.read(at, min(end, at + CHUNK) - at)
        if self._is_void():
            raise BrokenOffError
        return data

    def is_behind(self, at: int) -> bool:
        """Return whether another request has more bytes than those up to `at`, and the present one has not."""
        if self._partial is not None and len(self._partial) > at:
            return False
        other = self._fetch.furthest()
        return other is not None and other is not self._partial and len(other) > at

    def change(self, at: int) -> None:
        """Go over to the request that came furthest, if its bytes are the same so far; reads them all, so not in the
        event loop. Raises BrokenOffError."""
        other = self._fetch.furthest()
        if other is None or other is self._partial or len(other) <= at:
            return
        before, restarts = self._partial, other.restarts
        if before is not None and not self._same(before, other.read, at):
            raise BrokenOffError
        if self._is_void():
            raise BrokenOffError
        self._partial, self._restarts = other, restarts

    def _is_void(self) -> bool:
        return self._partial is not None and self._partial.restarts != self._restarts

    def agrees(self, at: int) -> bool:
        """Return whether what was sent is part of the object, which came."""
        if self._partial is None:
            return True
        if self._partial is self._fetch.winner:
            return not self._is_void()
        if (data := self._fetch.data) is not None:
            return self._same(self._partial, lambda start, most: data[start : start + most], at)
        try:
            with (self._fetch.path or Path()).open("rb") as file:

                def read(start: int, most: int) -> bytes:
                    file.seek(start)
                    return file.read(most)

                return self._same(self._partial, read, at)
        except OSError:
            return False

    def _same(self, sent: PartialDownload, other: Callable[[int, int], bytes], at: int) -> bool:
        """Whether there is the same up to `at` as was sent."""
        for start in range(self._start, at, _COMPARED):
            most = min(_COMPARED, at - start)
            data = sent.read(start, most)
            if len(data) < most or data != other(start, most):
                return False
        return not self._is_void()

    def end(self) -> None:
        """Let go of the memory that the request's bytes are in."""
        self._partial = None


# ---- The application


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


class ServeWeights(Document):
    """`public_url`: where others reach it; it announces itself there, and nowhere if that is empty. Held are the newest
    `steps` policy steps, those whose files are still being judged, and what these build on, as far as `disk_bytes`
    allow; on their way at once are objects of at most `memory_bytes`. `rate`, `burst`, `transfers` and
    `connections_of_one` are for each client address, `connections` for all together."""

    host: str = "0.0.0.0"
    port: int = Field(8790, ge=1, le=65535)
    public_url: str = ""
    steps: int = Field(8, ge=1, le=1000)
    disk_bytes: int = Field(64 << 30, ge=1 << 20)
    memory_bytes: int = Field(512 << 20, ge=1 << 20)
    connections: int = Field(512, ge=4, le=100_000)
    connections_of_one: int = Field(64, ge=1, le=100_000)
    rate: float = Field(50.0, gt=0)
    burst: float = Field(200.0, ge=1)
    transfers: int = Field(16, ge=1, le=10_000)

    @field_validator("public_url")
    @classmethod
    def _spelt(cls, value: str) -> str:
        return service_url(value) if value else ""

    @property
    def limits(self) -> RelayLimits:
        return RelayLimits(self.rate, self.burst, self.transfers)


class RelayApp:
    """`facts`: what its status tells besides. `announcement`: the signed document that says whose relay this is, empty
    if it announces nothing."""

    def __init__(
        self,
        cache: RelayCache,
        fetches: InFlightFetches,
        limits: RelayLimits,
        facts: Callable[[], dict[str, Any]] = dict,
    ) -> None:
        self._cache, self._fetches, self._limits, self._facts = cache, fetches, limits, facts
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
        size = self._cache.size(key)
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
        path = self._cache.path(key)
        if path is not None:
            return await answer.stream(part, from_disk(path, part))
        fetch = self._fetches.start(key)
        if fetch is None:
            return await answer.short(404, _NOT_NOW)
        await first_byte(fetch, part.start)
        await answer.stream(part, follow(fetch, part))

    def status(self) -> dict[str, Any]:
        objects, held = self._cache.held()
        return {"ok": True, "objects": objects, "bytes": held, "clients": len(self._busy), **self._facts()}

    def exposition(self) -> str:
        """Prometheus' text format."""
        objects, held = self._cache.held()
        figures = {
            "objects": ("gauge", objects),
            "held_bytes": ("gauge", held),
            "transfers": ("gauge", self._busy.total()),
            "sent_bytes_total": ("counter", self.served.sent),
            "received_bytes_total": ("counter", self._fetches.received),
            "broken_transfers_total": ("counter", self.served.broken),
            "failed_fetches_total": ("counter", self._fetches.failed),
        }
        lines = [f"# TYPE muster_relay_{name} {kind}\nmuster_relay_{name} {n}" for name, (kind, n) in figures.items()]
        lines.append("# TYPE muster_relay_requests_total counter")
        counted = sorted(self.served.requests.items())
        lines += [f'muster_relay_requests_total{{status="{status}"}} {count}' for status, count in counted]
        return "\n".join(lines) + "\n"


def _range(scope: Scope) -> str | None:
    return next((value.decode("latin-1") for name, value in scope["headers"] if name == b"range"), None)
