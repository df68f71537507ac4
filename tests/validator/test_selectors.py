"""Which rounds need us."""

import pytest

from chain.records import Seat
from chain.state import State
from validator import selectors


@pytest.mark.parametrize(("seats", "ours", "likely"), [(8, 4, 1 - 4 / 56), (8, 1, 3 / 8), (8, 0, 0.0), (2, 2, 0.0)])
def test_the_chance_to_be_drawn(seats: int, ours: int, likely: float) -> None:
    state = State(seats={n: Seat(n, "0xo", f"0x{n}", 1, 0) for n in range(seats)})
    assert selectors.chance(state, {f"0x{n}" for n in range(ours)}, 3) == pytest.approx(likely)
