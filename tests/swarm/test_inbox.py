"""Who may write to the exchange can withhold envelopes and do nothing else: nothing there stops or starves a member."""

import math
import os
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, count
from pathlib import Path
from tempfile import mkdtemp

import pytest

from environments.pool import TextEnvironments
from protocol.errors import ConfigError, IntegrityError, ScoringUnavailable, UnreachableError
from storage.keys import object_key
from swarm import inbox as inbox_module
from swarm import inspection
from swarm.config import MixConfig
from swarm.envelope import seal
from swarm.exchange import FolderExchange, ListingEntry, envelope_key
from swarm.inbox import RECENT_ROUNDS, EnvelopeInbox, InboxState
from swarm.inspection import Allow, Inspected, Inspector
from tests.swarm.samples import DOCUMENT, ENVIRONMENTS, KEYS, LIMITS, honest_envelope, honest_group

BAD = object_key("envelopes", bytes(32))
HONEST = seal(honest_envelope(), KEYS[0])


class FailingExchange:
    """Envelopes, and keys that answer with an error of their own."""

    def __init__(self, envelopes: list[bytes], failing: dict[str, Exception]) -> None:
        self.held, self.failing = {envelope_key(one): one for one in envelopes}, failing

    def listed(self) -> Iterator[ListingEntry]:
        return map(ListingEntry, [*self.failing, *self.held])

    def get(self, entry: ListingEntry, limit: int) -> bytes:
        if entry.key in self.failing:
            raise self.failing[entry.key]
        return self.held[entry.key]


class UnscorableSharers(Inspector):
    """As on a machine on which the texts of some peers can never be scored."""

    def __init__(self, peers: set[str]) -> None:
        super().__init__(LIMITS, ENVIRONMENTS)
        self._peers, self.looks = peers, 0

    def inspect(self, data: bytes, allow: Allow = lambda _: math.inf) -> Inspected:
        found = super().inspect(data, allow)
        if found.envelope.member in self._peers:
            self.looks += 1
            raise ScoringUnavailable("the sandbox was not done")
        return found


def inbox_of(inspector: Inspector | None = None, **mix: int) -> EnvelopeInbox:
    usual = Inspector(LIMITS, ENVIRONMENTS)
    folder = Path(mkdtemp(prefix="muster-inbox-"))
    return EnvelopeInbox(inspector or usual, MixConfig.model_validate(mix), KEYS[2].address, bytes(32), folder)


@pytest.mark.parametrize("kind", ["folder", "pipe", "unreadable", "endless"])
def test_what_is_no_file_is_refused_alone(tmp_path: Path, kind: str) -> None:
    exchange = FolderExchange(tmp_path)
    exchange.publish(HONEST)
    path = tmp_path / BAD
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "unreadable":
        path.symlink_to(path)
    else:
        path.symlink_to("/dev/zero")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(8):
        with pytest.raises(IntegrityError):
            exchange.get(ListingEntry(BAD), 1000)
    assert len(os.listdir("/proc/self/fd")) < before + 8
    assert inbox_of().collect(exchange, 0) == 1


def test_one_object_that_cannot_be_read_is_refused_alone() -> None:
    exchange = FailingExchange([HONEST], {BAD: ConfigError("S3 refuses to read it (403)")})
    assert inbox_of().collect(exchange, 0) == 1


def test_a_listing_full_of_what_is_no_envelope_or_was_looked_at_hides_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(inbox_module, "LISTING_SHARE", 100)
    exchange, inbox = FailingExchange([], {}), inbox_of()
    exchange.listed = lambda: map(ListingEntry, [*map("envelopes/{:064}".format, range(150_000)), envelope_key(HONEST)])  # type: ignore[method-assign]
    exchange.held[envelope_key(HONEST)] = HONEST
    assert inbox.collect(exchange, 0) == 1


def test_a_listing_without_end_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox_module, "LISTING_SHARE", 0.05)
    exchange, inbox = FailingExchange([HONEST], {}), inbox_of()
    exchange.listed = lambda: map(ListingEntry, chain([envelope_key(HONEST)], map("envelopes/{}".format, count())))  # type: ignore[method-assign]
    assert inbox.collect(exchange, 0) == 1


