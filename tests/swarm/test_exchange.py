"""A real bucket as members use it, and whose envelopes they fetch first."""

import hashlib
import random
import secrets
from functools import partial
from itertools import product
from pathlib import Path

import pytest

from benchmarks.swarm import MemoryExchange
from protocol.errors import IntegrityError
from storage.keys import MissingObjectError, object_key
from storage.s3 import Bucket
from swarm import inbox as inbox_module
from swarm.exchange import BucketExchange, ListingEntry, RefusedForGood, envelope_key, own_entry, take_turns
from swarm.member import EnvelopeOutbox
from tests.storage.conftest import bucket, s3
from tests.swarm.samples import KEYS, honest_envelope, inbox_of, signed

__all__ = ["bucket", "s3"]


@pytest.fixture
def exchange(bucket: Bucket) -> BucketExchange:
    return BucketExchange(bucket)


def test_left_and_found(exchange: BucketExchange) -> None:
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
    exchange: BucketExchange, kind: str, start: str, monkeypatch: pytest.MonkeyPatch
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
    places = [one.path for one in found]
    assert places == sorted(places, key=lambda place: (place <= f"envelopes/{kind}{start}", place))


def test_what_a_gate_put_into_the_bucket_is_listed_as_nobodys(exchange: BucketExchange, bucket: Bucket) -> None:
    data = signed(1, 77)
    bucket.put(envelope_key(data), data)
    entry = ListingEntry(envelope_key(data))
    assert entry in list(exchange.listed())
    assert exchange.get(entry, 10_000) == data


def test_changed_bytes_are_noticed(exchange: BucketExchange, bucket: Bucket) -> None:
    entry = own_entry(signed(0, 5))
    bucket.put_first(entry.path, b"wrong")
    with pytest.raises(IntegrityError):
        exchange.get(entry, 100)


class RefusingExchange(MemoryExchange):
    """Takes the first member's round 0 never."""

    def publish(self, data: bytes) -> str:
        if data == signed(0, 0):
            raise RefusedForGood("another envelope of that round is there")
        return super().publish(data)


def test_what_is_refused_for_good_holds_up_nothing_that_comes_after_it(tmp_path: Path) -> None:
    outbox, exchange = EnvelopeOutbox(tmp_path / "outbox", KEYS[0]), RefusingExchange()
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


def test_a_flood_below_ones_own_address_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox_module, "FETCHED", 2)
    exchange = MemoryExchange()
    for number in range(12):
        exchange.publish(signed(1, number, (0,)))
    exchange.publish(signed(0, 0, (0,)))
    for receiver in range(6):
        inbox = inbox_of(receiver=receiver)
        assert inbox.collect(exchange, 0) == 2
        assert set(inbox.state.seen) == {KEYS[0].address, KEYS[1].address}


@pytest.mark.parametrize("wrong", [None, b"{}"])
def test_what_lies_below_another_address_is_not_read_there_and_hides_nothing(wrong: bytes | None) -> None:
    """Else who floods there would have others' turns."""
    exchange, inbox = MemoryExchange(), inbox_of()
    flood = [signed(1, number, (0,)) for number in range(4)]
    for data in flood:
        exchange.envelopes[own_entry(data)._replace(peer=ADDRESS)] = wrong or data
    assert inbox.collect(exchange, 0) == 0
    assert not inbox.state.records, "nobody is blamed: anybody could have put it there"
    exchange.publish(flood[0])
    assert inbox.collect(exchange, 1) == 1


def test_the_same_envelope_in_two_places_is_one() -> None:
    data = signed()
    exchange, inbox = MemoryExchange(), inbox_of()
    exchange.publish(data)
    exchange.envelopes[ListingEntry(envelope_key(data))] = data
    assert len(list(exchange.listed())) == 2
    assert sum(inbox.collect(exchange, number) for number in range(3)) == 1
    assert not inbox.state.records[KEYS[0].address].breaches
