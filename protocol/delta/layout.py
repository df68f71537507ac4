"""What coder and decoder of a segment share: number formats, groups of exponents, counters, tokens."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocol.compiled import compiled
from protocol.delta.bits import Array, Int

SEGMENT = 1 << 22
"""The most elements that are coded together."""
SPARSE_GROUPS = 6
DENSE_GROUPS = 10
GROUPS = SPARSE_GROUPS + DENSE_GROUPS
FIELD_BITS = 9
"""Each sparse group has a field of one 64-bit number, which counts its unchanged elements up to FIELD_FULL."""
FIELD_FULL = 256
DENSE_UNIT = 1 << (SPARSE_GROUPS * FIELD_BITS)
"""An element of a dense group adds this; so four elements cannot carry out of three bits."""
STOP = np.uint64(sum(FIELD_FULL << FIELD_BITS * group for group in range(SPARSE_GROUPS)) | 7 * DENSE_UNIT)
"""The bits any of which says that an element needs a closer look."""
FIRST_BIG_MEAN = 4096 << 5
DIRECT = 16
"""Folded steps below it are tokens themselves; above, a token is the length and the second bit of the step."""
TOKENS = DIRECT + 2 * 28


@dataclass(frozen=True)
class FloatFormat:
    """A floating-point number of `width` bits with `fraction` bits after the exponent, whose lowest bits are
    `exponent_mask`."""

    width: int
    fraction: int
    exponent_mask: int

    @property
    def numbers(self) -> tuple[int, int, int]:
        """What compiled code takes: `fraction`, `exponent_mask`, and half of the number of all bit patterns."""
        return self.fraction, self.exponent_mask, 1 << (self.width - 1)


@dataclass(frozen=True)
class Grouping:
    """Which group codes an element, by the exponent of its base. `lowest`: each group's lowest exponent, falling, the
    last 0. `means`: a sparse group's first mean gap, an octave a unit; −1 for a dense group."""

    lowest: tuple[int, ...]
    means: tuple[int, ...]

    def tables(self) -> tuple[NDArray[np.uint8], NDArray[np.uint64], NDArray[np.int64]]:
        """Of each exponent its group and what an element adds to the counters; of each group its mean gap or −1.

        Groups are renumbered: sparse ones from 0, dense ones from SPARSE_GROUPS.
        """
        group_of, adds = np.empty(256, np.uint8), np.empty(256, np.uint64)
        means = np.full(GROUPS, -1, np.int64)
        sparse, dense, above = 0, SPARSE_GROUPS, 256
        for lowest, mean in zip(self.lowest, self.means, strict=True):
            if mean >= 0:
                number, add = sparse, 1 << FIELD_BITS * sparse
                means[number] = 1 << mean
                sparse += 1
            else:
                number, add = dense, DENSE_UNIT
                dense += 1
            group_of[lowest:above], adds[lowest:above] = number, add
            above = lowest
        return group_of, adds, means


@compiled
def added(word: Any, adds: Array, fraction: Int, exponent_mask: Int, lanes: Int) -> Any:
    """What the 4 elements of 16 bits, or 2 of 32, in a 64-bit word add to the counters."""
    # All unsigned: an index with a sign would be looked at for it, every time.
    first, mask = np.uint64(fraction), np.uint64(exponent_mask)
    if lanes == 4:
        return (
            adds[(word >> first) & mask]
            + adds[(word >> (first + np.uint64(16))) & mask]
            + adds[(word >> (first + np.uint64(32))) & mask]
            + adds[(word >> (first + np.uint64(48))) & mask]
        )
    return adds[(word >> first) & mask] + adds[(word >> (first + np.uint64(32))) & mask]


@compiled
def ordered(bits: Int, half: Int) -> Any:
    """The place of a float among all of its format, by its bits: −0 is −1, next to 0. `half` is 2^(width − 1)."""
    return bits if bits < half else half - 1 - bits


@compiled
def placed(place: Int, half: Int) -> Any:
    """The bits of the float at a place: what `ordered` undoes."""
    return place if place >= 0 else half - 1 - place


@compiled
def wrapped(step: Int, half: Int) -> Any:
    """`step` modulo 2·half, from −half to half − 1."""
    if step >= half:
        return step - 2 * half
    if step < -half:
        return step + 2 * half
    return step


@compiled
def bit_length(value: Int) -> Any:
    """Of a number below 2^33."""
    length = 0
    while value >> 8:
        value >>= 8
        length += 8
    while value:
        value >>= 1
        length += 1
    return length
