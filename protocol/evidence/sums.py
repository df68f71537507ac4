"""What each accumulator adds up: a sum S and a count N for every problem of a file.

Problems of a file are independent draws, the samples of one are not: a bet is settled once per problem. Each
accumulator looks at what another kind of cheat moves.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from protocol.evidence.figures import Blocks, RowFigures


@dataclass(frozen=True)
class Sum:
    """S and N of one accumulator in one problem: in honest work S stays about a rate times N, or below."""

    total: float
    count: float


ACCUMULATORS: Mapping[str, str] = {
    "mantissas": "mantissa differences, per chunk: other weights or arithmetic",
    "logprobs": "differences of ln p, per token: other weights or arithmetic",
    "misses": "tokens that the noise did not pick, per token: tokens chosen by other means",
    "unexplained": "such tokens whose ln p differs too little for rounding to have picked them, per token: the same",
    "gaps": "score gaps of such tokens, per token: tokens chosen as far off as the file's threshold allows",
    "steering": "rewards of rows with such tokens above those of the problem's other rows: tokens chosen for reward",
    "surprise": "chosen tokens less probable than samples are, per token: text of another model",
    "dullness": "chosen tokens more probable than samples are, per token: text without the noise's luck",
}
"""Name → what it adds up, and whom that finds."""
BLOCK_ACCUMULATORS: Mapping[str, str] = {
    "coherence": "differences of activations that agree between problems, per pair of these: other weights",
}
"""The same of what is settled once for a block of problems (protocol/evidence/coherence.py)."""
ALL = (*ACCUMULATORS, *BLOCK_ACCUMULATORS)


def problem_sums(rows: Sequence[RowFigures]) -> dict[str, Sum]:
    """The sums of the audited rows of one problem."""
    tokens = float(sum(row.tokens for row in rows))
    return {
        "mantissas": Sum(math.fsum(row.mantissas for row in rows), float(sum(row.chunks for row in rows))),
        "logprobs": Sum(math.fsum(row.errors for row in rows), tokens),
        "misses": Sum(float(sum(row.misses for row in rows)), tokens),
        "unexplained": _unexplained(rows, tokens),
        "gaps": Sum(math.fsum(row.gaps for row in rows), tokens),
        "steering": _steering(rows),
        "surprise": Sum(math.fsum(row.surprise for row in rows), tokens),
        "dullness": Sum(math.fsum(row.dullness for row in rows), tokens),
    }


def file_sums(rows: Sequence[RowFigures], samples: int) -> list[dict[str, Sum]]:
    """The sums of every problem of a file, in order; row r is of problem r // `samples`."""
    problems: dict[int, list[RowFigures]] = {}
    for row in rows:
        problems.setdefault(row.row // samples, []).append(row)
    return [problem_sums(group) for _, group in sorted(problems.items())]


def block_sums(blocks: Blocks) -> list[dict[str, Sum]]:
    """The sums of every block of a file."""
    return [{"coherence": Sum(total, float(pairs))} for total, pairs in blocks]


def _unexplained(rows: Sequence[RowFigures], tokens: float) -> Sum:
    """Older documents do not say: nothing is counted, so that every bet pays 1."""
    known = [row.unexplained for row in rows if row.unexplained is not None]
    return Sum(math.fsum(known), tokens) if len(known) == len(rows) else Sum(0.0, 0.0)


def _steering(rows: Sequence[RowFigures]) -> Sum:
    """Reward of each row with a miss, less the mean of the others: rounding knows nothing of rewards, so that in honest
    work a miss gains as often as it loses, up to what else rows with misses have in common (their length), which
    calibration sees too."""
    everything = math.fsum(row.reward for row in rows)
    missed = [row for row in rows if row.misses]
    if len(rows) < 2:
        return Sum(0.0, 0.0)
    return Sum(math.fsum(row.reward - (everything - row.reward) / (len(rows) - 1) for row in missed), len(missed))
