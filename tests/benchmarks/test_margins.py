"""Scores of batches of tokens: AUC, and what counts as beyond TOPLOC's thresholds."""

import json

import numpy as np
import pytest

from benchmarks.margins import EVIDENCE, about, auc, batches, known_law, life, scored
from protocol.evidence.figures import RowFigures
from protocol.evidence.law import BETS


def row(number: int, misses: int, mantissa: float = 0.1) -> dict[str, object]:
    """A rollout of 40 tokens of which some are a margin of 0.5 behind."""
    margins = [0.5] * misses + [0.0] * (40 - misses)
    figures = RowFigures(number, 40, 2, misses, 2 * mantissa, 0.0, 0.5 * misses, -12.0, -2.5, 0.0)
    return {
        "margins": margins,
        "errors": [0.0] * 40,
        "mantissas": [mantissa, mantissa],
        "mismatches": [0, 39 if misses else 38],
        "figures": list(vars(figures).values()),
    }


def test_auc_counts_pairs_and_equal_ones_half() -> None:
    assert auc(np.array([0.0, 1.0]), np.array([0.0, 1.0])) == 0.5
    assert auc(np.array([0.0, 1.0]), np.array([2.0, 3.0])) == 1.0
    assert auc(np.array([0.0, 1.0, 1.0, 4.0]), np.array([1.0])) == 0.5
    assert auc(np.array([0.0, 1.0, 2.0, 4.0]), np.array([2.0])) == 0.625


def test_more_tokens_tell_more_of_a_cheat() -> None:
    rng = np.random.default_rng(1)
    honest, cheat = ([row(at, int(at % every == 0)) for at in range(256)] for every in (64, 8))
    at = [auc(*(batches(*scored(one)["margin"], size, rng) for one in (honest, cheat))) for size in (40, 400, 4_000)]
    assert 0.5 < at[0] < at[1] < at[2] > 0.99


def test_a_kind_is_told_by_its_tokens_and_chunks() -> None:
    rows = [row(0, 0), row(1, 2, mantissa=9.0), row(2, 0, mantissa=10.5)]
    assert about(rows) == {"tokens": 120, "chunks": 6, "misses": pytest.approx(2 / 120, rel=1e-2), "beyond": 3}


def test_the_law_is_that_of_the_kept_evidence() -> None:
    law = known_law(json.loads(EVIDENCE.read_text()))
    assert all(len(bets) == BETS for bets in law.bets.values())
    cheat = life("cheat", law, [row(at, at % 4) for at in range(128)], np.random.default_rng(2))
    honest = life("honest", law, [row(at, 0, 0.05) for at in range(128)], np.random.default_rng(2))
    assert cheat["found"] == 100
    assert cheat["by"] in ("misses", "gaps")
    assert (honest["found"], honest["by"]) == (0, "")
