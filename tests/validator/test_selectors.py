"""Which rounds need us."""

import pytest

from chain.indexer.records import Pool, Seat
from chain.indexer.state import State
from tests.chain.game import terms
from validator import rounds


@pytest.mark.parametrize(("seats", "ours", "likely"), [(8, 4, 1 - 4 / 56), (8, 1, 3 / 8), (8, 0, 0.0), (2, 2, 0.0)])
def test_the_chance_to_be_drawn(seats: int, ours: int, likely: float) -> None:
    state = State(seats={n: Seat(n, "0xo", f"0x{n}", 1, 0, groups=(7,)) for n in range(seats)})
    state.seats[99] = Seat(99, "0xo", "0x0", 1, 0, groups=(8,))  # judges another pool
    pool = Pool(7, "0xo", bytes(32), terms(committee=3), 0, 0)
    assert rounds.chance(state, {f"0x{n}" for n in range(ours)}, pool) == pytest.approx(likely)
