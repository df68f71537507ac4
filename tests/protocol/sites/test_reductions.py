"""Sums that every machine makes to the bit: close to exact, and of one order whatever shards are."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.sites.layout import F32
from protocol.sites.reductions import BLOCK, added, dot, gram, moments

VECTORS = st.integers(0, 300).flatmap(
    lambda size: st.lists(st.floats(-(2.0**99), 2.0**99, width=32), min_size=size, max_size=size)
)


def line(values: list[float]) -> F32:
    return np.array(values, np.float32)


@given(values=VECTORS)
def test_a_product_is_close_to_the_exact_one(values: list[float]) -> None:
    other = values[::-1]
    exact = math.fsum(a * b for a, b in zip(line(values).tolist(), line(other).tolist(), strict=True))
    size = math.fsum(abs(a * b) for a, b in zip(line(values).tolist(), line(other).tolist(), strict=True))
    assert abs(dot([line(values)], [line(other)]) - exact) <= 1e-14 * size


def test_the_order_is_halves_of_blocks() -> None:
    """Written out for five: (a + d) + c and b + e, then both; of numbers whose sums are rounded."""
    dice = np.random.default_rng(0)
    for _ in range(50):
        values = (dice.standard_normal(5) * 2.0 ** dice.integers(-30, 30, 5)).astype(np.float32)
        a, b, c, d, e = values.tolist()
        assert dot([values], [np.ones(5, np.float32)]) == ((a + d) + c) + (b + e)


def test_blocks_are_added_with_one_rounding() -> None:
    values = np.zeros(3 * BLOCK, np.float32)
    values[0], values[BLOCK], values[2 * BLOCK] = 2.0**60, 1.0, -(2.0**60)
    assert dot([values], [np.ones_like(values)]) == 1.0


def test_what_is_not_finite_shows() -> None:
    for bad in (math.nan, math.inf):
        assert math.isnan(dot([line([1, bad])], [line([1, 1])]))
    assert math.isnan(added([gram([[line([math.inf])]]), gram([[line([1])]])])[0][0])
    with pytest.raises(ValueError, match="2 and 1 elements"):
        dot([line([1, 2])], [line([1])])


@pytest.mark.parametrize("sizes", [[], [1], [4096, 4097, 5], [BLOCK - 1, BLOCK, BLOCK + 1], [2 * BLOCK + 4097]])
def test_all_products_are_those_of_two_at_a_time(sizes: list[int]) -> None:
    """To the bit."""
    dice = np.random.default_rng(1)
    vectors = [[dice.standard_normal(size).astype(np.float32) for size in sizes] for _ in range(3)]
    assert gram(vectors) == [[dot(one, other) for other in vectors] for one in vectors]


def test_products_of_shards_make_those_of_the_whole() -> None:
    dice = np.random.default_rng(0)
    vectors = [dice.standard_normal(1000).astype(np.float32) for _ in range(3)]
    shards = [gram([[one[start : start + 250]] for one in vectors]) for start in range(0, 1000, 250)]
    np.testing.assert_allclose(added(shards), gram([[one] for one in vectors]), rtol=1e-12)


@given(values=VECTORS)
def test_mean_and_deviation(values: list[float]) -> None:
    mean, deviation = moments(line(values))
    if values:
        wide = line(values).astype(np.float64)
        scale = float(np.abs(wide).max())
        assert mean == pytest.approx(wide.mean(), abs=1e-12 * scale)
        assert deviation == pytest.approx(wide.std(), abs=1e-12 * scale + 1e-300)
    else:
        assert (mean, deviation) == (0, 0)