def test_one_object_that_is_never_answered_for_holds_up_one_round_and_no_other() -> None:
    later = seal(honest_envelope(number=1), KEYS[0])
    exchange, inbox = FailingExchange([HONEST], {BAD: UnreachableError("S3 does not answer (500)")}), inbox_of(window=2)
    with pytest.raises(UnreachableError):
        inbox.collect(exchange, 0)
    exchange.held[envelope_key(later)] = later
    with pytest.raises(UnreachableError):
        inbox.collect(exchange, 1)
    assert len(inbox.state.stored) == 2, "what answers is asked first"
    with pytest.raises(UnreachableError):
        inbox.collect(exchange, 2)
    inbox.collect(exchange, 3)


def test_what_cannot_be_scored_keeps_no_place_from_others() -> None:
    bad = [seal(honest_envelope(1, number), KEYS[1]) for number in range(4)]
    inspector = UnscorableSharers({KEYS[1].address})
    inbox, exchange = inbox_of(inspector, fetched=2, window=2), FailingExchange([*bad, HONEST], {})
    taken = sum(inbox.collect(exchange, number) for number in range(4))
    assert taken == 1
    for number in range(4, 20):
        inbox.collect(exchange, number)
    looks = inspector.looks
    inbox.collect(exchange, 20)
    assert inspector.looks == looks, "it is given up when it could not be drawn any more"


def test_one_envelope_takes_no_longer_than_a_round_has_for_all() -> None:
    with pytest.raises(ScoringUnavailable, match="0 of 2 groups took 0 s"):
        Inspector(LIMITS, ENVIRONMENTS).inspect(HONEST, lambda _: 0)


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
    for module in (inspection, inbox_module):
        monkeypatch.setattr(module, "time", made)
    return made


def test_one_peer_of_slow_texts_does_not_take_the_time_of_all(clock: ScoringClock) -> None:
    """Five times as many envelopes as an honest member's, each of which takes more than half of a round's time."""
    slow = [slow_envelope(number) for number in range(20)]
    honest = [seal(honest_envelope(0, number), KEYS[0]) for number in range(4)]
    inspector = Inspector(LIMITS, SlowTexts(clock))
    inbox, exchange = inbox_of(inspector, inspection_seconds=20), FailingExchange([*slow, *honest], {})
    assert inbox.collect(exchange, 0) == 4
    assert set(inbox.state.seen) == {KEYS[0].address}
    assert clock.now <= inbox_module.PEER_SHARE * 20 + 3
    assert inbox.state.records[KEYS[0].address].breaches == 0
    spent = clock.now
    inbox.collect(exchange, 1)
    assert spent < clock.now <= 2 * spent, "it is looked at again in the next round"


def test_who_had_its_time_is_convicted_all_the_same(clock: ScoringClock) -> None:
    """A second envelope of a round needs no scoring, so slow ones before it do not hide it."""
    inbox = inbox_of(Inspector(LIMITS, SlowTexts(clock)), inspection_seconds=20)
    first, second = (seal(honest_envelope(1, 3, slots), KEYS[1]) for slots in ((0,), (1,)))
    inbox.collect(FailingExchange([first], {}), 0)
    slow = [slow_envelope(number) for number in range(4, 24)]
    inbox.collect(FailingExchange([*slow, second], {}), 0)
    assert clock.now > inbox_module.PEER_SHARE * 20
    assert inbox.state.records[KEYS[1].address].breaches == 1


# Departed peers, and what cannot be judged now


FIRST, OTHER = (seal(honest_envelope(key), KEYS[key]) for key in (0, 1))


class FaultyInspector(Inspector):
    """Judges nothing while `away`, and never what is `beyond` it."""

    def __init__(self) -> None:
        super().__init__(LIMITS, ENVIRONMENTS)
        self.away, self.beyond, self.looks = False, b"", 0

    def inspect(self, data: bytes, allow: Allow = lambda _: math.inf) -> Inspected:
        self.looks += 1
        if self.away or data == self.beyond:
            raise ScoringUnavailable("the sandbox does not start")
        return super().inspect(data, allow)


