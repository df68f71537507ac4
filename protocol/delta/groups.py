"""Which exponents of the base are coded together, and how: chosen by the coder, told to the reader."""

import math

import numpy as np
from numpy.typing import NDArray

from protocol.delta.layout import DENSE_GROUPS, SEGMENT, SPARSE_GROUPS, Grouping

DENSE_SHARE = 0.3
"""Where more elements change than this, each has a token; below, gaps are shorter and faster."""
LEAST_SHARE = 1 / 400
LEAST_ELEMENTS = 300


def choose_groups(counts: NDArray[np.int64], stride: int) -> Grouping:
    """From [256, 2] counts of elements and changed elements by exponent, of one block in `stride`: every exponent that
    enough elements have is a group; what is left joins its upper neighbour, or the uppermost its lower one."""
    least = max(counts[:, 0].sum() * LEAST_SHARE, LEAST_ELEMENTS / stride)
    closed: list[tuple[int, int, int]] = []
    elements = changed = 0
    for exponent in np.flatnonzero(counts[:, 0])[::-1].tolist():
        elements += int(counts[exponent, 0])
        changed += int(counts[exponent, 1])
        if elements >= least:
            closed.append((exponent, elements, changed))
            elements = changed = 0
    if not closed or elements > closed[-1][1] / 8:
        closed.append((0, elements, changed))
    return _grouping(closed)


def _grouping(closed: list[tuple[int, int, int]]) -> Grouping:
    """What comes after the most groups of its kind that there may be joins the group before."""
    lowest: list[int] = []
    means: list[int] = []
    room = {True: SPARSE_GROUPS, False: DENSE_GROUPS}
    for exponent, elements, changed in closed:
        share = (changed + 0.5) / (elements + 1)
        sparse = share < DENSE_SHARE
        if room[sparse]:
            room[sparse] -= 1
            lowest.append(exponent)
            means.append(min(SEGMENT.bit_length() - 1, round(math.log2(1 / share - 1))) if sparse else -1)
        else:
            lowest[-1] = exponent
    lowest[-1] = 0
    return Grouping(tuple(lowest), tuple(means))
