"""A receiver believes nothing, and who may write to the exchange can withhold envelopes and do nothing else."""

import errno
import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, count
from pathlib import Path

import pytest

from environments.pool import TextEnvironments
from protocol.errors import ConfigError, IntegrityError, ScoringUnavailable, UnreachableError
from storage.keys import object_key
from swarm import inbox as inbox_module
from swarm.envelope import Envelope, SharedGroup, round_problem, seal
from swarm.exchange import ListingEntry, envelope_key
from swarm.inbox import RECENT_ROUNDS, EnvelopeInbox, InboxState, Inspected, Inspector
from swarm.sampling import Breach
from tests.swarm.samples import DOCUMENT, ENVIRONMENTS, KEYS, honest_envelope, honest_group, inbox_of, signed

BAD = object_key("envelopes", bytes(32))
HONEST, OTHER = signed(0), signed(1)


class FailingExchange:
    """Envelopes, and keys that answer with an error of their own. Counts what is fetched."""

    def __init__(self, *envelopes: bytes, failing: dict[str, Exception] | None = None) -> None:
        self.held, self.failing = {envelope_key(one): one for one in envelopes}, failing or {}
        self.gets = 0

    def publish(self, data: bytes) -> str:
        self.held[envelope_key(data)] = data
        return envelope_key(data)

    def listed(self) -> Iterator[ListingEntry]:
        return map(ListingEntry, [*self.failing, *self.held])

    def get(self, entry: ListingEntry, limit: int) -> bytes:
        self.gets += 1
        if entry.key in self.failing:
            raise self.failing[entry.key]
        return self.held[entry.key]


class FaultyInspector(Inspector):
    """Judges nothing while `away`, and never what is of the peers `beyond` it."""

    def __init__(self, *beyond: str, away: bool = False) -> None:
        super().__init__(DOCUMENT, ENVIRONMENTS)
        self.away, self.beyond, self.looks = away, beyond, 0

    def inspect(self, envelope: Envelope, seconds: float = math.inf) -> Inspected:
        self.looks += 1
        found = super().inspect(envelope, seconds)
        if self.away or envelope.member in self.beyond:
            raise ScoringUnavailable("the sandbox does not start")
        return found


def test_one_object_that_cannot_be_read_is_refused_alone() -> None:
    exchange = FailingExchange(HONEST, failing={BAD: ConfigError("S3 refuses to read it (403)")})
    assert inbox_of().collect(exchange, 0) == 1


def test_what_the_disk_has_no_room_for_is_taken_when_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    exchange, inbox = FailingExchange(HONEST), inbox_of()
    with monkeypatch.context() as patch:
        patch.setattr(inbox_module, "write_atomic", full)
        with pytest.raises(OSError, match="No space"):
            inbox.collect(exchange, 0)
    assert inbox.collect(exchange, 0) == 1


def test_a_listing_full_of_what_is_no_envelope_or_was_looked_at_hides_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox_module, "LISTING_SHARE", 100)
    exchange, inbox = FailingExchange(HONEST), inbox_of()
    exchange.listed = lambda: map(ListingEntry, [*map("envelopes/{:064}".format, range(150_000)), envelope_key(HONEST)])  # type: ignore[method-assign]
    assert inbox.collect(exchange, 0) == 1


def test_a_listing_without_end_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox_module, "LISTING_SHARE", 0.05)
    exchange, inbox = FailingExchange(HONEST), inbox_of()
    exchange.listed = lambda: map(ListingEntry, chain([envelope_key(HONEST)], map("envelopes/{}".format, count())))  # type: ignore[method-assign]
    assert inbox.collect(exchange, 0) == 1


def test_one_object_that_is_never_answered_for_holds_up_one_round_and_no_other() -> None:
    later = signed(0, 1)
    exchange, inbox = (
        FailingExchange(HONEST, failing={BAD: UnreachableError("S3 does not answer (500)")}),
        inbox_of(window=2),
    )
    with pytest.raises(UnreachableError):
        inbox.collect(exchange, 0)
    exchange.held[envelope_key(later)] = later
    with pytest.raises(UnreachableError):
        inbox.collect(exchange, 1)
    assert len(inbox.state.stored) == 2, "what answers is asked first"
    with pytest.raises(UnreachableError):
        inbox.collect(exchange, 2)
    inbox.collect(exchange, 3)


