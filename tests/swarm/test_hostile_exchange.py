"""Who may write to the exchange can withhold envelopes and do nothing else: nothing there stops or starves a member."""

import math
import os
from collections.abc import Iterator
from itertools import chain, count
from pathlib import Path

import pytest

from environments.errors import ScoringUnavailable
from environments.texts import TextEnvironments
from protocol.errors import ConfigError, IntegrityError, UnreachableError
from storage.keys import object_key
from swarm import inbox as inbox_module
from swarm import inspection
from swarm.config import MixConfig
from swarm.envelope import seal
from swarm.exchange import FolderExchange, ListingEntry, envelope_key
from swarm.inbox import EnvelopeInbox
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
    return EnvelopeInbox(inspector or usual, MixConfig.model_validate(mix), KEYS[2].address, bytes(32))


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
