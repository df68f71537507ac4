"""The ledger believes nobody: what it counts was scored again, and what is no envelope of a member counts for none."""

import random
from collections.abc import Iterator

import pytest

from protocol.errors import ConfigError, UnreachableError
from protocol.swarm.envelope import Envelope, seal
from protocol.swarm.seeds import NO_START
from storage.keys import MissingObjectError, object_key
from swarm.exchange import envelope_key
from swarm.ledger import SwarmLedger
from swarm.ledger_page import curve, ledger_page
from swarm.ledger_reader import LedgerReader
from swarm.listing import ListingEntry
from swarm.standings import MemberStanding, StandingsOf, friends
from tests.protocol.swarm.samples import ENVIRONMENTS, KEYS, LIMITS, honest_envelope, honest_group

FIRST, SECOND, STRANGER = (key.address for key in KEYS)


class LedgerShelf:
    """An exchange of these bytes, and keys that answer with an error."""

    def __init__(self, *held: bytes, failing: Exception | None = None) -> None:
        self.held, self.failing = {envelope_key(one): one for one in held}, failing

    def publish(self, data: bytes) -> str:
        raise AssertionError("a ledger only reads")

    def listed(self) -> Iterator[ListingEntry]:
        failing = [] if self.failing is None else [object_key("envelopes", bytes(32))]
        return map(ListingEntry, ["envelopes/no key.json", *failing, *self.held])

    def get(self, entry: ListingEntry, limit: int) -> bytes:
        if entry.key not in self.held:
            raise self.failing or MissingObjectError(entry.key)
        return self.held[entry.key]


def signed(key: int, number: int, slots: tuple[int, ...] = (0, 1)) -> bytes:
    return seal(honest_envelope(key, number, slots), KEYS[key])


def read(shelf: LedgerShelf, standings: StandingsOf | None = None, most: int = 100, seconds: float = 60) -> SwarmLedger:
    return LedgerReader(LIMITS, ENVIRONMENTS, standings or friends((FIRST, SECOND))).read(shelf, most, seconds)


def with_false_reward(envelope: Envelope) -> Envelope:
    group = envelope.groups[0]
    made = [one.model_copy(update={"reward": 1.0}) for one in group.completions]
    return envelope.model_copy(update={"groups": [group.model_copy(update={"completions": made})]})


def test_what_members_shared() -> None:
    found = read(LedgerShelf(signed(0, 0), signed(0, 3, (1,)), signed(1, 0)))
    first = found.members[FIRST]
    assert (first.groups, first.completions, sorted(first.rewards)) == (3, 6, [0, 3])
    assert first.rewards[0] == 0.5, "one right, one wrong"
    assert first.bytes == len(signed(0, 0)) + len(signed(0, 3, (1,)))
    assert found.members[SECOND].groups == 2
    assert (found.envelopes, found.refused, found.unjudged, found.whole) == (3, 0, 0, True)


def test_a_false_reward_counts_as_a_breach_and_for_nothing_else() -> None:
    found = read(LedgerShelf(seal(with_false_reward(honest_envelope()), KEYS[0]), signed(0, 1)))
    assert found.members[FIRST].breaches == {"false reward": 1}
    assert (found.members[FIRST].groups, sorted(found.members[FIRST].rewards)) == (2, [1])


@pytest.mark.parametrize("turned", [False, True])
def test_of_two_envelopes_of_a_round_one_counts_whatever_is_read_first(
    turned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(random.SystemRandom, "shuffle", lambda _self, _keys: None)
    two = [signed(0, 0, (0,)), signed(0, 0, (0, 1))]
    found = read(LedgerShelf(*(reversed(two) if turned else two))).members[FIRST]
    assert found.breaches == {"two envelopes of one round": 1}
    least = min(two, key=envelope_key)
    assert (found.bytes, found.groups) == (len(least), 1 if least == two[0] else 2)


def test_a_strangers_bytes_count_for_nobody() -> None:
    others = honest_envelope().model_copy(update={"groups": [honest_group(SECOND, 0, 0)]})
    shelf = LedgerShelf(b"", b"{" * 100_000, signed(0, 0)[:-1], signed(2, 0), seal(others, KEYS[0]), signed(1, 0))
    found = read(shelf)
    assert sorted(found.members) == sorted([FIRST, SECOND])
    assert found.members[FIRST].breaches == {"another problem": 1}
    assert (found.refused, found.envelopes) == (4, 6)


def test_one_object_that_cannot_be_read_hides_no_other() -> None:
    found = read(LedgerShelf(signed(0, 0), failing=ConfigError("refused to read (403)")))
    assert (found.unjudged, found.members[FIRST].groups) == (1, 2)
    with pytest.raises(UnreachableError):
        read(LedgerShelf(failing=UnreachableError("gone")))


def test_it_says_that_it_is_not_whole() -> None:
    shelf = LedgerShelf(*(signed(0, number, (0,)) for number in range(4)))
    found = read(shelf, most=3)
    assert (found.envelopes, found.whole, found.members[FIRST].left_out) == (4, False, 1)
    assert read(shelf, most=4).whole
    assert not read(shelf, seconds=0).whole
    assert "more in the bucket than was judged" in ledger_page("sums", found.document())


def test_who_left_stays_in_it_and_whose_start_is_not_fixed_is_not_judged() -> None:
    asked: list[list[str]] = []

    def standings(addresses: object) -> dict[str, MemberStanding]:
        asked.append(list(addresses))  # type: ignore[call-overload]
        return {FIRST: MemberStanding("left", NO_START, 7, 3), SECOND: MemberStanding("member", None)}

    found = read(LedgerShelf(signed(0, 0), signed(1, 0), signed(2, 0), signed(2, 1)), standings)
    assert list(found.members) == [FIRST]
    assert found.document()["members"][FIRST]["standing"] == "left"
    assert asked == [sorted([FIRST, SECOND, STRANGER])], "all at once, however many keys there are"


def test_what_a_home_tells() -> None:
    found = read(LedgerShelf(signed(0, 0), signed(1, 0)))
    journal = [
        {"round": 0, "reward": 0.25, "shared": [f"{FIRST}/0/0"], "held_out": [[0, 0.1]]},
        {"round": 1, "reward": 0.5, "shared": [f"{FIRST}/0/1", f"{STRANGER}/0/0"]},
    ]
    found.add_home(SECOND, journal, {"sharers": {FIRST: {"unfit": 2, "doubted": 3}}})
    first, second = found.members[FIRST], found.members[SECOND]
    assert (first.trained, first.unfit, first.doubted, first.took) == (2, 2, 3, 0)
    assert (second.took, second.made, second.held_out) == (3, {0: 0.25, 1: 0.5}, [(0, 0.1)])
    assert STRANGER not in found.members


def test_the_page_is_whole_and_escapes_what_it_is_told() -> None:
    page = ledger_page("<script>alert(1)</script>", read(LedgerShelf(signed(0, 0), signed(0, 1))).document())
    assert "<script" not in page
    assert page.count("<polyline") == 1
    assert FIRST in page


def test_a_curve_is_bounded_however_many_rounds_there_are() -> None:
    drawn = curve({number * 1000: 0.5 for number in range(20_000)}, "reward")
    assert len(drawn) < 2500
    assert 'points="0.0,24.0' in curve({5: 0.5}, "reward")
    assert curve({}, "reward") == "–"