def test_what_cannot_be_scored_keeps_no_place_from_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox_module, "FETCHED", 2)
    bad = [signed(1, number) for number in range(4)]
    inspector = FaultyInspector(KEYS[1].address)
    inbox, exchange = inbox_of(inspector=inspector, window=2), FailingExchange(*bad, HONEST)
    taken = sum(inbox.collect(exchange, number) for number in range(4))
    assert taken == 1
    for number in range(4, 20):
        inbox.collect(exchange, number)
    looks = inspector.looks
    inbox.collect(exchange, 20)
    assert inspector.looks == looks, "it is given up when it could not be drawn any more"


def test_one_envelope_takes_no_longer_than_a_round_has_for_all() -> None:
    with pytest.raises(ScoringUnavailable, match="0 of 2 groups took 0 s"):
        Inspector(DOCUMENT, ENVIRONMENTS).inspect(honest_envelope(), 0)


class ScoringClock:
    """In place of `time`."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


class SlowTexts(TextEnvironments):
    """Scoring a text that begins with `slow` takes three seconds."""

    def __init__(self, clock: ScoringClock) -> None:
        super().__init__(DOCUMENT.environments, DOCUMENT.answer_after)
        self._clock = clock

    def score(self, problem_seed: int, text: str) -> float:
        if text.startswith("slow"):
            self._clock.now += 3
        return super().score(problem_seed, text)


def slow_envelope(number: int) -> bytes:
    groups = [honest_group(KEYS[1].address, number, slot, ("slow", "slower")) for slot in (0, 1)]
    return seal(honest_envelope(1, number).model_copy(update={"groups": groups}), KEYS[1])


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ScoringClock:
    made = ScoringClock()
    monkeypatch.setattr(inbox_module, "time", made)
    return made


def test_one_peer_of_slow_texts_does_not_take_the_time_of_all(clock: ScoringClock) -> None:
    """Five times as many envelopes as an honest member's, each of which takes more than half of a round's time."""
    slow = [slow_envelope(number) for number in range(20)]
    honest = [signed(0, number) for number in range(4)]
    inspector = Inspector(DOCUMENT, SlowTexts(clock))
    inbox, exchange = inbox_of(inspector=inspector, inspection_seconds=20), FailingExchange(*slow, *honest)
    assert inbox.collect(exchange, 0) == 4
    assert set(inbox.state.seen) == {KEYS[0].address}
    assert clock.now <= inbox_module.PEER_SHARE * 20 + 3
    assert inbox.state.records[KEYS[0].address].breaches == 0
    spent = clock.now
    inbox.collect(exchange, 1)
    assert spent < clock.now <= 2 * spent, "it is looked at again in the next round"


def test_who_had_its_time_is_convicted_all_the_same(clock: ScoringClock) -> None:
    """A second envelope of a round needs no scoring, so slow ones before it do not hide it."""
    inbox = inbox_of(inspector=Inspector(DOCUMENT, SlowTexts(clock)), inspection_seconds=20)
    first, second = (signed(1, 3, slots) for slots in ((0,), (1,)))
    inbox.collect(FailingExchange(first), 0)
    slow = [slow_envelope(number) for number in range(4, 24)]
    inbox.collect(FailingExchange(*slow, second), 0)
    assert clock.now > inbox_module.PEER_SHARE * 20
    assert inbox.state.records[KEYS[1].address].breaches == 1


# Departed peers, and what cannot be judged now


@pytest.fixture
def inbox(tmp_path: Path) -> EnvelopeInbox:
    """That has taken an envelope of each of two peers."""
    made = inbox_of(tmp_path, window=4)
    assert made.collect(FailingExchange(HONEST, OTHER), 0) == 2
    return made


def restarted(inbox: EnvelopeInbox, folder: Path, inspector: Inspector | None = None) -> EnvelopeInbox:
    made = inbox_of(folder, inspector, window=4)
    made.restore(InboxState.model_validate(inbox.state.model_dump(mode="json")))
    return made


def test_who_departed_takes_no_place(inbox: EnvelopeInbox, tmp_path: Path) -> None:
    """Places are dealt among those who share: one who has gone would leave its own empty for ever."""
    assert inbox.active_peers == 2
    for number in range(1, RECENT_ROUNDS + 1):
        new = signed(0, number)
        inbox.collect(FailingExchange(new), number)
    assert inbox.active_peers == 2, "it may just have nothing to share for a while"
    inbox.collect(FailingExchange(), RECENT_ROUNDS + 1)
    assert inbox.active_peers == 1
    assert restarted(inbox, tmp_path).active_peers == 1
    back = signed(1, 1)
    inbox.collect(FailingExchange(back), RECENT_ROUNDS + 2)
    assert inbox.active_peers == 2
    inbox.state.records[KEYS[1].address] = replace(inbox.state.records[KEYS[1].address], breaches=1)
    assert inbox.active_peers == 1, "nor does who is found out"


def test_what_cannot_be_judged_at_the_start_is_judged_later_and_not_drawn_twice(
    inbox: EnvelopeInbox, tmp_path: Path
) -> None:
    """Chain and sandbox may come up after the member: its offers are not lost, and those that were used stay so."""
    used = sorted(inbox.groups)[0]
    inbox.use([used], [], [])
    inbox.clean()
    inspector = FaultyInspector(away=True)
    again = restarted(inbox, tmp_path, inspector)
    assert not again.unused()
    again.collect(FailingExchange(), 1)
    again.clean()
    inspector.away = False
    again.collect(FailingExchange(), 2)
    assert {one.name for one in again.unused()} == set(inbox.groups) - {used}


def test_who_is_no_member_any_more_leaves_nothing_to_draw(inbox: EnvelopeInbox, tmp_path: Path) -> None:
    inspector = Inspector(DOCUMENT, ENVIRONMENTS, [KEYS[0].address])
    assert {one.peer for one in inbox.unused()} == {KEYS[0].address, KEYS[1].address}
    assert {one.peer for one in restarted(inbox, tmp_path, inspector).unused()} == {KEYS[0].address}


def test_nothing_is_remembered_as_used_of_what_is_gone(inbox: EnvelopeInbox, tmp_path: Path) -> None:
    """Or the list grows with each file that a disk loses."""
    inbox.use(sorted(inbox.groups), [], [])
    (tmp_path / envelope_key(HONEST)).unlink()
    again = restarted(inbox, tmp_path)
    assert again.state.used == {name for name in inbox.groups if name.startswith(KEYS[1].address)}
    again.collect(FailingExchange(HONEST, OTHER), 1)
    assert not again.unused(), "what was looked at before is not taken again"
    again.collect(FailingExchange(), 9)
    assert not again.state.used
    assert not again.state.stored


def test_what_was_judged_since_the_start_is_not_judged_again(inbox: EnvelopeInbox, tmp_path: Path) -> None:
    inspector = FaultyInspector()
    again = restarted(inbox, tmp_path, inspector)
    for number in (1, 2, 3):
        again.collect(FailingExchange(HONEST, OTHER), number)
    assert inspector.looks == 2


def test_what_was_refused_is_not_fetched_again_after_a_restart(tmp_path: Path) -> None:
    inbox, exchange = inbox_of(tmp_path, window=4), FailingExchange(failing={BAD: IntegrityError("other bytes")})
    inbox.collect(exchange, 0)
    inbox.clean()
    restarted(inbox, tmp_path).collect(exchange, 1)
    assert exchange.gets == 1


# Skipped rounds


def exchange_of(*rounds: int, key: int = 0) -> FailingExchange:
    return FailingExchange(*(signed(key, number) for number in rounds))


def taken(inbox: EnvelopeInbox, own: int, *rounds: int) -> list[int]:
    """What of these rounds is taken in a receiver's own one."""
    inbox.collect(exchange_of(*rounds), own)
    return sorted(inbox.state.seen.get(KEYS[0].address, {}))


