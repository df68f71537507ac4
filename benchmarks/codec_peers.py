"""What `python -m benchmarks codec` holds the delta codec against: the entropy of the changes, and PULSE's format."""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Words = NDArray[np.uint16]
"""The bits of a tensor of bf16."""
_FURTHEST = 2000


def entropy_bytes(base: Words, new: Words) -> float:
    """The entropy of each element's step, 0 included, given the exponent of its base: what an ideal coder needs that
    codes each element by itself with this tensor's own frequencies, which it is told for nothing. Steps of more than
    2,000 places count as that many."""
    before, after = base.reshape(-1), new.reshape(-1)
    exponents = np.bincount((before >> 7) & 255, minlength=256)
    places = np.flatnonzero(before != after)
    step = np.clip(_ordered(after[places]) - _ordered(before[places]), -_FURTHEST, _FURTHEST) + _FURTHEST
    exponent = ((before[places] >> 7) & 255).astype(np.int64)
    changed = np.bincount(exponent * (2 * _FURTHEST + 1) + step)
    same = exponents - np.bincount(exponent, minlength=256)
    return (_weighted(exponents) - _weighted(changed) - _weighted(same)) / 8


def _ordered(bits: Words) -> NDArray[np.int64]:
    wide = bits.astype(np.int64)
    return np.where(wide < 0x8000, wide, 0x7FFF - wide)


def _weighted(counts: NDArray[np.int64]) -> float:
    some = counts[counts > 0]
    return float((some * np.log2(some)).sum())


def pulse_bytes(base: Mapping[str, Words], new: Mapping[str, Words]) -> int:
    """The size of PULSE's patch (arXiv 2602.03839): the coordinates of changed elements, the row as the distance from
    the row before in a byte, the column as the distance from the column before in that row in two bytes, the new value
    as it is; the three lists of all tensors compressed by zstd at level 1. No hash and no head is counted."""
    rows, columns, values = [], [], []
    for name, before in base.items():
        width = before.shape[-1] if before.ndim else 1
        after = new[name].reshape(-1)
        places = np.flatnonzero(before.reshape(-1) != after)
        row, column = places // width, places % width
        down = np.diff(row, prepend=0)
        carried = np.full(int((down // 255).sum()), 255, np.uint8)
        across = np.where(down > 0, column, np.diff(column, prepend=0))
        rows += [(down % 255).astype(np.uint8).tobytes(), carried.tobytes()]
        columns.append(across.astype(np.uint16).tobytes())
        values.append(after[places].tobytes())
    codec = pa.Codec("zstd", compression_level=1)
    return sum(len(codec.compress(b"".join(lists), asbytes=True)) for lists in (rows, columns, values))
