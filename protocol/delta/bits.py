"""Compiled building blocks of the delta codec: 64-bit words, bit streams, number formats, and blocks of elements.

A bit stream is bytes in whole 32-bit words, lowest bit first, followed by eight zeros (`SLACK`). A writer keeps three
numbers: the next byte's offset, the bits not yet in bytes, and their count, fewer than eight. A reader keeps the next
bit's offset. Nothing is written or read outside the given bytes: what does not fit is counted by its offset alone, and
a reader past the end reads zeros.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from protocol.compiled import compiled

_WORD, _BYTE = ir.IntType(64), ir.IntType(8)
_LANES = ir.VectorType(_BYTE, 64)


@intrinsic  # type: ignore[untyped-decorator]
def ones(_context: Any, _word: Any) -> Any:
    """Return how many bits of a word are set."""

    def made(_target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), made


@intrinsic  # type: ignore[untyped-decorator]
def zeros_below(_context: Any, _word: Any) -> Any:
    """Return the place of a word's lowest bit that is set; 64 of 0."""

    def made(_target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), made


@intrinsic  # type: ignore[untyped-decorator]
def zeros_above(_context: Any, _word: Any) -> Any:
    """Return how many zeros stand above a word's highest bit that is set; 64 of 0."""

    def made(_target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.ctlz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), made