def test_a_leap_is_not_taken_nor_scored_and_nobody_is_blamed_or_held_up() -> None:
    inbox = inbox_of(rounds_ahead=4)
    assert taken(inbox, 0, 1_000_000) == [1_000_000], "nobody knows where a stranger stands"
    assert taken(inbox, 1, 1_000_009) == [1_000_000]
    lie = honest_envelope(number=1_000_009).model_copy(update={"groups": honest_envelope(number=8).groups})
    inbox.collect(FailingExchange(seal(lie, KEYS[0])), 1)
    exchange = exchange_of(*range(1_000_050, 1_000_060))
    exchange.held["envelopes/" + "f" * 64 + ".json"] = signed(1)
    inbox.collect(exchange, 1)
    assert list(inbox.state.records) == [KEYS[0].address, KEYS[1].address]
    assert inbox.state.records[KEYS[0].address].breaches == 0, "nobody has looked at its groups"
    assert taken(inbox, 1, 1_000_008) == [1_000_000, 1_000_008]


def test_what_comes_too_early_is_taken_when_it_is_time() -> None:
    """A member that was away has rounds behind it that the receiver's have, too."""
    inbox, exchange = inbox_of(rounds_ahead=1, window=8), exchange_of(0, 5)
    inbox.collect(exchange_of(0), 0)
    for own in range(5):
        inbox.collect(exchange, own)
        assert sorted(inbox.state.seen[KEYS[0].address]) == ([0, 5] if own == 4 else [0])


