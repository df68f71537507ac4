"""Do the signed differences of activations agree between problems that have nothing to do with one another?

Rounding errors have no direction, while other weights push a feature the same way wherever it occurs. With P the sum of
a problem's signed differences in a bucket of features and C their count, x = P/√C has about the same spread in every
bucket, and

    S = Σ over pairs of problems ⟨x_p, x_q⟩,     N = how many pairs,

is near zero in honest work however large the errors are. So it tells small changes of weights from larger rounding.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from protocol.evidence.figures import Sum, rounded
from protocol.toploc.codec import Drift

PROBLEMS = 8  # Of a block: blocks share no problem, so they are independent


def coherence(problems: Sequence[Drift]) -> Sum:
    """Return S and N of one block; both 0 for fewer than two problems."""
    known = [one for one in problems if one.counts.any()]
    if len(known) < 2:
        return Sum(0.0, 0.0)
    scaled = np.array([one.sums / np.sqrt(np.maximum(one.counts, 1)) for one in known])
    together = scaled.sum(axis=0)
    total = (float(together @ together) - float((scaled * scaled).sum())) / 2
    return Sum(rounded(total), float(len(known) * (len(known) - 1) // 2))


def blocks_of(problems: Mapping[int, Drift]) -> list[Sum]:
    """Return S and N of every block of which a problem was measured, in order."""
    blocks: dict[int, list[Drift]] = {}
    for problem, own in sorted(problems.items()):
        blocks.setdefault(problem // PROBLEMS, []).append(own)
    return [coherence(block) for _, block in sorted(blocks.items())]
