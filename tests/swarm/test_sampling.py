"""Policies of sampling: what they drop, that the draw is fair, and that nobody else can steer it."""

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import pytest

from swarm.sampling import InspectedGroup, PeerCap, PeerRecord, RecentUse, draw, draw_weights, drawable, usual_use
from tests.swarm.samples import KEYS, honest_group

GROUP = honest_group(KEYS[0].address, 0, 0)
SEED = b"\x01" * 32


def offer(number: int, peer: str = "a", rewards: tuple[float, ...] = (0.0, 1.0)) -> InspectedGroup:
    return InspectedGroup(peer, number, 0, rewards, 0, GROUP)


def drawn_of(offers: list[InspectedGroup], count: int, seed: bytes = SEED) -> list[InspectedGroup]:
    return draw(offers, count, seed, draw_weights(offers, {}, even=False))


def test_what_may_be_drawn() -> None:
    offers = [offer(0), offer(1, rewards=(1.0, 1.0)), offer(2, rewards=(0.0, 0.0))]
    assert drawable(offers, {}, 3) == [offers[0]], "groups without advantage never are"
    offers = [offer(n, "ab"[n % 2], (0.0, 0.0, n / 10, 1.0)) for n in range(8)]
    assert drawable(offers, {}, 1) == [offers[7], offers[6]], "the newest of each"
    records = {"a": PeerRecord(true=1000, breaches=1), "b": PeerRecord(true=1)}
    assert drawable(offers, records, 8) == offers[7::-2], "true groups do not make up for a breach"


def test_the_draw_is_uniform_without_replacement_and_does_not_depend_on_the_order() -> None:
    offers = [offer(n) for n in range(6)]
    times: Counter[int] = Counter()
    for number in range(3000):
        seed = number.to_bytes(32, "big")
        drawn = drawn_of(offers, 2, seed)
        assert len({one.name for one in drawn}) == 2
        assert drawn == drawn_of(offers[::-1], 2, seed)
        times.update(one.round for one in drawn)
    # 1000 expected, deviation 26
    assert all(870 < count < 1130 for count in times.values())
    assert len(times) == 6
    assert drawn_of([], 4) == []
    assert len(drawn_of([offer(0)], 4)) == 1
    assert drawn_of([offer(0)], 0) == []


def drawn_first(offers: list[InspectedGroup], weight: Mapping[str, float]) -> int:
    """How often peer a is drawn first, of 3000 times."""
    return sum(draw(offers, 1, number.to_bytes(32, "big"), weight)[0].peer == "a" for number in range(3000))


def test_weights_are_chances() -> None:
    offers = [offer(0, "a"), offer(0, "b")]
    quarter = {offers[0].name: 0.25, offers[1].name: 1.0}
    assert 490 < drawn_first(offers, quarter) < 710, "a quarter against one: 600 expected, deviation 22"
    assert draw(offers, 2, SEED, {offers[0].name: 0.0, offers[1].name: 1.0}) == [offers[1]], "no weight, no chance"


def test_who_shares_much_is_drawn_no_more_often() -> None:
    """Seven groups of one peer and one of another: half of what is drawn first is either's."""
    offers = [*(offer(n, "a") for n in range(7)), offer(0, "b")]
    assert 1390 < drawn_first(offers, draw_weights(offers, {}, even=True)) < 1610, "1500 expected, deviation 27"


def test_who_is_doubted_is_drawn_less_and_never_not_at_all() -> None:
    records = {"a": PeerRecord(true=9, trained=1, doubted=6), "b": PeerRecord(trained=50, doubted=1)}
    records["d"] = PeerRecord(doubted=10**9)
    a, b, c, d = (draw_weights([offer(0, peer)], records, even=False)[f"{peer}/0/0"] for peer in "abcd")
    assert (a, c) == (0.25, 1.0)
    assert b > 0.98
    assert d > 0
    two = draw_weights([offer(0, "a"), offer(1, "a")], records, even=True)
    assert list(two.values()) == [0.125, 0.125], "weights multiply"


# Per-peer cap


PLACES, RECENT_ROUNDS = 4, 16
HONEST = [f"honest-{number}" for number in range(5)]


def open_to(lately: dict[str, RecentUse], peer: str) -> bool:
    return PeerCap(PLACES, len(lately), lately).allows(peer)


def of(**trained: int) -> dict[str, RecentUse]:
    return {name: RecentUse(count) for name, count in trained.items()}


def most_of_one(places: int, peers: int) -> int:
    cap, taken = PeerCap(places, peers, {}), 0
    while cap.allows("a"):
        cap.take("a")
        taken += 1
    return taken


