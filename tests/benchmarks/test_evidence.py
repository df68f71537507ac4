"""The benchmark of evidence: histories drawn side by side are those that a node's evidence adds up to."""

import numpy as np
import pytest

from benchmarks.verification.evidence import histories
from protocol.evidence.figures import BETS, FIGURES
from protocol.evidence.null_model import NodeEvidence


def test_a_history_drawn_in_bulk_is_that_of_one_node() -> None:
    source = np.random.default_rng(1)
    paid = source.normal(0.2, 0.3, (1, len(FIGURES), BETS))
    evidence, accused = NodeEvidence(), 0
    for number in range(1, 41):
        evidence.add({name: tuple(paid[0, place].tolist()) for place, name in enumerate(FIGURES)})
        accused = accused or number * evidence.accused
    at, by, largest = histories(paid, 3, 40)
    assert at.tolist() == [accused] * 3
    assert accused > 0
    assert by.sum() == 3
    assert largest == pytest.approx(evidence.peak)
