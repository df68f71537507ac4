"""What a client is sent of a shard that is still coming."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from storage.partial import PartialDownload
from storage.relay.cache import InFlightFetch
from storage.relay.server import BrokenOffError, FilePiece, ObjectPart, follow

DATA = b"0123456789"


def fetch(*partials: bytes) -> InFlightFetch:
    made = InFlightFetch("shards/" + "0" * 64, len(DATA))
    for data in partials:
        made.watch(PartialDownload())
        made.partials[-1].append(data)
    return made


def ended(made: InFlightFetch, data: bytes | None) -> None:
    made.data, made.ended_at = data, time.monotonic()
    made.ended.set()
    made.notify()


async def rest(chunks: AsyncIterator[bytes | FilePiece]) -> bytes:
    return b"".join([chunk.read() if isinstance(chunk, FilePiece) else chunk async for chunk in chunks])


def test_the_last_byte_waits_for_the_hash() -> None:
    async def story() -> None:
        made = fetch(DATA)
        chunks = follow(made, ObjectPart(2, 10, 10))
        assert await anext(chunks) == DATA[2:9]
        last = asyncio.ensure_future(anext(chunks))
        await asyncio.sleep(0.1)
        assert not last.done(), "all bytes are here, and nobody has checked them"
        ended(made, DATA)
        assert await last == DATA[9:]

    asyncio.run(story())


@pytest.mark.parametrize("data", [None, b"012345678x", b"x123456789"])
def test_what_was_wrong_is_broken_off(data: bytes | None) -> None:
    """`data`: None if no source had it; otherwise what another source had, in the end."""

    async def story() -> None:
        made = fetch(b"x12345" if data != b"x123456789" else DATA[:6])
        chunks = follow(made, ObjectPart(0, 10, 10))
        await anext(chunks)
        ended(made, data)
        with pytest.raises(BrokenOffError):
            await rest(chunks)

    asyncio.run(story())


def test_bytes_that_were_thrown_away_are_not_gone_on_with() -> None:
    async def story() -> None:
        made = fetch(b"x1234")
        chunks = follow(made, ObjectPart(0, 10, 10))
        await anext(chunks)
        made.partials[0].restart()
        made.partials[0].append(DATA)
        ended(made, DATA)
        with pytest.raises(BrokenOffError):
            await rest(chunks)

    asyncio.run(story())


@pytest.mark.parametrize("first", [b"0123", b"x123"])
def test_another_source_is_followed_if_it_says_the_same(first: bytes) -> None:
    async def story() -> None:
        made = fetch(first, DATA[:8])
        made.partials.reverse()
        alone = made.partials.pop(0)
        chunks = follow(made, ObjectPart(0, 10, 10))
        assert await anext(chunks) == first
        made.partials.append(alone)
        if first != DATA[:4]:
            with pytest.raises(BrokenOffError):
                await anext(chunks)
            return
        assert await anext(chunks) == DATA[4:8]
        ended(made, DATA)
        assert await rest(chunks) == DATA[8:]

    asyncio.run(story())


@pytest.mark.parametrize("kept", [DATA, b"x123456789", b""])
def test_who_reads_slowly_is_sent_the_rest_from_the_disk(tmp_path: Path, kept: bytes) -> None:
    """And holds none of the bytes in memory; what is gone from the disk, or another, is broken off."""

    async def story() -> None:
        made = fetch(DATA[:6])
        chunks = follow(made, ObjectPart(0, 10, 10))
        assert await anext(chunks) == DATA[:6]
        made.path = tmp_path / "object"
        if kept:
            made.path.write_bytes(kept)
        made.ended.set()
        made.notify()
        if kept != DATA:
            with pytest.raises(BrokenOffError):
                await rest(chunks)
            return
        assert await rest(chunks) == DATA[6:]
        assert made.data is None

    asyncio.run(story())


def test_what_only_the_memory_holds_is_not_held_for_the_slowest() -> None:
    async def story() -> None:
        made = fetch(DATA[:6])
        chunks = follow(made, ObjectPart(0, 10, 10))
        assert await anext(chunks) == DATA[:6]
        ended(made, DATA)
        made.ended_at -= 60
        with pytest.raises(BrokenOffError):
            await rest(chunks)

    asyncio.run(story())


def test_bytes_of_two_requests_are_not_compared_in_the_loop() -> None:
    """It may be a whole shard, read from the disk, for everybody who follows: nobody else would be served meanwhile."""
    compared = list[int]()

    class Watched(PartialDownload):
        def read(self, start: int, most: int) -> bytes:
            if start == 0 and len(self) == 8:
                compared.append(threading.get_ident())
            return super().read(start, most)

    async def story() -> None:
        made = fetch(DATA[:4])
        chunks = follow(made, ObjectPart(0, 10, 10))
        assert await anext(chunks) == DATA[:4]
        made.watch(Watched())
        made.partials[-1].append(DATA[:8])
        assert await anext(chunks) == DATA[4:8]
        assert compared
        assert threading.get_ident() not in compared

    asyncio.run(story())


def test_what_the_disk_cannot_read_is_broken_off(tmp_path: Path) -> None:
    with (tmp_path / "object").open("ab") as unreadable, pytest.raises(BrokenOffError):
        FilePiece(unreadable, 0, 10).read()
