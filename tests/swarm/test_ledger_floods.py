"""Whoever fills the bucket makes the ledger short, and keeps no other member out of it."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from environments.texts import TextEnvironments
from protocol.swarm.envelope import seal
from swarm import inspection, ledger_reader
from swarm.ledger import SwarmLedger
from swarm.ledger_reader import OPENING, LedgerReader
from swarm.listing import ListingEntry
from swarm.shares import same_shares
from swarm.standings import friends
from tests.protocol.swarm.samples import KEYS, LIMITS, honest_envelope, honest_group
from tests.swarm.test_hostile_exchange import ScoringClock, SlowTexts, slow_envelope
from tests.swarm.test_ledger import FIRST, SECOND, LedgerShelf, read, signed


def rounds_of(found: SwarmLedger, member: str) -> list[int]:
    return sorted(found.members[member].rewards)


def test_of_everybody_as_many_and_the_newest() -> None:
    flood = [signed(0, number, (0,)) for number in range(60)]
    honest = [signed(1, number, (0,)) for number in range(8)]
    found = read(LedgerShelf(*flood, *honest), most=10)
    assert rounds_of(found, SECOND) == [3, 4, 5, 6, 7]
    assert rounds_of(found, FIRST) == [55, 56, 57, 58, 59]
    assert (found.members[FIRST].left_out, found.members[SECOND].left_out, found.whole) == (55, 3, False)
    found = read(LedgerShelf(*flood, *honest), most=20)
    assert (len(rounds_of(found, FIRST)), len(rounds_of(found, SECOND))) == (12, 8), "what one does not need"


def test_what_no_member_signed_takes_nobodys_place() -> None:
    honest = [signed(0, number, (0,)) for number in range(3)]
    strangers = [signed(2, number, (0,)) for number in range(40)]
    found = read(LedgerShelf(*strangers, *(b"junk %d" % number for number in range(40)), *honest), most=3)
    assert rounds_of(found, FIRST) == [0, 1, 2]
    assert (found.refused, found.whole) == (80, True)


def test_many_envelopes_of_one_round_take_one_place() -> None:
    group = honest_group(FIRST, 9, 0)
    said = [one.model_copy(update={"logprob": -1 - at}) for at in range(30) for one in group.completions[:1]]
    flood = [
        seal(
            honest_envelope(0, 9, (0,)).model_copy(
                update={"groups": [group.model_copy(update={"completions": [one, group.completions[1]]})]}
            ),
            KEYS[0],
        )
        for one in said
    ]
    found = read(LedgerShelf(*flood, signed(0, 1), signed(1, 0)), most=3)
    assert (rounds_of(found, FIRST), rounds_of(found, SECOND)) == ([1, 9], [0])
    assert found.members[FIRST].breaches == {"two envelopes of one round": 29}
    assert found.whole


def test_one_key_that_is_listed_twice_is_one_envelope() -> None:
    shelf = LedgerShelf(signed(0, 0))
    keys = [*shelf.held, *shelf.held]
    shelf.listed = lambda: map(ListingEntry, keys)  # type: ignore[method-assign]
    found = read(shelf)
    assert (found.envelopes, found.members[FIRST].breaches) == (1, {})


class CountingLedgerShelf(LedgerShelf):
    """Each fetch takes a second; listed are the first ones first."""

    def __init__(self, clock: ScoringClock, *held: bytes) -> None:
        super().__init__(*held)
        self._clock, self.fetched = clock, 0

    def listed(self) -> Iterator[ListingEntry]:
        return map(ListingEntry, self.held)

    def get(self, entry: ListingEntry, limit: int) -> bytes:
        self._clock.now += 1
        self.fetched += 1
        return super().get(entry, limit)


@pytest.mark.parametrize("room", [True, False])
def test_what_there_is_no_room_for_is_fetched_again(
    room: bool, clock: ScoringClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Strangers' envelopes take none."""
    strangers = [signed(2, number, (0,)) for number in range(20)]
    honest = [signed(0, number) for number in range(9)]
    monkeypatch.setattr(ledger_reader, "_AT_ONCE", 1)
    monkeypatch.setattr(ledger_reader, "_KEPT_BYTES", sum(map(len, honest)) + len(strangers[-1]) if room else 0)
    shelf = CountingLedgerShelf(clock, *strangers, *honest)
    found = read(shelf)
    assert rounds_of(found, FIRST) == list(range(9))
    assert shelf.fetched == (29 if room else 38)
    assert (found.unjudged, found.refused) == (0, 20)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ScoringClock:
    made = ScoringClock()
    for module in (ledger_reader, inspection):
        monkeypatch.setattr(module, "time", made)
    return made


def test_nobody_knows_what_is_read_first(clock: ScoringClock) -> None:
    """Half of what lies there can be opened in time: about half of the honest ones, wherever they are listed."""
    junk, honest = [b"junk %d" % at for at in range(360)], [signed(0, number, (0,)) for number in range(40)]
    shelf = CountingLedgerShelf(clock, *junk, *honest)
    found = read(shelf, seconds=200 / OPENING)
    assert shelf.fetched == 200
    assert 5 < len(rounds_of(found, FIRST)) < 35, "chances outside are under one in a million"
    assert not found.whole


def test_slow_texts_keep_nobody_from_being_judged(clock: ScoringClock) -> None:
    """Five envelopes of twelve seconds each, where there are ten seconds for all."""
    slow = [slow_envelope(number) for number in range(5)]
    honest = [signed(0, number) for number in range(12)]
    texts: TextEnvironments = SlowTexts(clock)
    found = LedgerReader(LIMITS, texts, friends((FIRST, SECOND))).read(LedgerShelf(*slow, *honest), 100, 10)
    assert rounds_of(found, FIRST) == list(range(12))
    assert clock.now <= 12
    assert (found.unjudged + found.members[SECOND].left_out, found.whole) == (5, False)


@given(st.dictionaries(st.text(max_size=3), st.integers(0, 40), max_size=8), st.integers(0, 120))
def test_same_shares(wanted: dict[str, int], most: int) -> None:
    given_out = {name: len(one) for name, one in same_shares({k: range(v) for k, v in wanted.items()}, most).items()}
    assert sum(given_out.values()) == min(most, sum(wanted.values())), "nothing is left while somebody wants more"
    short = [count for name, count in given_out.items() if count < wanted[name]]
    assert all(count <= min(short) + 1 for count in given_out.values() if short), "nobody has less than another"
