"""A folder and a real bucket are the same to a member."""

import hashlib
import random
import secrets
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice, product
from pathlib import Path

import pytest

from protocol.errors import IntegrityError, UnreachableError
from storage.keys import MissingObjectError, object_key
from storage.s3 import Bucket
from swarm import inbox as inbox_module
from swarm.exchange import (
    BucketExchange,
    Exchange,
    FolderExchange,
    ListingEntry,
    RefusedForGood,
    envelope_key,
    own_entry,
    take_turns,
)
from swarm.member import EnvelopeOutbox
from tests.storage.conftest import bucket, s3
from tests.swarm.samples import KEYS, honest_envelope, inbox_of, signed

__all__ = ["bucket", "s3"]


@pytest.fixture(params=["folder", "bucket"])
def exchange(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Exchange]:
    if request.param == "folder":
        yield FolderExchange(tmp_path)
    else:
        yield BucketExchange(request.getfixturevalue("bucket"))


def test_left_and_found(exchange: Exchange) -> None:
    data = signed(0)
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
    left = {
        ListingEntry(exchange.publish(signed(key, number)), KEYS[key].address.lower())
        for key, number in product(range(3), range(4))
    }
    found = list(exchange.listed())
    assert sorted(found) == sorted(there | left)
    if isinstance(exchange, BucketExchange):
        places = [one.path for one in found]
        assert places == sorted(places, key=lambda place: (place <= f"envelopes/{kind}{start}", place))


def test_what_a_gate_put_into_the_bucket_is_listed_as_nobodys(bucket: Bucket) -> None:
    data = signed(1, 77)
    bucket.put(envelope_key(data), data)
    entry = ListingEntry(envelope_key(data))
    exchange = BucketExchange(bucket)
    assert entry in list(exchange.listed())
    assert exchange.get(entry, 10_000) == data


def test_changed_bytes_are_noticed(exchange: Exchange, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    entry = own_entry(signed(0, 5))
    if isinstance(exchange, FolderExchange):
        exchange.publish(signed(0, 5))
        (tmp_path / entry.path).write_bytes(b"wrong")
    else:
        request.getfixturevalue("bucket").put_first(entry.path, b"wrong")
    with pytest.raises(IntegrityError):
        exchange.get(entry, 100)


def test_a_folder_of_what_is_no_envelope_lists_those_that_are(tmp_path: Path) -> None:
    """A link to another folder, a folder that cannot be read, a file with an address for its name, other names."""
    exchange, inside = FolderExchange(tmp_path), tmp_path / "envelopes"
    exchange.publish(signed(0))
    entry = own_entry(signed(0))
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
        lambda: exchange.publish(signed(0)),
        lambda: list(exchange.listed()),
        lambda: exchange.get(ListingEntry(object_key("envelopes", bytes(32))), 1),
    ]
    for call in calls:
        with pytest.raises(UnreachableError):
            call()


class RefusingExchange(FolderExchange):
    """Takes the first member's round 0 never."""

    def publish(self, data: bytes) -> str:
        if data == signed(0, 0):
            raise RefusedForGood("another envelope of that round is there")
        return super().publish(data)


def test_what_is_refused_for_good_holds_up_nothing_that_comes_after_it(tmp_path: Path) -> None:
    outbox, exchange = EnvelopeOutbox(tmp_path / "outbox", KEYS[0]), RefusingExchange(tmp_path)
    for number in (0, 1):
        outbox.put(honest_envelope(0, number))
    outbox.send(exchange)
    assert list(exchange.listed()) == [own_entry(signed(0, 1))]
    assert not outbox.waiting
    assert outbox.signed == 1


# Turns of peers


ADDRESS = "0x" + "ab" * 20
KEY = f"envelopes/{'0' * 64}.json"


def rank(entry: ListingEntry) -> tuple[bool, bytes]:
    return False, hashlib.sha256(entry.path.encode()).digest()


def order(peer: str, number: int = 0) -> bytes:
    return hashlib.sha256(f"{number} {peer}".encode()).digest()


def entries(peer: str, count: int) -> list[ListingEntry]:
    return [ListingEntry(hashlib.sha256(f"{peer} {number}".encode()).hexdigest(), peer) for number in range(count)]


