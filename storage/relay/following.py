"""A shard's bytes for one client: from the disk, or while they come from upstream."""

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

from storage.partial import PartialObject
from storage.relay.answer import SILENCE_SECONDS, BrokenOffError
from storage.relay.flights import Flight
from storage.relay.ranges import ObjectPart

CHUNK = 256 << 10
LOOK_SECONDS = 0.02


async def from_disk(path: Path, part: ObjectPart) -> AsyncIterator[bytes]:
    """Read as it is sent; a file that is removed meanwhile stays readable."""
    try:
        file = path.open("rb")
    except OSError:
        raise BrokenOffError from None
    with file:
        file.seek(part.start)
        left = part.end - part.start
        while left:
            chunk = await asyncio.to_thread(file.read, min(CHUNK, left))
            if not chunk:
                raise BrokenOffError
            left -= len(chunk)
            yield chunk


async def first_byte(flight: Flight, start: int) -> None:
    """Wait until the byte at `start` is here. Raises BrokenOffError or TimeoutError if it does not come."""

    def here() -> bool:
        furthest = flight.furthest()
        return flight.ended.is_set() or (furthest is not None and len(furthest) > start)

    await _until(here)
    if flight.ended.is_set() and flight.data is None:
        raise BrokenOffError


async def follow(flight: Flight, part: ObjectPart) -> AsyncIterator[bytes]:
    """The part as it comes. A shard's last byte stays here until the whole has its hash, so that no client ever gets
    all of a wrong one. Raises BrokenOffError when what was sent turns out to be wrong, or no more comes."""
    at, reading = part.start, _Reading(flight, part.start)
    while at < part.end:
        if flight.ended.is_set():
            if flight.data is None or not reading.agrees(flight.data, at):
                raise BrokenOffError
            for start in range(at, part.end, CHUNK):
                yield flight.data[start : min(start + CHUNK, part.end)]
            return
        chunk = reading.next(at, min(part.end, flight.size - 1, at + CHUNK))
        at += len(chunk)
        if chunk:
            yield chunk
        else:
            await _until(partial(reading.has_news, at))


async def _until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(SILENCE_SECONDS):
        while not reached():  # noqa: ASYNC110 (threads fill it)
            await asyncio.sleep(LOOK_SECONDS)


class _Reading:
    """Which request's bytes a client is being sent, from `start` on."""

    def __init__(self, flight: Flight, start: int) -> None:
        self._flight, self._start = flight, start
        self._partial: PartialObject | None = None
        self._restarts = 0

    def has_news(self, at: int) -> bool:
        """Whether the flight ended, there are bytes after those that were sent, or these are in doubt."""
        if self._flight.ended.is_set():
            return True
        furthest = self._flight.furthest()
        more = furthest is not None and min(len(furthest), self._flight.size - 1) > at
        return more or self._is_void()

    def next(self, at: int, end: int) -> bytes:
        """Bytes up to `end`, or none yet. Raises BrokenOffError when what was sent is in doubt."""
        if self._partial is None or len(self._partial) <= at:
            self._change(at)
        if self._partial is None:
            return b""
        data = self._partial.read(at, end - at)
        if self._is_void():
            raise BrokenOffError
        return data

    def _change(self, at: int) -> None:
        """Go over to the request that came furthest, if its bytes are the same so far."""
        other = self._flight.furthest()
        if other is None or other is self._partial or len(other) <= at:
            return
        before, sent = self._partial, at - self._start
        restarts = other.restarts
        if before is not None and other.read(self._start, sent) != before.read(self._start, sent):
            raise BrokenOffError
        if self._is_void():
            raise BrokenOffError
        self._partial, self._restarts = other, restarts

    def _is_void(self) -> bool:
        return self._partial is not None and self._partial.restarts != self._restarts

    def agrees(self, data: bytes, at: int) -> bool:
        """Whether what was sent is part of the object."""
        if self._partial is None:
            return True
        sent = self._partial.read(self._start, at - self._start)
        return sent == data[self._start : at] and not self._is_void()
