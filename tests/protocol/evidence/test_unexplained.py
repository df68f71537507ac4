"""A miss that rounding made comes with a difference of ln p; one that was chosen and then proven honestly does not."""

import math

import numpy as np
import pytest

from protocol.evidence.figures import unexplained


def logprobs(logits: np.ndarray) -> np.ndarray:
    out: np.ndarray = logits - np.logaddexp.reduce(logits)
    return out


@pytest.mark.parametrize("moved", ["expected", "chosen"])
def test_what_one_score_is_off_by_explains_the_miss_that_it_makes(moved: str) -> None:
    """Also where the expected token is a rare one, and ln p of the chosen one hardly changes."""
    for expected, chosen, gap in [(1.0, 0.5, 0.3), (-6.0, 2.0, 0.05), (3.0, -4.0, 0.9), (0.0, 0.0, 0.001)]:
        own = np.array([expected, chosen, 0.3, -1.0])
        theirs = own + np.array([-gap, 0, 0, 0] if moved == "expected" else [0, gap, 0, 0])
        own, theirs = logprobs(own), logprobs(theirs)
        assert unexplained(gap, theirs[1], own[1], own[0]) == pytest.approx(0.0, abs=1e-9)
        assert unexplained(gap, own[1], own[1], own[0]) == 1.0
        assert unexplained(gap, (theirs[1] + own[1]) / 2, own[1], own[0]) == pytest.approx(0.5) or moved == "chosen"


def test_rounding_of_all_scores_explains_nearly_all_of_its_misses_and_cooler_sampling_none() -> None:
    """Scores of 40 tokens in steps of bfloat16 around 8, each rounded anew with probability 1/10."""
    source = np.random.default_rng(2)
    honest: list[float] = []
    cooler: list[float] = []
    for _ in range(60):
        own = source.normal(4, 3, 40)
        noise = source.gumbel(size=(2000, 40))
        theirs = own + source.choice([-1, 0, 0, 0, 0, 0, 0, 0, 0, 1], 40) / 32
        for logits, found in ((theirs, honest), (own / 0.98, cooler)):
            mine, other = (own + noise).argmax(1), (logits + noise).argmax(1)
            for draw in np.flatnonzero(mine != other):
                gap = (own + noise[draw])[mine[draw]] - (own + noise[draw])[other[draw]]
                claimed = logprobs(logits if found is honest else own)[other[draw]]
                found.append(unexplained(gap, claimed, logprobs(own)[other[draw]], logprobs(own)[mine[draw]]))
    assert len(honest) > 100
    assert np.mean(honest) < 0.1
    assert len(cooler) > 100
    assert min(cooler) == 1.0, "the text was proven by the very scores that the verifier has"


@pytest.mark.parametrize("gap", [1e-12, 30.0, math.inf])
@pytest.mark.parametrize("expected", [0.0, 1e-9, -1e-12, -1e4])
def test_no_figure_breaks_it(gap: float, expected: float) -> None:
    for claimed in (-3.0, 0.0, -1e300):
        assert 0.0 <= unexplained(gap, claimed, -3.0, expected) <= 1.0