def test_a_receiver_that_was_away_takes_everybody_where_it_stands() -> None:
    inbox = inbox_of(rounds_ahead=2)
    taken(inbox, 0, 0)
    again = inbox_of(rounds_ahead=2)
    again.restore(inbox.state)
    assert taken(again, 1, 5000) == [5000]


# Inspection


INSPECTOR = Inspector(DOCUMENT, ENVIRONMENTS)


def inspect(groups: list[SharedGroup]) -> Inspected:
    return INSPECTOR.inspect(honest_envelope().model_copy(update={"groups": groups}))


def with_reward(group: SharedGroup, place: int, reward: float) -> SharedGroup:
    made = list(group.completions)
    made[place] = made[place].model_copy(update={"reward": reward})
    return group.model_copy(update={"completions": made})


def test_an_honest_envelope_is_true() -> None:
    found = INSPECTOR.inspect(honest_envelope(slots=(0, 2)))
    assert found.breach is None
    assert [one.name for one in found.groups] == [f"{KEYS[0].address}/0/{slot}" for slot in (0, 2)]
    assert found.groups[0].rewards == (1.0, 0.0)
    assert found.groups[0].problem_seed == round_problem(DOCUMENT.digest, KEYS[0].address, 0, 0)


@pytest.mark.parametrize(("place", "reward"), [(0, 0.0), (1, 1.0), (1, 0.5)])
def test_a_false_score_refuses_the_whole_envelope(place: int, reward: float) -> None:
    member = KEYS[0].address
    found = inspect([honest_group(member, 0, 0), with_reward(honest_group(member, 0, 1), place, reward)])
    assert found.breach is Breach.FALSE_REWARD
    assert found.groups == ()
    assert f"slot 1 (reasoning_gym/chain_sum/{round_problem(DOCUMENT.digest, member, 0, 1)}" in found.where


def test_a_text_for_another_problem_is_found() -> None:
    """Whoever shares a group that was made for another slot, round or member."""
    member = KEYS[0].address
    for other in (honest_group(member, 0, 1), honest_group(member, 1, 0), honest_group(KEYS[1].address, 0, 0)):
        assert inspect([other.model_copy(update={"slot": 0})]).breach is Breach.OTHER_PROBLEM
    # with the right question's digest, its right answer is scored as what it is: a wrong one
    own, other = honest_group(member, 0, 0), honest_group(member, 0, 1)
    assert other.completions[0].text != own.completions[0].text
    assert inspect([other.model_copy(update={"slot": 0, "question": own.question})]).breach is Breach.FALSE_REWARD
