"""The 128 largest magnitudes of a chunk, with torch.topk's own choice among ties, at a fraction of its cost.

torch.topk on a CPU runs std::partial_sort over (value, index) pairs when 64·k ≤ n: a heap of the first k elements,
which an element enters only if it is strictly larger than the heap's smallest. Leaving out elements that cannot enter
changes nothing, so rows of 8,192 elements and more are thinned first: an element not above the 128th largest of a
prefix before it never enters. Shorter rows go through std::nth_element, which sees every element: no thinning there.
"""

import numpy as np
import numpy.typing as npt
import torch

from protocol.proofs.codec import TOP_K

PARTIAL_SORT_FROM = 64 * TOP_K
FIRST_PREFIX = 512
GROWTH = 4

Bits = npt.NDArray[np.int16]
Indices = npt.NDArray[np.int64]


def top_indices(bits: Bits) -> Indices:
    """Flat indices [n, 128] (in no order) of the largest of each row of bits int16 [n, w ≥ 128], ties as torch.topk."""
    if bits.shape[1] < PARTIAL_SORT_FROM:
        return _topk(bits)
    kept = [_survivors(row) for row in bits]
    width = max(PARTIAL_SORT_FROM, max(map(len, kept)))
    # Zeros at the end never enter the heap; they keep the row long enough for partial_sort.
    thinned = np.zeros((len(kept), width), dtype=np.int16)
    origin = np.zeros((len(kept), width), dtype=np.int64)
    for row, survivors in enumerate(kept):
        thinned[row, : len(survivors)] = bits[row, survivors]
        origin[row, : len(survivors)] = survivors
    return np.take_along_axis(origin, _topk(thinned), axis=1)


def _topk(bits: Bits) -> Indices:
    # The selected set does not depend on `sorted`, and the polynomial depends on the set alone.
    indices: Indices = torch.from_numpy(bits).topk(TOP_K, dim=1, sorted=False).indices.numpy()
    return indices


def _survivors(row: Bits) -> Indices:
    kept = [np.arange(FIRST_PREFIX)]
    known, done = row[:FIRST_PREFIX], FIRST_PREFIX
    while done < len(row):
        end = min(len(row), done * GROWTH)
        known = np.partition(known, len(known) - TOP_K)[len(known) - TOP_K :]
        fresh = np.flatnonzero(row[done:end] > known[0])
        fresh += done
        kept.append(fresh)
        known = np.concatenate([known, row[fresh]])
        done = end
    return np.concatenate(kept)


def cuts(bits: Bits) -> npt.NDArray[np.int16]:
    """The 128th largest of each row: int16 [n]."""
    at = bits.shape[1] - TOP_K
    cut: npt.NDArray[np.int16] = np.partition(bits, at, axis=1)[:, at]
    return cut
