"""Shapes of completions: what is far beyond what one's own policy says is found, whatever numbers come."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.config import PlausibilityConfig
from swarm.plausibility import Shape, implausible, shape_of, surprise_of_not, usual

CONFIG = PlausibilityConfig(slack=2.0, token_slack=3.0, stop_slack=2.0, window=4, odd=0.0, longer=1.25, brief=0)
ORDINARY = [0.1, 1.5, 0.0, 3.0, 0.2, 0.0, 0.4, 0.1]
OWN = [shape_of(ORDINARY, 4)] * 20
surprises = st.lists(st.floats(0, 30), min_size=1, max_size=40)


def doubt(values: list[float], stop: float = 0.0, own: list[Shape] = OWN) -> str | None:
    return implausible(shape_of(values, CONFIG.window, stop), usual(own, CONFIG.odd), CONFIG)


def test_what_is_like_one_s_own_is_plausible() -> None:
    assert doubt(ORDINARY) is None
    assert doubt([*ORDINARY, 4.9]) is None


def test_a_token_that_the_policy_finds_impossible_is_found_anywhere() -> None:
    for place in range(len(ORDINARY) + 1):
        planted = [*ORDINARY[:place], 9.0, *ORDINARY[place:]]
        assert "a token of 9.0 nats, 3.0 is usual" in str(doubt(planted)), place


def test_a_phrase_of_tokens_each_of_which_is_possible_is_found() -> None:
    assert "18.0 nats within 4 tokens, 4.7 are usual" in str(doubt([*ORDINARY, 4.5, 4.5, 4.5, 4.5]))


def test_a_longer_text_than_one_s_own_is_found() -> None:
    assert doubt([0.1] * 10) is None
    assert doubt([0.1] * 11) == "11 tokens, 8 are usual"
    brief = CONFIG.model_copy(update={"brief": 11})
    assert implausible(shape_of([0.1] * 11, 4), OWN[0], brief) is None
    assert implausible(shape_of([0.1] * 12, 4), OWN[0], brief) is not None


def test_a_text_that_should_have_ended_is_found() -> None:
    """A policy that ends there with 99% takes 4.6 nats not to; with half it takes 0.7."""
    assert doubt(ORDINARY, surprise_of_not(math.log(0.5))) is None
    assert "not to end there" in str(doubt(ORDINARY, surprise_of_not(math.log(0.99))))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_numbers_that_are_none_are_never_plausible(bad: float) -> None:
    assert doubt([*ORDINARY, bad]) is not None
    assert doubt(ORDINARY, bad) is not None


def test_an_engine_s_mistake_does_not_make_everything_usual() -> None:
    broken = [shape_of([math.nan, 0.1], 4), *OWN]
    assert not broken[0].finite
    assert usual(broken, 0.0) == usual(OWN, 0.0)
    assert doubt([9.0], own=broken) is not None


def test_without_own_completions_nothing_is_plausible() -> None:
    assert usual([], 0.01) == Shape(-math.inf, -math.inf, 0)
    assert doubt([0.0], own=[]) is not None
    assert doubt([0.0], own=[shape_of([math.inf], 4)]) is not None


def test_one_token_and_none() -> None:
    assert shape_of([2.0], 4) == Shape(2.0, 2.0, 1)
    assert shape_of([], 4) == Shape(0.0, 0.0, 0)
    assert shape_of([-0.5], 4).worst == 0.0, "rounding may make p a little more than 1"


def test_the_odd_ones_out_are_not_what_is_usual() -> None:
    own = [*OWN, *OWN, *OWN, *OWN, *OWN, Shape(20.0, 15.0, 8)]
    assert usual(own, 0.01) == OWN[0]
    assert usual(own, 0.0) == Shape(20.0, 15.0, 8)


@given(surprises, st.integers(1, 50))
def test_the_window_lies_between_the_worst_and_the_whole(values: list[float], window: int) -> None:
    shape = shape_of(values, window)
    assert shape.worst <= shape.window + 1e-9
    assert shape.window <= math.fsum(values) + 1e-9
    assert window < len(values) or shape.window == math.fsum(values)
    assert shape_of(values, 1).window == shape.worst


@given(st.lists(surprises, min_size=1, max_size=20))
def test_every_own_completion_is_plausible_where_none_is_odd(texts: list[list[float]]) -> None:
    own = [shape_of(one, CONFIG.window) for one in texts]
    known = usual(own, 0.0)
    assert all(implausible(one, known, CONFIG) is None for one in own)


@given(surprises, st.integers(0, 39), st.floats(0, 50))
def test_more_surprise_never_makes_a_text_more_plausible(values: list[float], place: int, more: float) -> None:
    worse = list(values)
    worse[place % len(values)] += more
    if doubt(values) is not None:
        assert doubt(worse) is not None


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_not_ending_is_never_a_negative_surprise(logarithm: float) -> None:
    found = surprise_of_not(logarithm)
    assert found >= 0
    assert not math.isnan(found)


def test_not_ending_takes_what_is_left_of_the_probability() -> None:
    assert surprise_of_not(math.log(0.75)) == pytest.approx(math.log(4))
    assert surprise_of_not(-math.inf) == 0.0
    assert surprise_of_not(0.0) == math.inf
    assert surprise_of_not(-1e-300) > 600
