"""Several sources, some of them slow, broken or hostile."""

import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from protocol.errors import IntegrityError, MusterError, UnreachableError
from storage import sources
from storage.keys import MissingObjectError
from storage.partial import PartialDownload
from storage.sources import MultiSource, Source, TransferStats
from tests.storage.mirror import drip, endless, redirect_to, send
from tests.storage.mirror import sources as mirrors
from tests.storage.weights.stepping import Origin

MB = 1 << 20


def good(key: str, limit: int, resume_from: PartialDownload) -> None:
    resume_from.append(key.encode())


def failing(error: MusterError) -> Source:
    def source(key: str, limit: int, resume_from: PartialDownload) -> None:
        raise error

    return source


def test_the_faster_one_is_expected_earlier_and_load_counts() -> None:
    fast, slow, new = TransferStats(), TransferStats(), TransferStats()
    fast.succeeded(10 * MB, 1.0)
    slow.succeeded(MB, 1.0)
    assert new.expected(MB) == 0.0, "who is not known is tried"
    new.busy = 1
    assert new.expected(MB) > fast.expected(MB)
    assert fast.expected(MB) < slow.expected(MB)
    fast.busy = 20
    assert fast.expected(MB) > slow.expected(MB)
    slow.failed()
    slow.failed()
    assert slow.expected(MB) > fast.expected(MB)
    slow.succeeded(MB, 1.0)
    assert slow.failures == 0


def test_little_that_came_at_once_says_nothing_of_a_pace() -> None:
    """A manifest takes as long as the way there and back: whoever sent it would never be asked for a shard."""
    stats, slow = TransferStats(), TransferStats()
    stats.succeeded(5_000, 0.2)
    assert stats.rate == 0.0
    stats.succeeded(10 * MB, 1.0)
    stats.succeeded(5_000, 0.2)
    assert stats.rate == 10 * MB
    slow.succeeded(10, 10.0)
    assert slow.rate == 1.0


def test_a_broken_source_is_hardly_asked_again() -> None:
    asked: Counter[str] = Counter()

    def counted(name: str, source: Source) -> Source:
        def ask(key: str, limit: int, resume_from: PartialDownload) -> None:
            asked[name] += 1
            source(key, limit, resume_from)

        return ask

    sources = {"bad": failing(IntegrityError("poison")), "one": good, "two": good}
    objects = MultiSource({name: counted(name, source) for name, source in sources.items()})
    for number in range(60):
        assert objects(f"key {number}", MB) == f"key {number}".encode()
    assert asked["bad"] <= 2
    assert asked["one"] + asked["two"] >= 60


def test_a_stuck_source_is_hedged(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MIN_HEDGE_SECONDS", "SILENCE_SECONDS"):
        monkeypatch.setattr(sources, name, 0.02)
    stuck = threading.Event()

    def never(key: str, limit: int, resume_from: PartialDownload) -> None:
        stuck.wait()
        raise UnreachableError("too late")

    objects = MultiSource({"a": never, "b": good})
    try:
        assert [objects(f"key {number}", 10) for number in range(5)] == [b"key %d" % number for number in range(5)]
        assert objects.stats["a"].busy == 1, "it is not asked again meanwhile"
    finally:
        stuck.set()


def test_what_answers_is_said_rather_than_what_does_not() -> None:
    missing, gone = MissingObjectError("none"), UnreachableError("down")
    with pytest.raises(MissingObjectError):
        MultiSource({"a": failing(gone), "b": failing(missing)})("key", 1)
    with pytest.raises(UnreachableError):
        MultiSource({"a": failing(gone), "b": failing(gone)})("key", 1)

    def bug(key: str, limit: int, resume_from: PartialDownload) -> None:
        raise RuntimeError("bug")

    def died(key: str, limit: int, resume_from: PartialDownload) -> None:
        raise SystemExit(3)

    for source in (bug, died):
        with pytest.raises(MusterError, match="source b failed"):
            MultiSource({"a": failing(gone), "b": source})("key", 1)
    assert MultiSource({"a": failing(missing), "b": bug, "c": good})("key", 1) == b"key"


def test_a_source_that_lacks_a_shard_is_not_blamed() -> None:
    objects = MultiSource({"a": failing(MissingObjectError("not yet")), "b": good})
    objects("key", 1)
    assert objects.stats["a"].failures == 0


def test_a_step_comes_although_most_sources_are_hostile(origin: Origin, tmp_path: Path) -> None:
    """Poison, an endless answer, a drip, a redirect loop, a lie for every client, and one honest source."""
    served: Counter[str] = Counter()

    def honest(handler: BaseHTTPRequestHandler) -> None:
        data = origin.objects.get(handler.path.removeprefix("/"))
        send(handler, 200, data) if data is not None else send(handler, 404)

    def lying(handler: BaseHTTPRequestHandler) -> None:
        served["lies"] += 1
        send(handler, 200, b"%d" % served["lies"] * 100)

    def looping(handler: BaseHTTPRequestHandler) -> None:
        redirect_to(handler.path)(handler)

    with mirrors(lying, endless, drip, looping, honest, timeout=2.0) as asked:
        for step in (0, 1):
            origin.fetch(step, tmp_path / "cache", source=asked)
    assert served["lies"] < 12