def inbox_in(folder: Path, inspector: Inspector | None = None) -> EnvelopeInbox:
    mix = MixConfig(window=4)
    return EnvelopeInbox(inspector or FaultyInspector(), mix, KEYS[2].address, bytes(32), folder)


def restarted(inbox: EnvelopeInbox, folder: Path, inspector: Inspector | None = None) -> EnvelopeInbox:
    made = inbox_in(folder, inspector)
    made.restore(InboxState.model_validate(inbox.state.model_dump(mode="json")))
    return made


def test_who_departed_takes_no_place(tmp_path: Path) -> None:
    """Places are dealt among those who share: one who has gone would leave its own empty for ever."""
    inbox = inbox_in(tmp_path)
    inbox.collect(FailingExchange([FIRST, OTHER], {}), 0)
    assert inbox.active_peers == 2
    for number in range(1, RECENT_ROUNDS + 1):
        new = seal(honest_envelope(0, number), KEYS[0])
        inbox.collect(FailingExchange([new], {}), number)
    assert inbox.active_peers == 2, "it may just have nothing to share for a while"
    inbox.collect(FailingExchange([], {}), RECENT_ROUNDS + 1)
    assert inbox.active_peers == 1
    assert restarted(inbox, tmp_path).active_peers == 1
    back = seal(honest_envelope(1, 1), KEYS[1])
    inbox.collect(FailingExchange([back], {}), RECENT_ROUNDS + 2)
    assert inbox.active_peers == 2


def test_who_is_found_out_takes_no_place(tmp_path: Path) -> None:
    inbox = inbox_in(tmp_path)
    inbox.collect(FailingExchange([FIRST, OTHER], {}), 0)
    inbox.state.records[KEYS[1].address] = replace(inbox.state.records[KEYS[1].address], breaches=1)
    assert inbox.active_peers == 1


def test_what_cannot_be_judged_at_the_start_is_judged_later_and_not_drawn_twice(tmp_path: Path) -> None:
    """Chain and sandbox may come up after the member: its offers are not lost, and those that were used stay so."""
    inbox = inbox_in(tmp_path)
    inbox.collect(FailingExchange([FIRST, OTHER], {}), 0)
    used = sorted(inbox.groups)[0]
    inbox.use([used], [], [])
    inbox.clean()
    inspector = FaultyInspector()
    inspector.away = True
    again = restarted(inbox, tmp_path, inspector)
    assert not again.unused()
    again.collect(FailingExchange([], {}), 1)
    again.clean()
    inspector.away = False
    again.collect(FailingExchange([], {}), 2)
    assert {one.name for one in again.unused()} == set(inbox.groups) - {used}


def test_nothing_is_remembered_as_used_of_what_is_gone(tmp_path: Path) -> None:
    """Or the list grows with each file that a disk loses."""
    inbox = inbox_in(tmp_path)
    inbox.collect(FailingExchange([FIRST, OTHER], {}), 0)
    inbox.use(sorted(inbox.groups), [], [])
    (tmp_path / envelope_key(FIRST)).unlink()
    again = restarted(inbox, tmp_path)
    assert again.state.used == {name for name in inbox.groups if name.startswith(KEYS[1].address)}
    again.collect(FailingExchange([FIRST, OTHER], {}), 1)
    assert not again.unused(), "what was looked at before is not taken again"
    again.collect(FailingExchange([], {}), 9)
    assert not again.state.used
    assert not again.state.stored


def test_what_is_gone_is_forgotten_although_another_cannot_be_judged(tmp_path: Path) -> None:
    inbox = inbox_in(tmp_path)
    inbox.collect(FailingExchange([FIRST], {}), 0)
    inbox.use(sorted(inbox.groups), [], [])
    inbox.collect(FailingExchange([FIRST, OTHER], {}), 3)
    inspector = FaultyInspector()
    inspector.beyond = OTHER
    again = restarted(inbox, tmp_path, inspector)
    assert again.state.used
    again.collect(FailingExchange([], {}), 5)
    assert list(again.state.stored) == [envelope_key(OTHER)]
    assert not again.state.used


