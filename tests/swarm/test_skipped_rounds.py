"""Who skips rounds to find problems to its taste finds them among as many as the receiver's own rounds allow."""

from swarm.config import MixConfig
from swarm.envelope import seal
from swarm.inbox import EnvelopeInbox
from swarm.inspection import Inspector
from tests.swarm.samples import ENVIRONMENTS, KEYS, LIMITS, honest_envelope
from tests.swarm.test_hostile_exchange import FailingExchange


def inbox_of(**mix: int) -> EnvelopeInbox:
    inspector = Inspector(LIMITS, ENVIRONMENTS)
    return EnvelopeInbox(inspector, MixConfig.model_validate(mix), KEYS[2].address, bytes(32))


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
