"""What coder and decoder of a segment share: number formats, groups of exponents, counters, tokens."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocol.compiled import compiled
from protocol.delta.bits import Int

SEGMENT = 1 << 22
"""The most elements that are coded together."""
SPARSE_GROUPS = 6
DENSE_GROUPS = 10
GROUPS = SPARSE_GROUPS + DENSE_GROUPS
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

    def tables(self) -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.int64]]:
        """Of each group its lowest exponent and its number; of each number its mean gap, −1 for a dense group.

        Groups are renumbered: sparse ones from 0, dense ones from SPARSE_GROUPS.
        """
        means = np.full(GROUPS, -1, np.int64)
        sparse, dense, numbers = 0, SPARSE_GROUPS, []
        for mean in self.means:
            if mean >= 0:
                means[sparse] = 1 << mean
                numbers.append(sparse)
                sparse += 1
            else:
                numbers.append(dense)
                dense += 1
        return np.array(self.lowest, np.uint8), np.array(numbers, np.uint8), means


@compiled
def ordered(bits: Int, half: Int) -> Any:
    """The place of a float among all of its format, modulo their number 2·`half`, by its bits; −0 is next to 0. And a
    float's bits by its place."""
    return bits ^ (half - 1) if bits & half else bits


@compiled
def step_between(base: Int, new: Int, half: Int) -> Any:
    """By how many places a float moves, from −half to half − 1."""
    return ((ordered(new, half) - ordered(base, half) + half) & (2 * half - 1)) - half


@compiled
def moved(base: Int, step: Int, half: Int) -> Any:
    """The bits of the float that is `step` places further."""
    return ordered((ordered(base, half) + step) & (2 * half - 1), half)
