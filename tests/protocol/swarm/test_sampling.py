"""Policies of sampling: what they drop, that the draw is fair, and that nobody else can steer it."""

from collections import Counter

import pytest

from protocol.swarm.record import TruthRecord
from protocol.swarm.sampling import (
    Offer,
    by_novelty,
    by_plausibility,
    by_record,
    by_reward,
    by_trust,
    draw,
    evenly,
    per_sharer,
    product,
    with_advantage,
)

SEED = b"\x01" * 32


def offer(number: int, sharer: str = "a", rewards: tuple[float, ...] = (0.0, 1.0), problem: str = "") -> Offer:
    return Offer(sharer, number, 0, problem or f"p{number}{sharer}", rewards)


def test_groups_without_advantage_are_never_drawn() -> None:
    offers = [offer(0), offer(1, rewards=(1.0, 1.0)), offer(2, rewards=(0.0, 0.0))]
    assert with_advantage(offers) == [offers[0]]
    assert draw(offers, 3, SEED) == [offers[0]]


def test_filters_compose() -> None:
    offers = [offer(n, "ab"[n % 2], (0.0, 0.0, n / 10, 1.0)) for n in range(8)]
    assert by_reward(0.3, 0.4)(offers) == [offers[n] for n in (2, 3, 4, 5, 6)]
    assert by_novelty({offers[2].problem})([*offers[:4], offers[3]]) == [offers[0], offers[1], offers[3]]
    assert per_sharer(1)(offers) == [offers[7], offers[6]], "the newest of each"
    records = {"a": TruthRecord(true=1000, breaches=1), "b": TruthRecord(true=1)}
    assert by_record(records)(offers) == offers[1::2], "true groups do not wash a breach away"
    assert by_record(records, 0.5)(offers) == offers
    both = draw(offers, 8, SEED, (by_record(records), by_reward(0.3, 0.4)))
    assert sorted(one.round for one in both) == [3, 5]


def test_the_draw_is_uniform_without_replacement_and_does_not_depend_on_the_order() -> None:
    offers = [offer(n) for n in range(6)]
    times: Counter[int] = Counter()
    for number in range(3000):
        seed = number.to_bytes(32, "big")
        drawn = draw(offers, 2, seed)
        assert len({one.name for one in drawn}) == 2
        assert drawn == draw(offers[::-1], 2, seed)
        times.update(one.round for one in drawn)
    # 1000 expected, deviation 26
    assert all(870 < count < 1130 for count in times.values())
    assert len(times) == 6


def test_weights_are_chances() -> None:
    records = {"a": TruthRecord(breaches=2)}
    offers, times = [offer(0, "a"), offer(0, "b")], 0
    for number in range(3000):
        (one,) = draw(offers, 1, number.to_bytes(32, "big"), weight=by_trust(records))
        times += one.sharer == "a"
    # a quarter against one: 600 expected, deviation 22
    assert 490 < times < 710
    assert draw(offers, 2, SEED, weight=lambda one: float(one.sharer == "b")) == [offers[1]], "no weight, no chance"


def test_fewer_offers_than_wanted_is_no_error() -> None:
    assert draw([], 4, SEED) == []
    assert len(draw([offer(0)], 4, SEED)) == 1
    assert draw([offer(0)], 0, SEED) == []


@pytest.mark.parametrize(("breaches", "trust"), [(0, 1.0), (1, 0.5), (3, 0.125)])
def test_a_breach_halves_trust(breaches: int, trust: float) -> None:
    assert TruthRecord().plus(true=5, breaches=breaches).trust == trust


def test_who_shares_much_is_drawn_no_more_often() -> None:
    """Seven groups of one sharer and one of another: half of what is drawn first is either's."""
    offers, times = [*(offer(n, "a") for n in range(7)), offer(0, "b")], 0
    for number in range(3000):
        (one,) = draw(offers, 1, number.to_bytes(32, "big"), weight=evenly(offers))
        times += one.sharer == "a"
    # 1500 expected, deviation 27
    assert 1390 < times < 1610
    assert evenly([])(offers[0]) == 1.0


def test_who_is_doubted_is_drawn_less_and_never_not_at_all() -> None:
    records = {"a": TruthRecord(true=9, trained=1, doubted=6), "b": TruthRecord(trained=50, doubted=1)}
    weight = by_plausibility(records)
    assert weight(offer(0, "a")) == 0.25
    assert weight(offer(0, "b")) > 0.98
    assert weight(offer(0, "c")) == 1.0
    assert records["a"].trust == 1.0, "a doubt is no breach"
    assert by_plausibility({"a": TruthRecord(doubted=10**9)})(offer(0, "a")) > 0


def test_weights_multiply() -> None:
    assert product()(offer(0)) == 1.0
    assert product(lambda _: 0.5, lambda _: 0.25)(offer(0)) == 0.125
