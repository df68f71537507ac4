"""A shard's bytes for one client: from the disk, or while they come from upstream."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from storage.partial import PartialObject
from storage.relay.answer import SILENCE_SECONDS, BrokenOffError, FilePiece
from storage.relay.flights import Flight
from storage.relay.ranges import ObjectPart

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


async def from_memory(flight: Flight, part: ObjectPart) -> AsyncIterator[bytes]:
    """What could not be kept; for a while that suffices for all but the slowest."""
    assert flight.data is not None
    last = flight.ended_at + SILENCE_SECONDS + part.size / LEAST_MEMORY_RATE
    for start in range(part.start, part.end, CHUNK):
        if time.monotonic() > last:
            raise BrokenOffError
        yield flight.data[start : min(start + CHUNK, part.end)]


async def first_byte(flight: Flight, start: int) -> None:
    """Wait until the byte at `start` is here. Raises BrokenOffError or TimeoutError if it does not come."""

    def here() -> bool:
        furthest = flight.furthest()
        return flight.ended.is_set() or (furthest is not None and len(furthest) > start)

    await _until(flight, here)
    if flight.ended.is_set() and not flight.came:
        raise BrokenOffError


async def follow(flight: Flight, part: ObjectPart) -> AsyncIterator[bytes | FilePiece]:
    """The part as it comes. A shard's last byte stays here until the whole has its hash, so that no client ever gets
    all of a wrong one. Raises BrokenOffError when what was sent turns out to be wrong, or no more comes."""
    at, reading = part.start, _Reading(flight, part.start)
    while at < part.end:
        if flight.ended.is_set():
            if not flight.came or not await asyncio.to_thread(reading.agrees, at):
                raise BrokenOffError
            reading.end()
            rest = ObjectPart(at, part.end, part.size)
            async for chunk in from_memory(flight, rest) if flight.path is None else from_disk(flight.path, rest):
                yield chunk
            return
        if reading.is_behind(at):
            await asyncio.to_thread(reading.change, at)
        chunk = reading.next(at, min(part.end, flight.size - 1))
        at += len(chunk)
        if len(chunk):
            yield chunk
        else:
            await _until(flight, partial(reading.has_news, at))
            with suppress(TimeoutError):
                await _until(flight, partial(reading.has_news, at, FILE_CHUNK), GATHERING)


async def _until(flight: Flight, reached: Callable[[], bool], seconds: float = SILENCE_SECONDS) -> None:
    loop, news = asyncio.get_running_loop(), asyncio.Event()

    def wake() -> None:
        with suppress(RuntimeError):  # the server has ended
            loop.call_soon_threadsafe(news.set)

    async with asyncio.timeout(seconds):
        while True:
            flight.when_news(wake)
            if reached():
                return
            await news.wait()
            news.clear()


class _Reading:
    """Which request's bytes a client is being sent, from `start` on."""

    def __init__(self, flight: Flight, start: int) -> None:
        self._flight, self._start = flight, start
        self._partial: PartialObject | None = None
        self._restarts = 0

    def has_news(self, at: int, many: int = 1) -> bool:
        """Whether the flight ended, there are so many bytes after those that were sent, or all but the shard's last, or
        these are in doubt."""
        if self._flight.ended.is_set():
            return True
        furthest, last = self._flight.furthest(), self._flight.size - 1
        more = furthest is not None and at < last and len(furthest) >= min(at + many, last)
        return more or self._is_void()

    def next(self, at: int, end: int) -> bytes | FilePiece:
        """Bytes up to `end`, or none yet. Raises BrokenOffError when what was sent is in doubt."""
        if self._partial is None:
            return b""
        data: bytes | FilePiece
        if (place := self._partial.place) is not None:
            data = FilePiece(place[0], place[1] + at, max(0, min(end, len(self._partial), at + FILE_CHUNK) - at))
        else:
            data = self._partial.read(at, min(end, at + CHUNK) - at)
        if self._is_void():
            raise BrokenOffError
        return data

    def is_behind(self, at: int) -> bool:
        """Whether another request has more bytes than those up to `at`, and the present one has not."""
        if self._partial is not None and len(self._partial) > at:
            return False
        other = self._flight.furthest()
        return other is not None and other is not self._partial and len(other) > at

    def change(self, at: int) -> None:
        """Go over to the request that came furthest, if its bytes are the same so far; reads them all, so not in the
        event loop. Raises BrokenOffError."""
        other = self._flight.furthest()
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
        """Whether what was sent is part of the object, which came."""
        if self._partial is None:
            return True
        if self._partial is self._flight.winner:
            return not self._is_void()
        if (data := self._flight.data) is not None:
            return self._same(self._partial, lambda start, most: data[start : start + most], at)
        try:
            with (self._flight.path or Path()).open("rb") as file:

                def read(start: int, most: int) -> bytes:
                    file.seek(start)
                    return file.read(most)

                return self._same(self._partial, read, at)
        except OSError:
            return False

    def _same(self, sent: PartialObject, other: Callable[[int, int], bytes], at: int) -> bool:
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
