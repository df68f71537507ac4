"""One HTTP answer of a relay: short words, a page, or a stream that waits for its client."""

import asyncio
import json
import os
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from starlette.types import Receive, Scope, Send

from storage.relay.ranges import ObjectPart

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
