"""A folder and a real bucket are the same to a member."""

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from protocol.errors import IntegrityError, UnreachableError
from protocol.swarm.envelope import seal
from storage.keys import MissingObjectError, object_key
from swarm.exchange import BucketExchange, Exchange, FolderExchange, RefusedForGood, envelope_key
from swarm.outbox import EnvelopeOutbox
from tests.protocol.swarm.samples import KEYS, honest_envelope
from tests.storage.conftest import bucket, s3

__all__ = ["bucket", "s3"]


@pytest.fixture(params=["folder", "bucket"])
def exchange(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Exchange]:
    if request.param == "folder":
        yield FolderExchange(tmp_path)
    else:
        yield BucketExchange(request.getfixturevalue("bucket"))


def test_left_and_found(exchange: Exchange) -> None:
    data = b"an envelope, to whoever stores it"
    key = exchange.publish(data)
    assert key == envelope_key(data) == exchange.publish(data)
    assert key in list(exchange.keys())
    assert exchange.get(key, 100) == data
    with pytest.raises(IntegrityError):
        exchange.get(key, 10)
    with pytest.raises(MissingObjectError):
        exchange.get(object_key("envelopes", bytes(32)), 100)


@pytest.mark.parametrize("start", ["00000000", "80000000", "ffffffff"])
def test_a_listing_that_begins_anywhere_has_every_key_once(
    exchange: Exchange, start: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets, "token_hex", lambda _size: start)
    there = set(exchange.keys())
    left = [exchange.publish(b"%d" % number) for number in range(24)]
    assert {key[10:11] < "8" for key in left} == {True, False}
    found = list(exchange.keys())
    assert sorted(found) == sorted(there | set(left))
    if isinstance(exchange, BucketExchange):
        assert found == sorted(found, key=lambda key: (key < "envelopes/" + start, key))


def test_changed_bytes_are_noticed(tmp_path: Path) -> None:
    exchange = FolderExchange(tmp_path)
    key = exchange.publish(b"right")
    (tmp_path / key).write_bytes(b"wrong")
    with pytest.raises(IntegrityError):
        exchange.get(key, 100)


def test_what_is_gone_says_so(tmp_path: Path) -> None:
    exchange = FolderExchange(tmp_path / "gone")
    calls: list[Callable[[], object]] = [
        lambda: exchange.publish(b"x"),
        lambda: list(exchange.keys()),
        lambda: exchange.get(object_key("envelopes", bytes(32)), 1),
    ]
    for call in calls:
        with pytest.raises(UnreachableError):
            call()


class RefusingExchange(FolderExchange):
    """Takes nothing for good that begins with these bytes."""

    def __init__(self, folder: Path, start: bytes) -> None:
        super().__init__(folder)
        self._start = start

    def publish(self, data: bytes) -> str:
        if data.startswith(self._start):
            raise RefusedForGood("another envelope of that round is there")
        return super().publish(data)


def test_what_is_refused_for_good_holds_up_nothing_that_comes_after_it(tmp_path: Path) -> None:
    first, second = (honest_envelope(0, number) for number in (0, 1))
    outbox = EnvelopeOutbox(tmp_path / "outbox", KEYS[0])
    outbox.put(first)
    outbox.put(second)
    exchange = RefusingExchange(tmp_path, seal(first, KEYS[0]))
    outbox.send(exchange)
    assert list(exchange.keys()) == [envelope_key(seal(second, KEYS[0]))]
    assert not outbox.waiting
    assert outbox.signed == 1
