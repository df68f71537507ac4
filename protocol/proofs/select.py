"""The 128 largest magnitudes of a chunk: torch.topk's own choice among ties for provers, all of them for verifiers.

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
FIRST_PREFIX = 1024
GROWTH = 8
# Elements under each other whose maximum is taken first when few of many are sought.
FOLD = 8
FOLD_FROM = 4096
# Longer rows are searched one by one, column maxima first; shorter ones side by side.
SEARCH_FROM = 16384

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
    for row, survivors in enumerate(kept):
        np.take(bits[row], survivors, out=thinned[row, : len(survivors)])
    chosen = _topk(thinned)
    return np.stack([survivors[own] for survivors, own in zip(kept, chosen, strict=True)])


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
        fresh = _above(row[done:end], int(known[0]))
        fresh += done
        kept.append(fresh)
        known = np.concatenate([known, row[fresh]])
        done = end
    return np.concatenate(kept)


def _above(row: Bits, floor: int) -> Indices:
    """Ascending indices of the elements above `floor`; quick where they are few."""
    width = len(row) // FOLD
    if width * FOLD < FOLD_FROM:
        return np.flatnonzero(row > floor)
    folded = row[: width * FOLD].reshape(FOLD, width)
    columns = np.flatnonzero(folded.max(axis=0) > floor)
    lines, places = np.nonzero(np.take(folded, columns, axis=1) > floor)
    found = lines * width + columns[places]
    rest = np.flatnonzero(row[width * FOLD :] > floor)
    return np.concatenate([found, rest + width * FOLD]) if len(rest) else found


def at_least_cut(bits: Bits) -> tuple[Indices, Indices, npt.NDArray[np.int16]]:
    """Every element at or above its row's 128th largest: row numbers (ascending), columns, and the cut of each row."""
    if bits.shape[1] < SEARCH_FROM:
        at = bits.shape[1] - TOP_K
        cut: Bits = np.partition(bits, at, axis=1)[:, at]
        flat = np.flatnonzero(bits >= cut[:, None])
        rows, columns = np.divmod(flat, bits.shape[1])
        return rows, columns, cut
    parts, cuts = [], []
    for row in bits:
        columns, smallest = _search(row)
        parts.append(columns)
        cuts.append(smallest)
    rows = np.repeat(np.arange(len(bits)), [len(part) for part in parts])
    return rows, np.concatenate(parts), np.array(cuts, dtype=np.int16)


def _search(row: Bits) -> tuple[Indices, int]:
    """Columns at or above the 128th largest of one row, and that value.

    The 128th largest of the column maxima of a folded row is a bound from below, and a tight one.
    """
    fold = len(row) // 4096
    width = len(row) // fold
    maxima = row[: fold * width].reshape(fold, width).max(axis=0)
    bound = int(np.partition(maxima, width - TOP_K)[width - TOP_K])
    columns = np.flatnonzero(maxima >= bound)
    lines, places = np.nonzero(np.take(row[: fold * width].reshape(fold, width), columns, axis=1) >= bound)
    found = lines * width + columns[places]
    tail = np.flatnonzero(row[fold * width :] >= bound) + fold * width
    found = np.concatenate([found, tail]) if len(tail) else found
    values = row[found]
    cut = int(np.partition(values, len(values) - TOP_K)[len(values) - TOP_K])
    return found[values >= cut], cut
