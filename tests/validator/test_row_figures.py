"""Figures of a row: what a miss is, and what of it ln p explains."""

from dataclasses import replace

from protocol.evidence.figures import unexplained
from tests.validator.world import context
from validator.judging.measurements import row_figures


def test_misses_are_explained_by_their_own_tokens() -> None:
    """The second token's miss is explained by its ln p, the third's is not: claimed is our own."""
    honest = context()
    row, measured = next(pair for pair in zip(honest.rollouts, honest.measured, strict=True) if len(pair[1].gaps) > 2)
    count = len(row.output_tokens)
    own = tuple(a - (0.5 if place == 1 else 0.0) for place, a in enumerate(measured.logprobs))
    gaps = tuple(0.2 if place in (1, 2) else 0.0 for place in range(count))
    found = row_figures(row, replace(measured, gaps=gaps, logprobs=own, expected=(-0.7,) * count))
    assert found.unexplained == 1.0
    nearly = tuple(a - (0.01 if place == 1 else 0.0) for place, a in enumerate(measured.logprobs))
    found = row_figures(row, replace(measured, gaps=gaps, logprobs=nearly, expected=(-0.7,) * count))
    share = unexplained(0.2, row.logprobs[1], nearly[1], -0.7)
    assert 0 < share < 1
    assert abs(found.unexplained - 1.0 - share) < 1e-5
    assert row_figures(row, measured).unexplained == 0.0
