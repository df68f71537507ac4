"""Properties of the plan over random lengths, and its waste on a long-tailed mix."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.batch import WorkEstimate, idle_share, plan_rows

SETTINGS = {
    "lengths": st.lists(st.integers(1, 300), max_size=60),
    "capacity": st.integers(1, 400),
    "ranks": st.integers(1, 7),
    "together": st.booleans(),
}


def quadratic(length: int) -> float:
    return length * (1 + length / 200)


@given(**SETTINGS)
def test_every_sequence_is_trained_exactly_once(lengths: list[int], capacity: int, ranks: int, together: bool) -> None:
    plan = plan_rows(lengths, capacity, ranks, quadratic, together)
    assert Counter(place for rows in plan for row in rows for place in row) == Counter(range(len(lengths)))


@given(**SETTINGS)
def test_every_rank_has_equally_many_rows(lengths: list[int], capacity: int, ranks: int, together: bool) -> None:
    plan = plan_rows(lengths, capacity, ranks, quadratic, together)
    assert len(plan) == ranks
    assert len({len(rows) for rows in plan}) == 1
    rounds = list(zip(*plan, strict=True))
    assert all(any(rows) for rows in rounds), "a round of dummies alone"


@given(**SETTINGS)
def test_no_row_exceeds_the_capacity_unless_it_is_one_sequence(
    lengths: list[int], capacity: int, ranks: int, together: bool
) -> None:
    for rows in plan_rows(lengths, capacity, ranks, quadratic, together):
        for row in rows:
            sizes = [lengths[place] for place in row]
            assert len(row) == 1 or (together and sum(sizes) <= capacity) or not row
            assert sizes == sorted(sizes, reverse=True)


@given(**SETTINGS)
def test_the_same_lengths_give_the_same_plan(lengths: list[int], capacity: int, ranks: int, together: bool) -> None:
    first = plan_rows(lengths, capacity, ranks, quadratic, together)
    assert first == plan_rows(list(lengths), capacity, ranks, quadratic, together)


def long_tailed(count: int, longest: int, seed: int) -> list[int]:
    dice = random.Random(seed)
    return [min(longest, 1 + int(dice.lognormvariate(7.0, 1.2))) for _ in range(count)]


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("seed", range(3))
def test_less_than_three_percent_is_wasted_on_a_long_tailed_mix(ranks: int, seed: int) -> None:
    lengths = long_tailed(2048, 16384, seed)
    # As heavy in attention as a model of half a billion parameters.
    work = WorkEstimate(1e9, ((0, 9e4),)).of_sequence
    plan = plan_rows(lengths, 32768, ranks, work)
    assert idle_share(plan, lengths, work) < 0.03
    rows = sum(len(rows) for rows in plan)
    assert rows <= 1.03 * sum(lengths) / 32768 + ranks, "rows are not nearly full"


def test_idle_share_counts_ranks_that_wait() -> None:
    assert idle_share([[(0,)], [(1,)]], [10, 10], float) == 0.0
    assert idle_share([[(0,)], [(1,)]], [10, 5], float) == pytest.approx(0.25)
    assert idle_share([[], []], [], float) == 0.0


@pytest.mark.parametrize("wrong", [{"ranks": 0}, {"capacity": 0}, {"lengths": [3, 0]}])
def test_senseless_sizes_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        plan_rows(**({"lengths": [1], "capacity": 8, "ranks": 1, "work": float} | wrong))  # type: ignore[arg-type]
