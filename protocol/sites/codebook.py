"""256 values that stand for all of a tensor's: where the bins lie, and the mean of what fell into each.

`uniform`: bins of equal width over the mean ± 3σ, what lies outside goes to the outermost. `quantile`: bins that each
hold about as many elements; for distributions with long tails, at the price of a sort. A reader needs the codebook
alone; who makes it of the same values gets the same to the bit, on any machine.
"""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from protocol.sites.layout import F32
from protocol.sites.reductions import moments

BINS = 256
SIGMAS = 3.0
Kind = Literal["uniform", "quantile"]
_SAMPLE = 1 << 18
"""Elements that quantiles are taken of."""


def quantise(values: F32, kind: Kind) -> tuple[NDArray[np.uint8], F32]:
    """Each element's bin, [size] uint8, and the codebook, [256] float32, ascending: the means of the bins' elements, an
    empty bin's that of the next lower one that has any. The mean of all elements is kept.

    Raises ValueError for an element that is not finite."""
    if not np.isfinite(values).all():
        raise ValueError("infinity or NaN cannot be quantised")
    if not values.size:
        return np.zeros(0, np.uint8), np.zeros(BINS, np.float32)
    codes = _uniform(values) if kind == "uniform" else _quantile(values)
    return codes, _means(values, codes)


def bin_width(values: F32) -> float:
    """Of `uniform`'s bins: what an element within mean ± 3σ is off by at most, besides rounding, but for the outermost
    two bins, where what lies outside is, too."""
    return 2 * SIGMAS * moments(values)[1] / BINS


def _uniform(values: F32) -> NDArray[np.uint8]:
    mean, deviation = moments(values)
    width = 2 * SIGMAS * deviation / BINS
    if width == 0:
        return np.zeros(values.size, np.uint8)
    places = values.astype(np.float64)
    places -= mean - SIGMAS * deviation
    places /= width
    clipped: NDArray[np.uint8] = np.clip(places, 0, BINS - 1).astype(np.uint8)
    return clipped


def _quantile(values: F32) -> NDArray[np.uint8]:
    sample = np.sort(values[:: -(-values.size // _SAMPLE)])
    edges = sample[(np.arange(1, BINS) * sample.size) // BINS]
    return np.searchsorted(edges, values, side="right").astype(np.uint8)


def _means(values: F32, codes: NDArray[np.uint8]) -> F32:
    counts = np.bincount(codes, minlength=BINS)
    sums: NDArray[Any] = np.bincount(codes, weights=values, minlength=BINS)
    means = np.where(counts > 0, sums / np.maximum(counts, 1), -np.inf)
    lowest = means[np.flatnonzero(counts)[0]]
    # Also where rounding put a mean a hair above the next one's.
    book: F32 = np.maximum(np.maximum.accumulate(means), lowest).astype(np.float32)
    return book