def test_what_was_judged_since_the_start_is_not_judged_again(tmp_path: Path) -> None:
    inbox = inbox_in(tmp_path)
    inbox.collect(FailingExchange([FIRST, OTHER], {}), 0)
    inspector = FaultyInspector()
    again = restarted(inbox, tmp_path, inspector)
    for number in (1, 2, 3):
        again.collect(FailingExchange([FIRST, OTHER], {}), number)
    assert inspector.looks == 2


class CountingExchange(FailingExchange):
    """Counts what is fetched."""

    gets = 0

    def get(self, entry: ListingEntry, limit: int) -> bytes:
        self.gets += 1
        return super().get(entry, limit)


def test_what_was_refused_is_not_fetched_again_after_a_restart(tmp_path: Path) -> None:
    inbox, exchange = inbox_in(tmp_path), CountingExchange([], {BAD: IntegrityError("other bytes")})
    inbox.collect(exchange, 0)
    inbox.clean()
    restarted(inbox, tmp_path).collect(exchange, 1)
    assert exchange.gets == 1


# Skipped rounds


def exchange_of(*rounds: int, key: int = 0) -> FailingExchange:
    return FailingExchange([seal(honest_envelope(key, number), KEYS[key]) for number in rounds], {})


def taken(inbox: EnvelopeInbox, own: int, *rounds: int) -> list[int]:
    """What of these rounds is taken in a receiver's own one."""
    inbox.collect(exchange_of(*rounds), own)
    return sorted(inbox.state.seen.get(KEYS[0].address, {}))


def test_a_leap_is_not_taken_and_nobody_is_blamed() -> None:
    inbox = inbox_of(rounds_ahead=4)
    assert taken(inbox, 0, 1_000_000) == [1_000_000], "nobody knows where a stranger stands"
    assert taken(inbox, 1, 1_000_009) == [1_000_000]
    assert inbox.state.records[KEYS[0].address].breaches == 0
    assert taken(inbox, 1, 1_000_008) == [1_000_000, 1_000_008]


def test_what_comes_too_early_is_taken_when_it_is_time() -> None:
    """A member that was away has rounds behind it that the receiver's have, too."""
    inbox, exchange = inbox_of(rounds_ahead=1, window=8), exchange_of(0, 5)
    inbox.collect(exchange_of(0), 0)
    for own in range(5):
        inbox.collect(exchange, own)
        assert sorted(inbox.state.seen[KEYS[0].address]) == ([0, 5] if own == 4 else [0])


def test_a_leap_costs_no_scoring() -> None:
    inbox = inbox_of(rounds_ahead=1)
    taken(inbox, 0, 0)
    lie = honest_envelope(number=9)
    lie = lie.model_copy(update={"groups": honest_envelope(number=8).groups})
    inbox.collect(FailingExchange([seal(lie, KEYS[0])], {}), 0)
    assert inbox.state.records[KEYS[0].address].breaches == 0, "nobody has looked at its groups"


def test_others_are_not_held_up_by_it() -> None:
    inbox = inbox_of(rounds_ahead=1)
    taken(inbox, 0, 0)
    exchange = exchange_of(*range(50, 60))
    honest = seal(honest_envelope(1), KEYS[1])
    exchange.held["envelopes/" + "f" * 64 + ".json"] = honest
    inbox.collect(exchange, 0)
    assert list(inbox.state.records) == [KEYS[0].address, KEYS[1].address]


def test_a_receiver_that_was_away_takes_everybody_where_it_stands() -> None:
    inbox = inbox_of(rounds_ahead=2)
    taken(inbox, 0, 0)
    again = inbox_of(rounds_ahead=2)
    again.restore(inbox.state)
    assert taken(again, 1, 5000) == [5000]
