"""The figures of every audited row, for the evidence that a node's files add up to (docs/evidence.md). No check: they
judge nothing by themselves."""

import math

from protocol.evidence.coherence import blocks_of
from protocol.evidence.figures import MOST_ROWS, RowFigures, finding, rounded
from protocol.evidence.unexplained import unexplained
from protocol.rollout_file.rows import Rollout
from protocol.toploc.codec import CHUNK
from protocol.verdict import Finding
from validator.context import CheckContext, RowMeasurements


def evidence(context: CheckContext) -> Finding:
    """The finding that publishes them."""
    rows = [row_figures(context.rollouts[row.row], row) for row in context.measured]
    drifts = {row.row: row.drift for row in context.measured[:MOST_ROWS]}
    return finding(rows, blocks_of(drifts, context.config.work.samples_per_problem))


def row_figures(rollout: Rollout, measured: RowMeasurements) -> RowFigures:
    """What is published of one row."""
    tokens = len(measured.gaps)
    return RowFigures(
        row=measured.row,
        tokens=tokens,
        chunks=len(measured.mantissas) - (tokens % CHUNK == 1),
        misses=sum(not gap <= 0 for gap in measured.gaps),
        mantissas=rounded(math.fsum(measured.mantissas)),
        errors=rounded(math.fsum(abs(a - b) for a, b in zip(rollout.logprobs, measured.logprobs, strict=True))),
        gaps=rounded(math.fsum(measured.gaps)),
        surprise=rounded(measured.surprise),
        dullness=rounded(measured.dullness),
        reward=rounded(rollout.reward),
        unexplained=rounded(_unexplained(rollout, measured)),
    )


def _unexplained(rollout: Rollout, measured: RowMeasurements) -> float:
    tokens = zip(measured.gaps, rollout.logprobs, measured.logprobs, measured.expected, strict=True)
    return math.fsum(unexplained(*token) for token in tokens if token[0] > 0)
