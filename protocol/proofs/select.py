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
# Longer rows are searched by the maxima of columns, after folding them into about so many.
FOLDED_WIDTH = 4096
SEARCH_FROM = 4 * FOLDED_WIDTH

Bits = npt.NDArray[np.int16]
Indices = npt.NDArray[np.int64]


def top_indices(bits: Bits) -> Indices:
    """Flat indices [n, 128] (in no order) of the largest of each row of bits int16 [n, w ≥ 128], ties as torch.topk."""
    if bits.shape[1] < PARTIAL_SORT_FROM:
        return _topk(bits)
    rows, columns, slots = _survivors(bits)
    width = int(slots.max(initial=FIRST_PREFIX)) + 1
    # Zeros at the end never enter the heap; they keep the row long enough for partial_sort.
    thinned = np.zeros((len(bits), max(PARTIAL_SORT_FROM, width)), dtype=np.int16)
    origin = np.empty((len(bits), width), dtype=np.int64)
    thinned[:, :FIRST_PREFIX] = bits[:, :FIRST_PREFIX]
    origin[:, :FIRST_PREFIX] = np.arange(FIRST_PREFIX)
    thinned[rows, slots] = bits[rows, columns]
    origin[rows, slots] = columns
    return np.take_along_axis(origin, _topk(thinned), axis=1)


def _topk(bits: Bits) -> Indices:
    # The selected set does not depend on `sorted`, and the polynomial depends on the set alone.
    indices: Indices = torch.from_numpy(bits).topk(TOP_K, dim=1, sorted=False).indices.numpy()
    return indices


def _survivors(bits: Bits) -> tuple[Indices, Indices, Indices]:
    """Elements after the first prefix that may enter the heap: rows, columns, and their places after thinning."""
    found: list[tuple[Indices, Indices, Indices]] = []
    filled = np.full(len(bits), FIRST_PREFIX)
    known, done = bits[:, :FIRST_PREFIX], FIRST_PREFIX
    while done < bits.shape[1]:
        end = min(bits.shape[1], done * GROWTH)
        at = known.shape[1] - TOP_K
        known = np.partition(known, at, axis=1)[:, at:]
        rows, columns = _where(bits[:, done:end] > known[:, :1])
        columns += done
        ranks, counts = _ranks(rows, len(bits))
        found.append((rows, columns, ranks + filled[rows]))
        filled = filled + counts
        known = np.concatenate([known, _table(rows, ranks, bits[rows, columns], counts)], axis=1)
        done = end
    rows, columns, slots = (np.concatenate(part) for part in zip(*found, strict=True))
    return rows, columns, slots


def _where(mask: npt.NDArray[np.bool_]) -> tuple[Indices, Indices]:
    """Rows (ascending) and columns of what is true."""
    flat, starts = np.flatnonzero(mask), np.arange(len(mask) + 1) * mask.shape[1]
    counts = np.diff(np.searchsorted(flat, starts))
    return np.repeat(np.arange(len(mask)), counts), flat - np.repeat(starts[:-1], counts)


def _ranks(rows: Indices, count: int) -> tuple[Indices, Indices]:
    """For ascending row numbers: each entry's place within its row, and the number of entries of each row."""
    counts = np.bincount(rows, minlength=count)
    return np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts), counts


def _table(rows: Indices, ranks: Indices, values: Bits, counts: Indices) -> Bits:
    """Values of each row side by side, zeros after them: int16 [n, largest count]."""
    out = np.zeros((len(counts), int(counts.max(initial=0))), dtype=np.int16)
    out[rows, ranks] = values
    return out


def at_least_cut(bits: Bits) -> tuple[Indices, Indices, Bits]:
    """Every element at or above its row's 128th largest: row numbers (ascending), columns, and the cut of each row."""
    if bits.shape[1] >= SEARCH_FROM and bits.shape[1] % (bits.shape[1] // FOLDED_WIDTH) == 0:
        return _search(bits)
    at = bits.shape[1] - TOP_K
    cut: Bits = np.partition(bits, at, axis=1)[:, at]
    rows, columns = _where(bits >= cut[:, None])
    return rows, columns, cut


def _search(bits: Bits) -> tuple[Indices, Indices, Bits]:
    """`at_least_cut` of long rows, folded into lines under each other.

    The 128th largest of a folded row's column maxima is a bound from below, and a tight one.
    """
    fold = bits.shape[1] // FOLDED_WIDTH
    width = bits.shape[1] // fold
    folded = bits.reshape(len(bits), fold, width)
    maxima = folded.max(axis=1)
    at = width - TOP_K
    bound = np.partition(maxima, at, axis=1)[:, at]
    owners, places = _where(maxima >= bound[:, None])
    columns_of = folded[owners, :, places]
    which, lines = _where(columns_of >= bound[owners, None])
    rows, columns, values = owners[which], lines * width + places[which], columns_of[which, lines]
    ranks, counts = _ranks(rows, len(bits))
    table = _table(rows, ranks, values, counts)
    at = table.shape[1] - TOP_K
    cut: Bits = np.partition(table, at, axis=1)[:, at]
    keep = values >= cut[rows]
    return rows[keep], columns[keep], cut
