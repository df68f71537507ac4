"""Streams of bits, the lowest first; and the adaptive Rice code of gaps.

A stream is bytes, whole words of 32 bits, and eight zeros behind them (`SLACK`). Who writes one keeps three numbers:
the next byte's place, the bits not yet in bytes, and how many those are, fewer than eight. Who reads one keeps the next
bit's place. Nothing is written or read outside the bytes that were given: what does not fit is counted by its place
alone, and a reader past the end reads zeros.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocol.compiled import compiled
from protocol.delta.words import load, store, zeros_above, zeros_below

Array = NDArray[Any]
Arrays = tuple[Array, ...]
Int = Any
"""Of Python's integers, int64 and uint64, which compiled code tells apart."""
SLACK = 8
LONGEST = 56
"""The most bits that are put or taken at once."""
LONGEST_UNARY = 20
"""So many ones announce a gap in `GAP_BITS` bits."""
GAP_BITS = 23
MEAN_SHIFT = 5
"""A mean is kept times 2^MEAN_SHIFT; each gap moves it by 2^-MEAN_SHIFT of the difference."""


@compiled
def put(stream: Array, place: Int, held: Any, count: Any, value: Any, length: Any) -> Any:
    """Append the lowest `length` ≤ LONGEST bits of `value` (uint64), which has no others."""
    held |= value << count
    store(stream, min(place, stream.size - SLACK), held)
    count += length
    whole = count & ~np.uint64(7)
    return place + np.int64(whole >> np.uint64(3)), held >> whole, count - whole


@compiled
def finished(stream: Array, place: Int, held: Any, count: Any) -> Any:
    """End a stream with zeros; returns how many words it has, also if there is not room for them."""
    store(stream, min(place, stream.size - SLACK), held)
    return (8 * place + np.int64(count) + 31) >> 5


@compiled
def ahead(stream: Array, bit: Int) -> Any:
    """The next LONGEST bits of a stream, and perhaps one more."""
    return load(stream, min(bit >> 3, stream.size - SLACK)) >> np.uint64(bit & 7)


@compiled
def take(stream: Array, bit: Int, length: Int) -> Any:
    """The place after the next `length` ≤ LONGEST bits, and these."""
    return bit + length, np.int64(ahead(stream, bit) & ((np.uint64(1) << np.uint64(length)) - np.uint64(1)))


@compiled
def at_end(stream: Array, bit: Int) -> Any:
    """Whether a stream was read up to its last word, and only zeros are left of that."""
    return (bit + 31) >> 5 == (stream.size - SLACK) >> 2 and ahead(stream, bit) == 0


@compiled
def rice_width(mean: Int) -> Any:
    """⌊log2(mean)⌋ of a mean times 2^MEAN_SHIFT, 0 where that is less (uint64)."""
    return np.uint64(63) - zeros_above(np.uint64(mean >> MEAN_SHIFT) | np.uint64(1))


@compiled
def gap_code(gap: Any, width: Any) -> Any:
    """The code of `gap` < 2^GAP_BITS (uint64) and its length: so many ones as its upper bits say, a zero, its lower
    `width` bits."""
    many = gap >> width
    if many >= np.uint64(LONGEST_UNARY):
        return (gap << np.uint64(LONGEST_UNARY)) | np.uint64((1 << LONGEST_UNARY) - 1), np.uint64(
            LONGEST_UNARY + GAP_BITS
        )
    low = gap - (many << width)
    more = many + np.uint64(1)
    return (low << more) | ((np.uint64(1) << many) - np.uint64(1)), more + width


@compiled
def read_gap(window: Any, width: Any) -> Any:
    """The gap whose code a window of at least 43 bits begins with, and the code's length; any bits make a gap
    below 2^(GAP_BITS + 5), if `width` ≤ GAP_BITS is."""
    many = zeros_below(~window)
    if many >= np.uint64(LONGEST_UNARY):
        plain = (window >> np.uint64(LONGEST_UNARY)) & np.uint64((1 << GAP_BITS) - 1)
        return np.int64(plain), np.int64(LONGEST_UNARY + GAP_BITS)
    more = many + np.uint64(1)
    low = (window >> more) & ((np.uint64(1) << width) - np.uint64(1))
    return np.int64((many << width) | low), np.int64(more + width)
