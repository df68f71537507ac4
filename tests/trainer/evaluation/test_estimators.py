"""avg@k and pass@k are the plain averages they stand for."""

import itertools
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.evaluate import average, pass_at, reported_ks, standard_error


@given(st.integers(1, 7), st.data())
def test_pass_at_k_is_the_share_of_all_k_subsets_that_hold_a_success(tries: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, tries))
    problems = data.draw(st.lists(st.lists(st.booleans(), min_size=tries, max_size=tries), min_size=1, max_size=4))
    shares = []
    for outcome in problems:
        subsets = list(itertools.combinations(outcome, k))
        shares.append(sum(any(subset) for subset in subsets) / len(subsets))
    expected = sum(shares) / len(shares)
    assert math.isclose(pass_at(k, tries, [sum(outcome) for outcome in problems]), expected, abs_tol=1e-12)


def test_pass_at_one_is_the_share_of_solved_tries() -> None:
    assert pass_at(1, 8, [0, 2, 8]) == pytest.approx(10 / 24)


def test_pass_at_k_is_exact_where_floating_point_factorials_would_overflow() -> None:
    assert pass_at(500, 1000, [1]) == 0.5


@pytest.mark.parametrize("k", [0, 9])
def test_pass_at_more_tries_than_there_were_is_refused(k: int) -> None:
    with pytest.raises(ValueError, match="cannot be told from 8 tries"):
        pass_at(k, 8, [1])


def test_the_average_is_over_all_tries() -> None:
    assert average([[0.0, 1.0], [1.0, 0.5]]) == 0.625


def test_the_standard_error_treats_the_tries_of_one_problem_as_one_draw() -> None:
    dice = random.Random(1)
    means = [dice.random() for _ in range(40)]
    once, thrice = [[mean] for mean in means], [[mean] * 3 for mean in means]
    assert standard_error(once) == pytest.approx(standard_error(thrice))
    centre = sum(means) / 40
    assert standard_error(once) == pytest.approx(math.sqrt(sum((m - centre) ** 2 for m in means) / 39 / 40))
    assert standard_error([[1.0, 0.0]]) == 0.0


def test_powers_of_two_and_all_tries_are_reported() -> None:
    assert [reported_ks(tries) for tries in (1, 2, 8, 12)] == [(1,), (1, 2), (1, 2, 4, 8), (1, 2, 4, 8, 12)]
