"""The economy's driver without forge: plans, expectations, what forge is told."""

import random

import pytest
from eth_abi.abi import decode, encode

from benchmarks.economy import (
    CHOICES,
    NETWORKS,
    VOTE,
    EconomyLimits,
    Played,
    best,
    case_types,
    draw_plan,
    setting,
    vary,
)
from protocol.encoding import TOKEN


def played(seats: int, *gains: int) -> Played:
    plan = draw_plan(random.Random(0), (100, 10_000), len(gains), {}) | {"seats": seats, "files": 3, "others": 7}
    return Played("local", plan, lanes=[(gain * TOKEN, 0) for gain in gains])


def test_lanes_are_weighed_by_how_often_their_kind_happens() -> None:
    one = played(20, 10, 10, -30, -50, 10, 10, -30, -50)
    assert one.expected(EconomyLimits(watched=0.0, canaries=0.0)) == (10, 0)
    assert one.expected(EconomyLimits(watched=1.0, canaries=0.0)) == (-30, 0)
    assert one.expected(EconomyLimits(watched=0.25, canaries=0.0)) == (0, 0)
    # half of all lanes of ten files have a canary
    assert one.expected(EconomyLimits(watched=0.0, canaries=0.05))[0] == pytest.approx(-20)


def test_a_gain_is_sure_only_beyond_three_standard_errors() -> None:
    steady, wild = played(20, *[1] * 8), played(20, 101, -99, 1, 1, 1, 1, 1, 1)
    assert steady.least() == pytest.approx(1)
    assert wild.least() < 0 < wild.expected()[0]
    assert best([wild, steady], 1) == [steady]


def test_plans_follow_from_the_seed_and_stay_legal() -> None:
    first, second = random.Random(3), random.Random(3)
    sizes = setting("local")[2]
    plans = [draw_plan(first, sizes, 8) for _ in range(300)]
    assert plans == [draw_plan(second, sizes, 8) for _ in range(300)]
    plans += [vary(first, plan, sizes) for plan in plans]
    for plan in plans:
        assert 5 <= plan["seats"] <= 45
        assert plan["files"] + plan["others"] <= 16
        assert plan["units"] <= sizes[1]
        assert plan["owner"] or (plan["false canary"], plan["owner's service"]) == (0, 0)
        assert list(plan)[7:] == list(CHOICES)
    assert {plan["owner"] for plan in plans} == {0, 1}
    assert {plan["votes on others' files"] for plan in plans} == set(VOTE.values())


@pytest.mark.parametrize("network", NETWORKS)
def test_a_lane_of_the_largest_files_earns_what_a_majority_has_bonded(network: str) -> None:
    fixed, rules, sizes = setting(network)
    assert 16 * sizes[1] * rules[0] == 2 * fixed[4]
    assert sizes[0] < sizes[1] == rules[-1]
    plan = draw_plan(random.Random(1), sizes, 8)
    types = [case_types()]
    ((told,),) = decode(types, encode(types, [[(fixed, rules, tuple(plan.values()))]]))
    assert told == (fixed, rules, tuple(plan.values()))