def test_a_place_says_whose_it_is() -> None:
    for entry in (ListingEntry(KEY, ADDRESS), ListingEntry(KEY)):
        assert ListingEntry.from_path(entry.path) == entry
    assert ListingEntry(KEY, ADDRESS).path == f"envelopes/{ADDRESS}/{'0' * 64}.json"
    for other in ("", "envelopes/", f"envelopes/{ADDRESS}", f"envelopes/{ADDRESS}/{ADDRESS}/{'0' * 64}.json",
                  f"rollouts/{'0' * 64}.json", KEY + "\n", KEY.replace("0", "A"), f"envelopes/../{KEY}"):  # fmt: skip
        assert ListingEntry.from_path(other) is None


@pytest.mark.parametrize("seed", range(3))
def test_everybody_has_as_many_whatever_somebody_leaves(seed: int) -> None:
    left = entries("flood", 5000) + [one for n in range(30) for one in entries(f"honest-{n}", 2)]
    random.Random(seed).shuffle(left)
    chosen = take_turns(left, 40, rank, order)
    peers = [one.peer for one in chosen]
    assert len(set(chosen)) == 40
    assert peers.count("flood") in (1, 2)
    assert len(set(peers)) == 31, "a first one of everybody before a second of anybody"
    assert chosen == take_turns(reversed(left), 40, rank, order), "whatever the listing's order"


def test_which_of_them_are_fetched_follows_from_the_rank_alone() -> None:
    left = [one for number in range(300) for one in entries(f"{number}", 1)]
    assert take_turns(left, 5, rank, order) == sorted(left, key=lambda one: order(one.peer))[:5]
    assert take_turns(entries("a", 300), 5, rank, order) == sorted(entries("a", 300), key=rank)[:5]


def test_who_leaves_much_does_not_come_first_either() -> None:
    """Of a hundred who left eight each and three hundred who left one, a quarter of those who are fetched."""
    left = [one for n in range(400) for one in entries(f"{n}", 8 if n < 100 else 1)]
    chosen = [take_turns(left, 40, rank, partial(order, number=at)) for at in range(20)]
    flooding = sum(int(one.peer) < 100 for those in chosen for one in those)
    assert 140 < flooding < 260
    assert len({one.peer for those in chosen for one in those}) > 300, "somebody else in every round"


def test_what_is_to_come_last_comes_after_everybodys() -> None:
    late = set(entries("late", 8))
    chosen = take_turns([*late, *entries("a", 9)], 12, lambda one: (one in late, rank(one)[1]), order)
    assert [one.peer for one in chosen] == ["a"] * 9 + ["late"] * 3


def test_a_flood_below_ones_own_address_keeps_nobody_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox_module, "FETCHED", 2)
    exchange = FolderExchange(tmp_path)
    for number in range(12):
        exchange.publish(signed(1, number, (0,)))
    exchange.publish(signed(0, 0, (0,)))
    for receiver in range(6):
        inbox = inbox_of(receiver=receiver)
        assert inbox.collect(exchange, 0) == 2
        assert set(inbox.state.seen) == {KEYS[0].address, KEYS[1].address}


@pytest.mark.parametrize("wrong", [None, b"{}"])
def test_what_lies_below_another_address_is_not_read_there_and_hides_nothing(
    tmp_path: Path, wrong: bytes | None
) -> None:
    """Else who floods there would have others' turns."""
    exchange, inbox = FolderExchange(tmp_path), inbox_of()
    flood = [signed(1, number, (0,)) for number in range(4)]
    for data in flood:
        path = tmp_path / own_entry(data)._replace(peer=ADDRESS).path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(wrong or data)
    assert inbox.collect(exchange, 0) == 0
    assert not inbox.state.records, "nobody is blamed: anybody could have put it there"
    exchange.publish(flood[0])
    assert inbox.collect(exchange, 1) == 1


def test_the_same_envelope_in_two_places_is_one(tmp_path: Path) -> None:
    data = signed()
    exchange, inbox = FolderExchange(tmp_path), inbox_of()
    exchange.publish(data)
    (tmp_path / own_entry(data).key).write_bytes(data)
    assert len(list(islice(exchange.listed(), 5))) == 2
    assert sum(inbox.collect(exchange, number) for number in range(3)) == 1
    assert not inbox.state.records[KEYS[0].address].breaches
