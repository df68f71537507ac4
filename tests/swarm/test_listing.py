"""Who leaves much is fetched no more often than others, whoever says whose it is."""

import hashlib
import random
from functools import partial
from itertools import islice
from pathlib import Path

import pytest

from swarm.config import MixConfig
from swarm.envelope import seal
from swarm.exchange import FolderExchange, ListingEntry, own_entry, take_turns
from swarm.inbox import EnvelopeInbox
from swarm.inspection import Inspector
from tests.swarm.samples import ENVIRONMENTS, KEYS, LIMITS, honest_envelope

ADDRESS = "0x" + "ab" * 20
KEY = f"envelopes/{'0' * 64}.json"
FLOOD, HONEST = KEYS[1], KEYS[0]


def rank(entry: ListingEntry) -> tuple[bool, bytes]:
    return False, hashlib.sha256(entry.path.encode()).digest()


def order(peer: str) -> bytes:
    return hashlib.sha256(peer.encode()).digest()


def order_of_round(number: int, peer: str) -> bytes:
    return order(f"{number} {peer}")


def entries(peer: str, count: int) -> list[ListingEntry]:
    return [ListingEntry(hashlib.sha256(f"{peer} {number}".encode()).hexdigest(), peer) for number in range(count)]


def inbox_of(receiver: int = 0, **mix: int) -> EnvelopeInbox:
    usual = Inspector(LIMITS, ENVIRONMENTS)
    return EnvelopeInbox(usual, MixConfig.model_validate(mix), KEYS[2].address, bytes([receiver]) * 32)


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
    chosen = [take_turns(left, 40, rank, partial(order_of_round, at)) for at in range(20)]
    flooding = sum(int(one.peer) < 100 for those in chosen for one in those)
    assert 140 < flooding < 260
    assert len({one.peer for those in chosen for one in those}) > 300, "somebody else in every round"


def test_what_is_to_come_last_comes_after_everybodys() -> None:
    late = set(entries("late", 8))
    chosen = take_turns([*late, *entries("a", 9)], 12, lambda one: (one in late, rank(one)[1]), order)
    assert [one.peer for one in chosen] == ["a"] * 9 + ["late"] * 3


def test_a_flood_below_ones_own_address_keeps_nobody_waiting(tmp_path: Path) -> None:
    exchange = FolderExchange(tmp_path)
    for number in range(12):
        exchange.publish(seal(honest_envelope(1, number, (0,)), FLOOD))
    exchange.publish(seal(honest_envelope(0, 0, (0,)), HONEST))
    for receiver in range(6):
        inbox = inbox_of(receiver, fetched=2)
        assert inbox.collect(exchange, 0) == 2
        assert set(inbox.state.seen) == {HONEST.address, FLOOD.address}


def test_who_floods_below_another_address_is_not_read_there(tmp_path: Path) -> None:
    """Else it would have others' turns; and the copy hides nothing of what lies in its place."""
    exchange, inbox = FolderExchange(tmp_path), inbox_of(fetched=64)
    flood = [seal(honest_envelope(1, number, (0,)), FLOOD) for number in range(4)]
    for data in flood:
        wrong = tmp_path / own_entry(data)._replace(peer=ADDRESS).path
        wrong.parent.mkdir(parents=True, exist_ok=True)
        wrong.write_bytes(data)
    assert inbox.collect(exchange, 0) == 0
    assert not inbox.state.records, "nobody is blamed: anybody could have put it there"
    exchange.publish(flood[0])
    assert inbox.collect(exchange, 1) == 1


def test_wrong_bytes_below_another_address_hide_nothing(tmp_path: Path) -> None:
    data = seal(honest_envelope(), HONEST)
    exchange, inbox = FolderExchange(tmp_path), inbox_of()
    wrong = tmp_path / own_entry(data)._replace(peer=ADDRESS).path
    wrong.parent.mkdir(parents=True)
    wrong.write_bytes(b"{}")
    assert inbox.collect(exchange, 0) == 0
    exchange.publish(data)
    assert inbox.collect(exchange, 1) == 1


def test_the_same_envelope_in_two_places_is_one(tmp_path: Path) -> None:
    data = seal(honest_envelope(), HONEST)
    exchange, inbox = FolderExchange(tmp_path), inbox_of()
    exchange.publish(data)
    (tmp_path / own_entry(data).key).write_bytes(data)
    assert len(list(islice(exchange.listed(), 5))) == 2
    assert sum(inbox.collect(exchange, number) for number in range(3)) == 1
    assert not inbox.state.records[HONEST.address].breaches
