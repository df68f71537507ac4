"""A block of elements and the groups that they are in: 64 elements at a time are a word with a bit for each."""

from typing import Any

import numpy as np

from protocol.compiled import compiled
from protocol.delta.bits import Array, Int
from protocol.delta.layout import SPARSE_GROUPS, moved
from protocol.delta.words import equals, ones

BLOCK = 1 << 12
LANES = 64
"""Elements of a word."""
OUTSIDE = 255
"""The group of what fills a block's last word."""
_PLACES = np.array([([at for at in range(8) if byte >> at & 1] + [0] * 8)[:8] for byte in range(256)], np.uint8).ravel()
"""Of each byte the places of its bits that are set."""


@compiled
def number_block(part: Array, form: tuple[int, int, int], maps: Any, exponents: Array, groups: Array) -> None:
    """Write the groups of a block's elements `part` to `groups` ([BLOCK] uint8), and OUTSIDE to the rest of their last
    word. `maps`: the groups' lowest exponents, falling, and their numbers (uint8). `exponents` ([BLOCK] uint8): room.
    """
    lowest, numbers = maps
    _write_exponents(part, form[0], exponents)
    for at in range(part.size):
        groups[at] = numbers[0]
    # One group after another, so that every pass is one of vectors.
    for group in range(1, lowest.size):
        above, more = lowest[group - 1], np.uint8(numbers[group] - numbers[group - 1])
        for at in range(part.size):
            groups[at] += more if exponents[at] < above else np.uint8(0)
    for at in range(part.size, _whole(part.size)):
        groups[at] = OUTSIDE


@compiled
def _write_exponents(part: Array, fraction: Int, exponents: Array) -> None:
    # Each format by itself: with a shift that it knows the compiler makes vectors of narrow lanes.
    if fraction == 7:
        for at in range(part.size):
            exponents[at] = (part[at] >> 7) & 255
    elif fraction == 10:
        for at in range(part.size):
            exponents[at] = (part[at] >> 10) & 31
    else:
        for at in range(part.size):
            exponents[at] = (part[at] >> 23) & 255


@compiled
def compare_block(before: Array, after: Array, differs: Array) -> None:
    """Write which of a block's elements differ to `differs` ([BLOCK] uint8), 0 to the rest of their last word."""
    for at in range(before.size):
        differs[at] = before[at] != after[at]
    for at in range(before.size, _whole(before.size)):
        differs[at] = 0


@compiled
def move_block(before: Array, steps: Array, half: Int, after: Array) -> None:
    """Write a block's elements, each `steps` ([BLOCK] int32) places further, to `after`."""
    for at in range(before.size):
        after[at] = moved(np.int64(before[at]), np.int64(steps[at]), half)


@compiled
def _whole(count: Int) -> Any:
    return (count + LANES - 1) // LANES * LANES


@compiled
def masks_of(groups: Array, at: Int, masks: Array) -> Any:
    """Write which of the 64 elements from `at` on are in each sparse group to `masks` ([SPARSE_GROUPS] uint64); returns
    which are in dense ones."""
    others = equals(groups, at, np.uint8(OUTSIDE))
    for group in range(SPARSE_GROUPS):
        masks[group] = equals(groups, at, np.uint8(group))
        others |= masks[group]
    return ~others


@compiled
def place_of(mask: Any, rank: Any) -> Any:
    """The place of the bit number `rank`, from 0, of a mask's bits that are set, of which there are more."""
    pairs = mask - ((mask >> np.uint64(1)) & np.uint64(0x5555555555555555))
    fours = (pairs & np.uint64(0x3333333333333333)) + ((pairs >> np.uint64(2)) & np.uint64(0x3333333333333333))
    bytes_ = (fours + (fours >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    # Each byte has the number of bits in it and those below it; a top bit stays where these are not more than `rank`.
    sums = bytes_ * np.uint64(0x0101010101010101)
    tops = ((rank * np.uint64(0x0101010101010101)) | np.uint64(0x8080808080808080)) - sums
    first = ones(tops & np.uint64(0x8080808080808080)) << np.uint64(3)
    before = ((sums << np.uint64(8)) >> first) & np.uint64(255)
    return first + np.uint64(_PLACES[(((mask >> first) & np.uint64(255)) << np.uint64(3)) + rank - before])