@intrinsic  # type: ignore[untyped-decorator]
def load(_context: Any, data: Any, _at: Any) -> Any:
    """Return the word that begins at a byte of `data` ([n] uint8), any byte up to n − 8."""

    def made(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(_place(target, builder, signature, arguments, _WORD), align=1)

    return types.uint64(data, types.int64), made


@intrinsic  # type: ignore[untyped-decorator]
def store(_context: Any, data: Any, _at: Any, _word: Any) -> Any:
    """Write a word from a byte of `data` ([n] uint8) on, any byte up to n − 8."""

    def made(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store(arguments[2], _place(target, builder, signature, arguments, _WORD), align=1)
        return target.get_dummy_value()

    return types.void(data, types.int64, types.uint64), made


@intrinsic  # type: ignore[untyped-decorator]
def equals(_context: Any, data: Any, _at: Any, _value: Any) -> Any:
    """Return which of the 64 bytes of `data` ([n] uint8) from `at` ≤ n − 64 on are `value`: the first as the lowest
    bit."""

    def made(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        lanes = builder.load(_place(target, builder, signature, arguments, _LANES), align=1)
        one = builder.insert_element(ir.Constant(_LANES, ir.Undefined), arguments[2], ir.Constant(ir.IntType(32), 0))
        everywhere = ir.Constant(ir.VectorType(ir.IntType(32), 64), [0] * 64)
        value = builder.shuffle_vector(one, ir.Constant(_LANES, ir.Undefined), everywhere)
        return builder.bitcast(builder.icmp_unsigned("==", lanes, value), _WORD)

    return types.uint64(data, types.int64, types.uint8), made


def _place(target: Any, builder: Any, signature: Any, arguments: Any, kind: Any) -> Any:
    """A pointer to what begins at a byte of an array: the first two arguments."""
    array = target.make_array(signature.args[0])(target, builder, arguments[0])
    return builder.bitcast(builder.gep(array.data, [arguments[1]]), kind.as_pointer())


# ---- Bit streams and the adaptive Rice code of gaps


Array = NDArray[Any]
Arrays = tuple[Array, ...]
Int = Any  # Of Python's integers, int64 and uint64, which compiled code tells apart
SLACK = 8
LONGEST = 56  # The most bits that are put or taken at once
LONGEST_UNARY = 20  # So many ones announce a gap in `GAP_BITS` bits
GAP_BITS = 23
MEAN_SHIFT = 5  # A mean is kept times 2^MEAN_SHIFT; each gap moves it by 2^-MEAN_SHIFT of the difference


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
    """Return the next LONGEST bits of a stream, and perhaps one more."""
    return load(stream, min(bit >> 3, stream.size - SLACK)) >> np.uint64(bit & 7)


@compiled
def take(stream: Array, bit: Int, length: Int) -> Any:
    """Return the place after the next `length` ≤ LONGEST bits, and these."""
    return bit + length, np.int64(ahead(stream, bit) & ((np.uint64(1) << np.uint64(length)) - np.uint64(1)))


@compiled
def at_end(stream: Array, bit: Int) -> Any:
    """Return whether a stream was read up to its last word, and only zeros are left of that."""
    return (bit + 31) >> 5 == (stream.size - SLACK) >> 2 and ahead(stream, bit) == 0


@compiled
def rice_width(mean: Int) -> Any:
    """⌊log2(mean)⌋ of a mean times 2^MEAN_SHIFT, 0 where that is less (uint64)."""
    return np.uint64(63) - zeros_above(np.uint64(mean >> MEAN_SHIFT) | np.uint64(1))


@compiled
def gap_code(gap: Any, width: Any) -> Any:
    """Return the code of `gap` < 2^GAP_BITS (uint64) and its length: so many ones as its upper bits say, a zero, its
    lower `width` bits."""
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
    """Return the gap whose code a window of at least 43 bits begins with, and the code's length; any bits make a gap
    below 2^(GAP_BITS + 5), if `width` ≤ GAP_BITS is."""
    many = zeros_below(~window)
    if many >= np.uint64(LONGEST_UNARY):
        plain = (window >> np.uint64(LONGEST_UNARY)) & np.uint64((1 << GAP_BITS) - 1)
        return np.int64(plain), np.int64(LONGEST_UNARY + GAP_BITS)
    more = many + np.uint64(1)
    low = (window >> more) & ((np.uint64(1) << width) - np.uint64(1))
    return np.int64((many << width) | low), np.int64(more + width)


# ---- Number formats, groups of exponents


SEGMENT = 1 << 22  # The most elements that are coded together
SPARSE_GROUPS = 6
DENSE_GROUPS = 10
GROUPS = SPARSE_GROUPS + DENSE_GROUPS
FIRST_BIG_MEAN = 4096 << 5
DIRECT = 16  # Folded steps below it are tokens themselves; above, a token is the length and the second bit of the step
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
    """Return the place of a float among all of its format, modulo their number 2·`half`, by its bits; −0 is next to 0.
    And a float's bits by its place."""
    return bits ^ (half - 1) if bits & half else bits


@compiled
def step_between(base: Int, new: Int, half: Int) -> Any:
    """By how many places a float moves, from −half to half − 1."""
    return ((ordered(new, half) - ordered(base, half) + half) & (2 * half - 1)) - half


@compiled
def moved(base: Int, step: Int, half: Int) -> Any:
    """Return the bits of the float that is `step` places further."""
    return ordered((ordered(base, half) + step) & (2 * half - 1), half)


# ---- Blocks of elements: 64 at a time are a word with a bit for each


BLOCK = 1 << 12
LANES = 64  # Elements of a word
OUTSIDE = 255  # The group of what fills a block's last word
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
    """Return the place of the bit number `rank`, from 0, of a mask's bits that are set, of which there are more."""
    pairs = mask - ((mask >> np.uint64(1)) & np.uint64(0x5555555555555555))
    fours = (pairs & np.uint64(0x3333333333333333)) + ((pairs >> np.uint64(2)) & np.uint64(0x3333333333333333))
    bytes_ = (fours + (fours >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    # Each byte has the number of bits in it and those below it; a top bit stays where these are not more than `rank`.
    sums = bytes_ * np.uint64(0x0101010101010101)
    tops = ((rank * np.uint64(0x0101010101010101)) | np.uint64(0x8080808080808080)) - sums
    first = ones(tops & np.uint64(0x8080808080808080)) << np.uint64(3)
    before = ((sums << np.uint64(8)) >> first) & np.uint64(255)
    return first + np.uint64(_PLACES[(((mask >> first) & np.uint64(255)) << np.uint64(3)) + rank - before])
