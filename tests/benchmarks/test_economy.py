"""The economy: plans, expectations, what forge is told, and what a few plans come to on the contracts."""

import random

import pytest
from eth_abi.abi import decode, encode

from benchmarks.economy import (
    CHOICES,
    NAMED,
    STATED,
    UNITS,
    VOTE,
    EconomyLimits,
    Played,
    best,
    case_types,
    draw_plan,
    labels,
    play,
    setting,
    vary,
)
from protocol.encoding import TOKEN


def played(seats: int, *gains: int) -> Played:
    plan = draw_plan(random.Random(0), len(gains), {}) | {"seats": seats, "files": 3, "others": 7}
    return Played(plan, lanes=[(gain * TOKEN, 0) for gain in gains])


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
    assert best([wild, steady]) == [steady, wild]


def test_plans_follow_from_the_seed_and_stay_legal() -> None:
    first, second = random.Random(3), random.Random(3)
    plans = [draw_plan(first, 8) for _ in range(300)]
    assert plans == [draw_plan(second, 8) for _ in range(300)]
    plans += [vary(first, plan) for plan in plans]
    for plan in plans:
        assert 5 <= plan["seats"] <= 100 * STATED.seats
        assert plan["files"] + plan["others"] <= 16
        assert plan["units"] <= UNITS
        assert plan["owner"] or (plan["false canary"], plan["owner's service"]) == (0, 0)
        assert list(plan)[7:] == list(CHOICES)
    assert {plan["owner"] for plan in plans} == {0, 1}
    votes = {plan["votes on others' files"] for plan in plans}
    assert votes > set(labels("votes on others' files").values()), "seats that vote alike, and each its own way"
    assert {vote >> 4 & 15 for vote in votes} == set(VOTE.values())


def test_a_check_of_the_largest_file_pays_more_than_a_committee_that_looks_at_nothing() -> None:
    fixed, rules = setting(UNITS)
    assert 16 * UNITS * rules[0] <= 2 * fixed[4], "a majority's bonds cover a lane's pay"
    check, fee = rules[-1], rules[1]
    assert fee - check > fee / 4
    plan, types = draw_plan(random.Random(1), 8), [case_types()]
    ((told,),) = decode(types, encode(types, [[(fixed, rules, tuple(plan.values()))]]))
    assert told == (fixed, rules, tuple(plan.values()))


def test_honest_play_comes_to_nothing_and_named_strategies_lose_on_the_contracts() -> None:
    """What the harness counts is zero for honest parties, to the last base unit, in every kind of lane."""
    shown = (
        "all its seats vote unavailable, unseen",
        "owner voids honest work (High 1)",
        "nodes forge, their seats accept",
    )
    usual = {"seats": 33, "files": 4, "others": 12, "units": UNITS}
    honest, *losing = (
        Played(draw_plan(random.Random(1), 16, usual | named)) for named in ({}, *(NAMED[name] for name in shown))
    )
    play([honest, *losing])
    assert honest.lanes == [(0, 0)] * 16
    assert [one.expected()[0] < 0 for one in losing] == [True] * 3
