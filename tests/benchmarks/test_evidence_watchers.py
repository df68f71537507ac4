"""A node that watches its own evidence cheats no more than the bound says, however near the limit it dares to go."""

import statistics

import numpy as np
import pytest

from benchmarks.evidence_lives import Table
from benchmarks.evidence_watchers import ROOM, bound, watch
from protocol.evidence.law import BETS
from protocol.evidence.process import LIMIT_NATS, NAMES, NodeCase


def files(rise: float, chance: float) -> Table:
    """One bet of one accumulator pays `rise` nats with a chance, and else takes as many; all others pay nothing."""
    nats = np.zeros((1000, len(NAMES), BETS))
    nats[:, 0, 0] = np.where(np.arange(1000) < 1000 * chance, rise, -rise)
    return Table(nats)


@pytest.mark.parametrize("margin", [0.0, 1.0, 5.0])
@pytest.mark.parametrize("chance", [0.7, 0.95])
def test_whoever_watches_cheats_no_more_than_the_bound(margin: float, chance: float) -> None:
    cheat, honest = files(0.8, chance), files(0.8, 0.3)
    found = watch(cheat, honest, margin, 200, 20, np.random.default_rng(1))
    mean = statistics.fmean(found.cheated)
    assert mean <= bound(cheat, honest, 200)
    # It is not loose: who keeps enough of a distance not to be accused comes near.
    if margin == 5.0:
        assert mean > bound(cheat, honest, 200) / 2


def test_the_bound_is_the_room_and_what_honest_files_take_back() -> None:
    cheat, honest = files(1.0, 1.0), files(1.0, 0.0)
    assert bound(cheat, honest, 100) == pytest.approx((ROOM + 1.0 + 100) / 2)
    assert bound(honest, honest, 100) == 100, "what pays no bet is not found"


def test_one_bet_alone_accuses_at_the_room() -> None:
    paid, case = {NAMES[0]: (ROOM + 0.01, *(0.0,) * (BETS - 1))}, NodeCase()
    case.add(paid)
    assert case.accused
    assert case.total >= LIMIT_NATS
