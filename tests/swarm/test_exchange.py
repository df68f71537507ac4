"""A folder and a real bucket are the same to a member."""

import secrets
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import pytest

from protocol.errors import IntegrityError, UnreachableError
from storage.keys import MissingObjectError, object_key
from storage.s3 import Bucket
from swarm.envelope import seal
from swarm.exchange import (
    BucketExchange,
    Exchange,
    FolderExchange,
    ListingEntry,
    RefusedForGood,
    envelope_key,
    own_entry,
)
from swarm.member import EnvelopeOutbox
from tests.storage.conftest import bucket, s3
from tests.swarm.samples import KEYS, honest_envelope

__all__ = ["bucket", "s3"]


@pytest.fixture(params=["folder", "bucket"])
def exchange(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Exchange]:
    if request.param == "folder":
        yield FolderExchange(tmp_path)
    else:
        yield BucketExchange(request.getfixturevalue("bucket"))


def shared(key: int, number: int = 0) -> bytes:
    return seal(honest_envelope(key, number), KEYS[key])


def test_left_and_found(exchange: Exchange) -> None:
    data = shared(0)
    key = exchange.publish(data)
    assert key == envelope_key(data) == exchange.publish(data)
    entry = ListingEntry(key, KEYS[0].address.lower())
    assert list(exchange.listed()).count(entry) == 1
    assert exchange.get(entry, 10_000) == data
    with pytest.raises(IntegrityError):
        exchange.get(entry, 10)
    for elsewhere in (ListingEntry(key), ListingEntry(object_key("envelopes", bytes(32)), entry.peer)):
        with pytest.raises(MissingObjectError):
            exchange.get(elsewhere, 100)


@pytest.mark.parametrize("start", ["00000000", "80000000", "ffffffff"])
@pytest.mark.parametrize("kind", ["", "0x"])
def test_a_listing_that_begins_anywhere_has_every_envelope_once(
    exchange: Exchange, kind: str, start: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets, "token_hex", lambda _size: start)
    monkeypatch.setattr(secrets, "choice", lambda _kinds: kind)
    there = set(exchange.listed())
    for key, number in product(range(3), range(4)):
        exchange.publish(shared(key, number))
    left = {
        ListingEntry(envelope_key(shared(key, number)), KEYS[key].address.lower())
        for key, number in product(range(3), range(4))
    }
    found = list(exchange.listed())
    assert sorted(found) == sorted(there | left)
    if isinstance(exchange, BucketExchange):
        places = [one.path for one in found]
        assert places == sorted(places, key=lambda place: (place <= f"envelopes/{kind}{start}", place))


def test_what_a_gate_put_into_the_bucket_is_listed_as_nobodys(bucket: Bucket) -> None:
    data = shared(1, 77)
    bucket.put(envelope_key(data), data)
    entry = ListingEntry(envelope_key(data))
    exchange = BucketExchange(bucket)
    assert entry in list(exchange.listed())
    assert exchange.get(entry, 10_000) == data


def test_changed_bytes_are_noticed(exchange: Exchange, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    entry = own_entry(shared(0, 5))
    if isinstance(exchange, FolderExchange):
        exchange.publish(shared(0, 5))
        (tmp_path / entry.path).write_bytes(b"wrong")
    else:
        request.getfixturevalue("bucket").put_first(entry.path, b"wrong")
    with pytest.raises(IntegrityError):
        exchange.get(entry, 100)


def test_a_folder_of_what_is_no_envelope_lists_those_that_are(tmp_path: Path) -> None:
    """A link to another folder, a folder that cannot be read, a file with an address for its name, other names."""
    exchange, inside = FolderExchange(tmp_path), tmp_path / "envelopes"
    exchange.publish(shared(0))
    entry = own_entry(shared(0))
    (inside / ("0x" + "a" * 40)).symlink_to(inside / entry.peer)
    (inside / ("0x" + "b" * 40)).write_bytes(b"")
    (inside / ("0x" + "c" * 40)).symlink_to("nowhere")
    (inside / "notes").mkdir()
    (inside / entry.peer / "notes.txt").write_bytes(b"")
    (inside / entry.peer / "deeper").mkdir()
    assert list(exchange.listed()) == [entry]


def test_what_is_gone_says_so(tmp_path: Path) -> None:
    exchange = FolderExchange(tmp_path / "gone")
    calls: list[Callable[[], object]] = [
        lambda: exchange.publish(shared(0)),
        lambda: list(exchange.listed()),
        lambda: exchange.get(ListingEntry(object_key("envelopes", bytes(32))), 1),
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
    assert list(exchange.listed()) == [own_entry(seal(second, KEYS[0]))]
    assert not outbox.waiting
    assert outbox.signed == 1
