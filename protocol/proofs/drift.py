"""Which way claimed activations are off, feature by feature: what a mean of absolute differences forgets."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

BUCKETS = 128
"""Feature f of a hidden state counts in bucket f mod 128."""
MOST_STEPS = 3
"""One value counts for at most three steps of bfloat16 (units in the last place, across exponents too)."""


class Drift(NamedTuple):
    """Over the compared values of a completion's proofs: `sums` of signed differences, claimed − own, in steps of
    bfloat16, and `counts` of values; both int64 [BUCKETS]. Chunks of a single token are left out."""

    sums: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]

    @classmethod
    def none(cls) -> "Drift":
        return cls(np.zeros(BUCKETS, dtype=np.int64), np.zeros(BUCKETS, dtype=np.int64))
