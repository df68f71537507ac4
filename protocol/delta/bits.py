"""Streams of bits, the lowest first, in 32-bit words; and the adaptive Rice code of gaps.

A stream under way is three numbers that the caller keeps: the next word's place, the bits not yet in words (or not yet
taken from them), and how many those are. Nothing is written or read outside the words that were given: what does not
fit is counted by its place alone, and a reader past the end reads zeros.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocol.compiled import compiled

Array = NDArray[Any]
Arrays = tuple[Array, ...]
Int = Any
"""Of Python's integers, int64 and uint64, which compiled code tells apart."""
LONGEST_UNARY = 20
"""So many ones announce a gap in `GAP_BITS` bits."""
GAP_BITS = 23
MEAN_SHIFT = 5
"""A mean is kept times 2^MEAN_SHIFT; each gap moves it by 2^-MEAN_SHIFT of the difference."""
ONES = np.array([next(n for n in range(9) if n == 8 or not byte >> n & 1) for byte in range(256)], np.uint64)
"""How many ones a byte ends with."""


@compiled
def put(words: Array, place: Int, held: Any, count: Int, value: Int, width: Int) -> Any:
    """Append the lowest `width` ≤ 32 bits of `value`, which has no others."""
    held |= np.uint64(value) << np.uint64(count)
    count += width
    if count >= 32:
        if place < words.size:
            words[place] = held & np.uint64(0xFFFFFFFF)
        place += 1
        held >>= np.uint64(32)
        count -= 32
    return place, held, count


@compiled
def fill(words: Array, place: Int, held: Any, count: Int) -> Any:
    """Hold at least 32 bits."""
    if count < 32:
        if place < words.size:
            held |= np.uint64(words[place]) << np.uint64(count)
        place += 1
        count += 32
    return place, held, count


@compiled
def take(words: Array, place: Int, held: Any, count: Int, width: Int) -> Any:
    """The next `width` ≤ 32 bits, and the stream after them."""
    place, held, count = fill(words, place, held, count)
    value = held & ((np.uint64(1) << np.uint64(width)) - np.uint64(1))
    return place, held >> np.uint64(width), count - width, np.int64(value)


@compiled
def rice_width(mean: Array, width: Int) -> Any:
    """⌊log2(mean)⌋ of a mean times 2^MEAN_SHIFT, 0 where that is less; `width` is a guess from which to start."""
    units = mean >> MEAN_SHIFT
    while units >> (width + 1):
        width += 1
    while width and not units >> width:
        width -= 1
    return width


@compiled
def put_gap(words: Array, place: Int, held: Any, count: Int, gap: Int, width: Int) -> Any:
    """`gap` < 2^GAP_BITS: so many ones as its upper bits say, a zero, its lower `width` bits."""
    ones = gap >> width
    if ones < LONGEST_UNARY:
        place, held, count = put(words, place, held, count, (1 << ones) - 1, ones + 1)
        return put(words, place, held, count, gap & ((1 << width) - 1), width)
    place, held, count = put(words, place, held, count, (1 << LONGEST_UNARY) - 1, LONGEST_UNARY)
    return put(words, place, held, count, gap, GAP_BITS)


@compiled
def take_gap(words: Array, place: Int, held: Any, count: Int, width: Int) -> Any:
    """What `put_gap` wrote; any bits make a gap < 2^(GAP_BITS + 5)."""
    place, held, count = fill(words, place, held, count)
    ones = ONES[held & np.uint64(255)]
    if ones == 8:
        ones += ONES[(held >> np.uint64(8)) & np.uint64(255)]
        if ones == 16:
            ones += ONES[(held >> np.uint64(16)) & np.uint64(255)]
    if ones >= LONGEST_UNARY:
        held >>= np.uint64(LONGEST_UNARY)
        return take(words, place, held, count - LONGEST_UNARY, GAP_BITS)
    held >>= ones + np.uint64(1)
    place, held, count, low = take(words, place, held, count - np.int64(ones) - 1, width)
    return place, held, count, (np.int64(ones) << width) + low
