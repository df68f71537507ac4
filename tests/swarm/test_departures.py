"""Who shares with a member is who shares now, over restarts too."""

import math
from dataclasses import replace
from pathlib import Path

from environments.errors import ScoringUnavailable
from protocol.errors import IntegrityError
from swarm.config import MixConfig
from swarm.envelope import seal
from swarm.exchange import ListingEntry, envelope_key
from swarm.inbox import RECENT_ROUNDS, EnvelopeInbox
from swarm.inspection import Allow, Inspected, Inspector
from swarm.state import InboxState
from tests.swarm.samples import ENVIRONMENTS, KEYS, LIMITS, honest_envelope
from tests.swarm.test_hostile_exchange import BAD, FailingExchange

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
    made.restore(InboxState.of(inbox.state.document()))
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
    assert {one.offer.name for one in again.unused()} == set(inbox.groups) - {used}


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