def test_a_peers_part_of_a_round_is_one_place_at_least_and_no_more_than_all_alike() -> None:
    assert [most_of_one(4, peers) for peers in (0, 1, 2, 3, 4, 7, 1000)] == [4, 4, 2, 1, 1, 1, 1]
    assert all(most_of_one(places, n) * n <= places for places in range(1, 30) for n in range(1, places + 1))


def test_a_round_has_so_many_places_and_a_peer_its_part_of_them() -> None:
    places = PeerCap(4, 2, {})
    for peer, left in (("a", 3), ("a", 2), ("b", 1)):
        assert places.allows(peer)
        places.take(peer)
        assert places.left == left
    assert (places.allows("a"), places.allows("b")) == (False, True)
    places.take("b")
    assert not places.allows("c")
    anybody = PeerCap(2, 9, of(a=50, b=1, c=1), even=False)
    anybody.take("a")
    assert anybody.allows("a"), "without parts, who comes first"
    anybody.take("a")
    assert not anybody.allows("a")


def test_who_could_be_drawn_always_is_drawn_as_often_as_half_of_the_others() -> None:
    counts = of(greedy=9, often=8, seldom=3)
    assert [open_to(counts, one) for one in counts] == [False, True, True]
    assert open_to({**counts, "greedy": RecentUse(8)}, "greedy")
    assert open_to(of(only=50), "only"), "nobody to compare with"
    assert open_to({}, "new")
    assert usual_use({}) is None
    assert usual_use(of(a=1, b=2, c=3, d=4)) == 3, "of an even number the upper one"


@pytest.mark.parametrize("said", [RecentUse(0, 20), RecentUse(1, 20)], ids=["never", "seldom"])
def test_keys_whose_texts_are_doubted_keep_nobody_waiting(said: RecentUse) -> None:
    """Four fifths of the keys: counted like others they would be the median, at no or one group."""
    lately = {name: RecentUse(6, 1) for name in HONEST} | {f"key-{number}": said for number in range(16)}
    assert usual_use(lately) == 6
    assert all(open_to(lately, name) for name in HONEST)


def test_to_be_doubted_on_purpose_helps_no_other_key() -> None:
    lately = {name: RecentUse(6, 1) for name in HONEST} | {"greedy": RecentUse(7)}
    with_keys = lately | {f"key-{number}": RecentUse(0, 20) for number in range(16)}
    assert not open_to(lately, "greedy")
    assert not open_to(with_keys, "greedy")


def rounds_with(keys: Sequence[str], doubted: Callable[[str], bool], seed: int) -> Counter[str]:
    """Who was trained on in 200 rounds of a receiver. Honest peers have something on offer in a third of the rounds,
    the others always."""
    chance, history, total = random.Random(seed), list[tuple[list[str], list[str]]](), Counter[str]()
    for _ in range(200):
        trained, doubts = [Counter(name for one in history for name in one[at]) for at in (0, 1)]
        lately = {name: RecentUse(trained[name], doubts[name]) for name in trained | doubts}
        places = PeerCap(PLACES, len(keys) + len(HONEST), lately)
        offering = [name for name in HONEST if chance.random() < 1 / 3] + list(keys)
        drawn: tuple[list[str], list[str]] = [], []
        for name in chance.sample(offering, len(offering)):
            if places.allows(name):
                drawn[doubted(name)].append(name)
                if not doubted(name):
                    places.take(name)
        history = [*history, drawn][-RECENT_ROUNDS:]
        total.update(drawn[0])
    return total


def honest_share(total: Counter[str]) -> float:
    return sum(total[name] for name in HONEST) / total.total()


@pytest.mark.parametrize("seed", range(3))
def test_plausible_keys_are_held_to_what_half_of_the_others_have(seed: int) -> None:
    """Two of seven, with something on offer three times as often as the others: a part of a round alone would give them
    more than half of what is trained on."""
    two = rounds_with(["a", "b"], lambda _: False, seed)
    assert 1 - honest_share(two) < 0.38
    assert sum(two[name] for name in HONEST) > 200, "and keep nobody waiting"


@pytest.mark.parametrize("seed", range(3))
def test_doubted_keys_cost_the_honest_nothing(seed: int) -> None:
    keys = [f"key-{number}" for number in range(16)]
    alone, among = rounds_with([], lambda _: False, seed), rounds_with(keys, lambda name: name in keys, seed)
    assert honest_share(among) == 1.0
    assert among.total() > 0.9 * alone.total()
