"""A folder and a real bucket are the same to a member."""

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from protocol.errors import IntegrityError, UnreachableError
from storage.keys import MissingObjectError, object_key
from swarm.exchange import BucketExchange, Exchange, FolderExchange, envelope_key
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
