"""What breaks off goes on at its byte with the same source, and anew with another."""

import hashlib
import random
from http.server import BaseHTTPRequestHandler

import pytest

from protocol.errors import IntegrityError, MusterError
from storage.keys import object_key
from storage.transfers import download
from tests.storage.mirror import NEAR, Answer, begin, mirror, send, sources

DATA = random.Random(5).randbytes(400_000)
KEY = object_key("shards", hashlib.sha256(DATA).digest())
WRONG = bytes(len(DATA))
Log = list[tuple[int, int]]
"""First byte asked for, bytes sent, of each request in order."""


def server(log: Log, most: int = len(DATA), data: bytes = DATA, ranges: bool = True, broken: int = 1 << 30) -> Answer:
    """Sends at most `most` bytes an answer and then breaks off, as often as `broken`."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        if not ranges:
            del handler.headers["Range"]
        start = begin(handler, data)
        rest = data[start:]
        part = rest[:most] if len(log) < broken else rest
        log.append((start, len(part)))
        handler.wfile.write(part)
        handler.wfile.flush()
        if len(part) < len(rest):
            handler.connection.close()

    return answer


def test_the_same_source_goes_on_at_its_byte() -> None:
    log: Log = []
    with mirror(server(log, most=150_000)) as base:
        assert download(f"{base}/{KEY}", KEY, len(DATA), NEAR) == DATA
    assert [start for start, _ in log] == [0, 150_000, 300_000]


def test_a_source_without_ranges_begins_anew() -> None:
    log: Log = []
    with mirror(server(log, most=150_000, ranges=False, broken=1)) as base:
        assert download(f"{base}/{KEY}", KEY, len(DATA), NEAR) == DATA
    assert [size for _, size in log] == [150_000, len(DATA)]


def test_a_source_that_died_is_left_for_another() -> None:
    first, second = Log(), Log()

    def dying(handler: BaseHTTPRequestHandler) -> None:
        send(handler, 403) if first else server(first, most=250_000)(handler)

    with sources(dying, server(second)) as asked:
        assert asked(KEY, len(DATA)) == DATA
    assert first == [(0, 250_000)]
    assert second == [(0, len(DATA))]


@pytest.mark.parametrize("said", ["bytes 0-9/400000", "bytes 150000-399999/99999999", "nonsense", ""])
def test_another_part_than_was_asked_for(said: str) -> None:
    log: Log = []

    def shifting(handler: BaseHTTPRequestHandler) -> None:
        if handler.headers.get("Range"):
            return send(handler, 206, DATA[:10], Content_Range=said)
        return server(log, most=150_000)(handler)

    with mirror(shifting) as base, pytest.raises(IntegrityError, match="another part"):
        download(f"{base}/{KEY}", KEY, len(DATA), NEAR)


def test_an_object_that_ends_before_the_part() -> None:
    log: Log = []

    def shrinking(handler: BaseHTTPRequestHandler) -> None:
        if handler.headers.get("Range"):
            return send(handler, 416)
        return server(log, most=150_000, broken=1)(handler)

    with mirror(shrinking) as base:
        assert download(f"{base}/{KEY}", KEY, len(DATA), NEAR) == DATA
    assert log == [(0, 150_000), (0, len(DATA))]


def test_a_source_that_breaks_off_and_lies_is_refused() -> None:
    log: Log = []
    with mirror(server(log, most=150_000, data=WRONG)) as base, pytest.raises(MusterError):
        download(f"{base}/{KEY}", KEY, len(DATA), NEAR)
    assert [start for start, _ in log] == [0, 150_000, 300_000]
