"""A bucket that lists without an end, and names nothing."""

from http.server import BaseHTTPRequestHandler
from itertools import count

import pytest

from protocol.errors import UnreachableError
from storage import s3
from storage.s3 import MAX_EMPTY_PAGES
from tests.storage.mirror import mirror, send
from tests.storage.refusals import bucket_at

PAGE = (
    '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>b</Name><MaxKeys>1000</MaxKeys>'
    "<IsTruncated>{more}</IsTruncated>{keys}<NextContinuationToken>{at}</NextContinuationToken></ListBucketResult>"
)


class Clock:
    """Stands but for what a page takes."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(s3, "time", clock)
    monkeypatch.setattr(s3, "EMPTY_SECONDS", 1.0)
    return clock


def listed(clock: Clock, keyed: range, last: int, seconds: float = 0.0) -> tuple[list[str], int]:
    """The keys that a listing gives, one on each page whose number is in `keyed`, and how many pages it asks for, each
    of which takes so long."""
    numbers = count()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        at = next(numbers)
        clock.now += seconds
        named = f"<Contents><Key>envelopes/{at}</Key></Contents>" if at in keyed else ""
        send(handler, 200, PAGE.format(more="false" if at == last else "true", keys=named, at=at).encode())

    with mirror(answer) as url:
        try:
            return list(bucket_at(url).list("envelopes/")), next(numbers)
        except UnreachableError as error:
            return [error.what], next(numbers)


def test_empty_pages_without_an_end_are_given_up(clock: Clock) -> None:
    keys, pages = listed(
        clock, range(0), last=50 * MAX_EMPTY_PAGES
    )  # so that a listing that does not give up ends, too
    assert "without an end" in keys[0]
    assert pages <= MAX_EMPTY_PAGES + 2


def test_slow_empty_pages_are_given_up_sooner(clock: Clock) -> None:
    keys, pages = listed(clock, range(0), last=MAX_EMPTY_PAGES - 2, seconds=0.4)
    assert "without an end" in keys[0]
    assert pages < 6


@pytest.mark.parametrize(("keyed", "last", "seconds"), [
    (range(0, 91, 45), 90, 0.0),
    (range(0, 31, 3), 30, 0.4),  # its empty pages take longer in all than they may without a key between them
    (range(0), MAX_EMPTY_PAGES, 0.0),
    (range(0), 0, 0.0),
])  # fmt: skip
def test_some_empty_pages_are_no_fault(clock: Clock, keyed: range, last: int, seconds: float) -> None:
    assert listed(clock, keyed, last, seconds) == ([f"envelopes/{at}" for at in keyed], last + 1)
