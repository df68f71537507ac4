"""What breaks off goes on at its byte, with the same source or another; wrong bytes in it cost one more download."""

import hashlib
import random
import time
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler

import pytest

from protocol.errors import IntegrityError, MusterError, UnreachableError
from storage import sources
from storage.keys import object_key
from storage.partial import PartialDownload
from storage.sources import MultiSource
from storage.transfers import HttpObjects, download
from tests.storage.mirror import NEAR, Answer, begin, mirror, send

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


def test_another_source_goes_on_where_the_first_died() -> None:
    first, second = Log(), Log()

    def dying(handler: BaseHTTPRequestHandler) -> None:
        send(handler, 403) if first else server(first, most=250_000)(handler)

    with ExitStack() as stack:
        one, two = (stack.enter_context(mirror(answer)) for answer in (dying, server(second)))
        objects = HttpObjects([one, two])
        stack.callback(objects.close)
        each = objects.each()
        ordered = MultiSource({"1": each[one], "2": each[two]})
        assert ordered(KEY, len(DATA)) == DATA
        assert first == [(0, 250_000)]
        assert second == [(250_000, 150_000)]
        assert not ordered.stats["1"].spoilt


def test_a_hedge_goes_on_where_the_slow_one_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The slow one stops after a half; nobody waits for the 30 s that a read may take."""
    for name in ("MIN_HEDGE_SECONDS", "SILENCE_SECONDS"):
        monkeypatch.setattr(sources, name, 0.05)
    log: Log = []

    def half(key: str, limit: int, resume_from: PartialDownload) -> None:
        resume_from.begin_answer()
        resume_from.append(DATA[:200_000])
        while not resume_from.abandoned:
            time.sleep(0.01)
        resume_from.append(b"")
        raise AssertionError("it was told that nobody waits")

    with mirror(server(log)) as base:
        objects = HttpObjects([base])
        both = MultiSource({"1": half, "2": objects.each()[base]})
        assert both(KEY, len(DATA)) == DATA
        objects.close()
    assert log == [(200_000, 200_000)]


def test_a_break_of_everything_is_gone_on_with_later() -> None:
    log: Log = []
    up = [True]

    def fragile(handler: BaseHTTPRequestHandler) -> None:
        if not up[0]:
            return send(handler, 403)
        up[0] = False
        return server(log, most=300_000, broken=1)(handler)

    with mirror(fragile) as base:
        objects = HttpObjects([base])
        only = MultiSource(objects.each())
        with pytest.raises(UnreachableError):
            only(KEY, len(DATA))
        up[0] = True
        assert only(KEY, len(DATA)) == DATA
        objects.close()
    assert [start for start, _ in log] == [0, 300_000]


def test_wrong_bytes_of_a_source_that_broke_off_cost_one_more_download() -> None:
    """The honest one goes on with them, finds the hash wrong, begins anew, and only the liar is blamed."""
    bad, good = Log(), Log()

    def poisoner(handler: BaseHTTPRequestHandler) -> None:
        server(bad, most=250_000, data=WRONG)(handler) if not bad else send(handler, 403)

    with mirror(poisoner) as one, mirror(server(good)) as two:
        objects = HttpObjects([one, two])
        each = objects.each()
        both = MultiSource({"1": each[one], "2": each[two]})
        assert both(KEY, len(DATA)) == DATA
        assert good == [(250_000, 150_000), (0, len(DATA))]
        assert both.stats["1"].spoilt
        assert not both.stats["2"].spoilt
        assert both.stats["2"].failures == 0
        bad.clear()
        both.stats["1"].failures, both.stats["1"].rate = 0, 1e12
        assert both(KEY, len(DATA)) == DATA
        assert good[2:] == [(0, len(DATA))], "nobody goes on with what it leaves"
        objects.close()


def test_wrong_bytes_in_the_part_that_was_resumed() -> None:
    """The second source lies, and lies again from the first byte: a third one completes it."""
    first, bad, good = Log(), Log(), Log()

    def dying(handler: BaseHTTPRequestHandler) -> None:
        send(handler, 403) if first else server(first, most=250_000)(handler)

    with mirror(dying) as one, mirror(server(bad, data=WRONG)) as two, mirror(server(good)) as three:
        objects = HttpObjects([one, two, three])
        each = objects.each()
        all_three = MultiSource({"1": each[one], "2": each[two], "3": each[three]})
        assert all_three(KEY, len(DATA)) == DATA
        assert bad == [(250_000, 150_000), (0, len(DATA))]
        assert good == [(250_000, 150_000)], "the honest beginning was still of use"
        assert not all_three.stats["1"].spoilt
        assert all_three.stats["2"].failures == 1
        objects.close()


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


def test_a_source_that_breaks_off_and_lies_each_time_is_refused() -> None:
    log: Log = []
    with mirror(server(log, most=150_000, data=WRONG)) as base, pytest.raises(MusterError):
        download(f"{base}/{KEY}", KEY, len(DATA), NEAR)
    assert [start for start, _ in log] == [0, 150_000, 300_000, 0, 150_000]
