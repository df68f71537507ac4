"""Policies of sampling: what they drop, that the draw is fair, and that nobody else can steer it."""

from collections import Counter

from swarm.sampling import (
    Offer,
    PeerRecord,
    by_plausibility,
    draw,
    evenly,
    per_peer,
    product,
    with_advantage,
    without_breach,
)

SEED = b"\x01" * 32


def offer(number: int, peer: str = "a", rewards: tuple[float, ...] = (0.0, 1.0), problem: str = "") -> Offer:
    return Offer(peer, number, 0, problem or f"p{number}{peer}", rewards)


def test_groups_without_advantage_are_never_drawn() -> None:
    offers = [offer(0), offer(1, rewards=(1.0, 1.0)), offer(2, rewards=(0.0, 0.0))]
    assert with_advantage(offers) == [offers[0]]
    assert draw(offers, 3, SEED) == [offers[0]]


def test_filters_drop_what_they_should() -> None:
    offers = [offer(n, "ab"[n % 2], (0.0, 0.0, n / 10, 1.0)) for n in range(8)]
    assert per_peer(1)(offers) == [offers[7], offers[6]], "the newest of each"
    records = {"a": PeerRecord(true=1000, breaches=1), "b": PeerRecord(true=1)}
    assert without_breach(records)(offers) == offers[1::2], "true groups do not make up for a breach"


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
    offers, times = [offer(0, "a"), offer(0, "b")], 0
    for number in range(3000):
        (one,) = draw(offers, 1, number.to_bytes(32, "big"), weight=lambda one: 0.25 if one.peer == "a" else 1.0)
        times += one.peer == "a"
    # a quarter against one: 600 expected, deviation 22
    assert 490 < times < 710
    assert draw(offers, 2, SEED, weight=lambda one: float(one.peer == "b")) == [offers[1]], "no weight, no chance"


def test_fewer_offers_than_wanted_is_no_error() -> None:
    assert draw([], 4, SEED) == []
    assert len(draw([offer(0)], 4, SEED)) == 1
    assert draw([offer(0)], 0, SEED) == []


def test_who_shares_much_is_drawn_no_more_often() -> None:
    """Seven groups of one peer and one of another: half of what is drawn first is either's."""
    offers, times = [*(offer(n, "a") for n in range(7)), offer(0, "b")], 0
    for number in range(3000):
        (one,) = draw(offers, 1, number.to_bytes(32, "big"), weight=evenly(offers))
        times += one.peer == "a"
    # 1500 expected, deviation 27
    assert 1390 < times < 1610
    assert evenly([])(offers[0]) == 1.0


def test_who_is_doubted_is_drawn_less_and_never_not_at_all() -> None:
    records = {"a": PeerRecord(true=9, trained=1, doubted=6), "b": PeerRecord(trained=50, doubted=1)}
    weight = by_plausibility(records)
    assert weight(offer(0, "a")) == 0.25
    assert weight(offer(0, "b")) > 0.98
    assert weight(offer(0, "c")) == 1.0
    assert by_plausibility({"a": PeerRecord(doubted=10**9)})(offer(0, "a")) > 0


def test_weights_multiply() -> None:
    assert product()(offer(0)) == 1.0
    assert product(lambda _: 0.5, lambda _: 0.25)(offer(0)) == 0.125
