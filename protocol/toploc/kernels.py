"""The 128 largest magnitudes of a chunk: torch.topk's own choice among ties for provers, no ties for verifiers.

torch.topk on a CPU orders (value, index) pairs by value alone: with std::partial_sort where 64·k ≤ n, else with
std::nth_element. Which members of a tie survive follows from the exact course of these algorithms, so both are done as
libstdc++ does them (bits/stl_heap.h, bits/stl_algo.h; introselect: Musser, 1997).

A row is a chunk's bf16 patterns, four to a 64-bit word, padded with zeros. With the sign bit set in every lane, one
subtraction compares four magnitudes with a bound. An item is magnitude · 2³² + index.
"""

from functools import cache, partial

import numpy as np
import numpy.typing as npt

from protocol.compiled import compiled
from protocol.toploc.codec import BUCKETS, MODULUS_MIN, MOST_STEPS, PRIME, TOP_K

PARTIAL_SORT_FROM = 64 * TOP_K
LANES = 4
STRETCH = 8  # words looked at together
SIGNS = np.uint64(0x8000_8000_8000_8000)
EACH = np.uint64(0x0001_0001_0001_0001)
MAGNITUDE = np.uint64(0x7FFF)
# Tells the compiler that an index does not count from the end.
NOT_NEGATIVE = (1 << 40) - 1
PART = 256  # words whose values are listed at a time
BLOCK = 64  # values at either end of a partition that are listed at a time
ONE_MORE = TOP_K + 1
BUFFER = 2 * TOP_K
ROOM = BUFFER + LANES * PART + 1  # items that are in hand at most
STEP = 8  # Powers of the points that are kept side by side; between two reductions a polynomial is evaluated so far
QUAD = 4
P = float(PRIME)
INVERSE_P = 1.0 / P
ROUNDER = 1.5 * 2.0**52  # Adding and taking it away rounds to the nearest integer
INFINITY_BITS = 0x7F80
MANTISSA_BITS = 7
MANTISSAS = 1 << MANTISSA_BITS
GUESS_BELOW = 4

Words = npt.NDArray[np.uint64]
Items = npt.NDArray[np.int64]
Spots = npt.NDArray[np.int64]  # [2, PART]
Integers = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]


@compiled
def item(words: Words, at: int) -> int:
    """Return the item of the value at index `at`."""
    return (int((words[at >> 2] >> np.uint64((at & 3) << 4)) & MAGNITUDE) << 32) | at


@compiled
def append_above(words: Words, start: int, bound: int, spots: Spots, items: Items, count: int) -> int:
    """Append the items of words[start : start + PART] whose magnitude exceeds `bound` ≥ −1 to items[:count]; return the
    new count. Whether a value is kept cannot be predicted, so nothing here branches on it. spots: scratch."""
    limit = np.uint64(bound + 1) * EACH
    group = words[start : start + PART]
    full_stretches = len(group) // STRETCH * STRETCH
    stretches, hits = 0, 0
    for at in range(0, full_stretches, STRETCH):
        exceeding = np.uint64(0)
        for word in range(STRETCH):
            exceeding |= (group[at + word] | SIGNS) - limit
        if exceeding & SIGNS:
            spots[0, stretches] = at
            stretches += 1
    for number in range(stretches):
        for word in range(spots[0, number], spots[0, number] + STRETCH):
            spots[1, hits] = word
            hits += (((group[word] | SIGNS) - limit) & SIGNS) != 0
    for word in range(full_stretches, len(group)):
        spots[1, hits] = word
        hits += 1
    for number in range(hits):
        for lane in range(LANES):
            items[count] = item(words, LANES * (start + spots[1, number]) + lane)
            count += (items[count] >> 32) > bound
    return count


# Provers: as torch.topk


@compiled
def largest(words: Words, width: int, spots: Spots, items: Items) -> None:
    """items[:128] become torch.topk's choice from a row of `width` values, in any order. items: [ROOM], or [width] if
    that is more and less than 8192."""
    if width >= PARTIAL_SORT_FROM:
        _heap_select(words, spots, items)
        return
    for at in range(width):
        items[at] = item(words, at)
    _introselect(items, width, spots)


@compiled
def _heap_select(words: Words, spots: Spots, heap: Items) -> None:
    """libstdc++'s __heap_select: the first 128 are a heap, smallest on top; strictly larger ones replace the top."""
    for at in range(TOP_K):
        heap[at] = item(words, at)
    _make_heap(heap, TOP_K)
    for start in range(TOP_K // LANES, len(words), PART):
        count = append_above(words, start, heap[0] >> 32, spots, heap, TOP_K)
        for at in range(TOP_K, count):
            if (heap[at] >> 32) > (heap[0] >> 32):
                _sift(heap, 0, TOP_K, heap[at])


@compiled
def _make_heap(heap: Items, size: int) -> None:
    for parent in range(size // 2 - 1, -1, -1):
        _sift(heap, parent, size, heap[parent])


@compiled
def _sift(heap: Items, top: int, size: int, value: int) -> None:
    """libstdc++'s __adjust_heap: the hole at `top` sinks along the smaller children; `value` rises from the leaf."""
    hole = child = top
    while child < (size - 1) >> 1:
        child = (2 * child + 2) & NOT_NEGATIVE
        child = (child - ((heap[child] >> 32) > (heap[child - 1] >> 32))) & NOT_NEGATIVE
        heap[hole] = heap[child]
        hole = child
    if size & 1 == 0 and child == (size - 2) >> 1:
        child = 2 * child + 1
        heap[hole] = heap[child]
        hole = child
    while hole > top:
        parent = (hole - 1) >> 1
        if (heap[parent] >> 32) <= (value >> 32):
            break
        heap[hole] = heap[parent]
        hole = parent
    heap[hole] = value


@compiled
def _introselect(items: Items, width: int, spots: Spots) -> None:
    """libstdc++'s nth_element for the 128th largest: partitions around medians of three, then an insertion sort."""
    first, last, depth = 0, width, 0
    while width >> (depth // 2 + 1):
        depth += 2
    while last - first > 3:
        if depth == 0:
            _give_up(items[first:last], TOP_K - first)
            return
        depth -= 1
        cut = _partition(items, first, last, spots)
        if cut <= TOP_K - 1:
            first = cut
        else:
            last = cut
    for at in range(first + 1, last):
        value, slot = items[at], at
        while slot > first and (value >> 32) > (items[slot - 1] >> 32):
            items[slot] = items[slot - 1]
            slot -= 1
        items[slot] = value


@compiled
def _give_up(items: Items, size: int) -> None:
    """What introselect does after too many bad pivots: __heap_select of the first `size`."""
    _make_heap(items, size)
    for at in range(size, len(items)):
        value = items[at]
        if (value >> 32) > (items[0] >> 32):
            items[at] = items[0]
            _sift(items, 0, size, value)


@compiled
def _partition(items: Items, first: int, last: int, spots: Spots) -> int:
    """libstdc++'s __unguarded_partition_pivot, descending: the same exchanges, so the same order."""
    low, middle, high = first + 1, first + (last - first) // 2, last - 1
    a, b, c = items[low] >> 32, items[middle] >> 32, items[high] >> 32
    descending = middle if b > c else high if a > c else low
    ascending = low if a > c else high if b > c else middle
    median = descending if a > b else ascending
    items[first], items[median] = items[median], items[first]
    pivot = items[first] >> 32
    left, right = _from_both_ends(items, first + 1, last, pivot, spots)
    while True:
        while (items[left] >> 32) > pivot:
            left += 1
        right -= 1
        while pivot > (items[right] >> 32):
            right -= 1
        if left >= right:
            return left
        items[left], items[right] = items[right], items[left]
        left += 1


@compiled
def _from_both_ends(items: Items, left: int, right: int, pivot: int, spots: Spots) -> tuple[int, int]:
    """Make the exchanges of a partition while its ends are far apart; return from where to go on, value by value.

    Where a value stops an end cannot be predicted, so such places are listed a block at a time without a branch
    (Edelkamp and Weiss, "BlockQuicksort", 2016).
    """
    above_pivot, from_pivot = (pivot + 1) << 32, pivot << 32
    lefts, rights, at_left, at_right = 0, 0, 0, 0
    while right - left >= 2 * BLOCK:
        if at_left == lefts:
            lefts, at_left = 0, 0
            for index in range(left, left + BLOCK):
                spots[0, lefts] = index
                lefts += items[index] < above_pivot
            left += BLOCK
        if at_right == rights:
            rights, at_right = 0, 0
            for index in range(right - 1, right - 1 - BLOCK, -1):
                spots[1, rights] = index
                rights += items[index] >= from_pivot
            right -= BLOCK
        for _ in range(min(lefts - at_left, rights - at_right)):
            left_index, right_index = spots[0, at_left], spots[1, at_right]
            items[left_index], items[right_index] = items[right_index], items[left_index]
            at_left, at_right = at_left + 1, at_right + 1
    if at_left < lefts:
        left = spots[0, at_left]
    if at_right < rights:
        right = spots[1, at_right] + 1
    return left, right


# Verifiers: no ties


@compiled
def untied(words: Words, guess: int, spots: Spots, items: Items) -> tuple[int, int]:
    """Put the 128 largest into items[:n], without the tie at the cut if there is one; return n and the 128th largest
    magnitude. A `guess` of that (0: none) saves work if it is a little low, and costs a second pass if too high."""
    count, cut = _collect(words, guess, spots, items)
    if count < TOP_K:
        count, cut = _collect(words, 0, spots, items)
    return (count if count == TOP_K else _drop_tie(items, count, cut)), cut


@compiled
def _collect(words: Words, guess: int, spots: Spots, items: Items) -> tuple[int, int]:
    """Collect the items from `guess` on that can be among the 128 largest, 129 at most, and the 128th magnitude."""
    count, cut = 0, guess
    for start in range(0, len(words), PART):
        # Once a 129th value at the cut is known, further ones change nothing.
        bound = cut if count > TOP_K else cut - 1
        count = append_above(words, start, bound, spots, items, count)
        if count > BUFFER:
            count, cut = _prune(items, count)
    return _prune(items, count)


@compiled
def _prune(items: Items, count: int) -> tuple[int, int]:
    """Keep the items above the 128th largest magnitude, and of those equal to it so many that 129 remain at most.
    Return how many remain, first in `items`, and that magnitude."""
    cut = 0
    for bit in range(14, -1, -1):
        tried, reached = cut | 1 << bit, 0
        for at in range(count):
            reached += (items[at] >> 32) >= tried
        if reached >= TOP_K:
            cut = tried
    larger = 0
    for at in range(count):
        larger += (items[at] >> 32) > cut
    kept, spare = 0, ONE_MORE - larger
    for at in range(count):
        magnitude = items[at] >> 32
        items[kept] = items[at]
        equal = magnitude == cut and spare > 0
        spare -= equal
        kept += magnitude > cut or equal
    return kept, cut


@compiled
def _drop_tie(items: Items, count: int, cut: int) -> int:
    """Keep the items whose magnitude exceeds `cut`, first in `items`; return how many they are."""
    kept = 0
    for at in range(count):
        items[kept] = items[at]
        kept += (items[at] >> 32) > cut
    return kept


# Polynomials of degree 127 over GF(65497) at 128 points, in exact float64 arithmetic


@compiled
def reduced(value: float) -> float:
    """Return the symmetric residue of an integer, |value| < 2⁵¹."""
    return value - P * ((value * INVERSE_P + ROUNDER) - ROUNDER)


@compiled
def powers_of(points: Reals, powers: Reals) -> None:
    """points [128] (symmetric residues) → powers [9, 128]: x⁰ … x⁸."""
    for at in range(TOP_K):
        powers[0, at] = 1.0
        powers[1, at] = points[at]
    for power in range(2, STEP + 1):
        for at in range(TOP_K):
            powers[power, at] = reduced(powers[power - 1, at] * points[at])


@compiled
def evaluate(coefficients: Reals, powers: Reals, out: Reals) -> None:
    """out [128] becomes the values, residues, of the polynomial with `coefficients` [128] at 128 points."""
    for at in range(TOP_K):
        out[at] = 0.0
    for start in range(TOP_K - STEP, -1, -STEP):
        a, b, c, d = coefficients[start], coefficients[start + 1], coefficients[start + 2], coefficients[start + 3]
        e, f, g, h = coefficients[start + 4], coefficients[start + 5], coefficients[start + 6], coefficients[start + 7]
        for at in range(TOP_K):
            low = a + b * powers[1, at] + c * powers[2, at] + d * powers[3, at]
            high = e * powers[4, at] + f * powers[5, at] + g * powers[6, at] + h * powers[7, at]
            out[at] = reduced(out[at] * powers[8, at] + low + high)


@compiled
def reversed_master(points: Reals, out: Reals, spare: Reals) -> None:
    """∏ (1 − x_i z) over 128 points, four at a time: out [133] becomes four zeros and its 129 coefficients."""
    out[:] = 0.0
    spare[:] = 0.0
    out[QUAD] = 1.0
    for start in range(0, TOP_K, 2 * QUAD):
        _times_four(points[start : start + QUAD], out, spare, start)
        _times_four(points[start + QUAD : start + 2 * QUAD], spare, out, start + QUAD)


@compiled
def _times_four(points: Reals, source: Reals, target: Reals, degree: int) -> None:
    """target = source · ∏ (1 − x z) over four points; `degree` is source's."""
    left, right = -points[0] - points[1], -points[2] - points[3]
    both_left, both_right = reduced(points[0] * points[1]), reduced(points[2] * points[3])
    first, second = reduced(left + right), reduced(left * right + both_left + both_right)
    third, fourth = reduced(left * both_right + right * both_left), reduced(both_left * both_right)
    for at in range(QUAD, 2 * QUAD + degree + 1):
        near = source[at] + first * source[at - 1] + second * source[at - 2]
        target[at] = reduced(near + third * source[at - 3] + fourth * source[at - 4])


@partial(compiled, fastmath={"reassoc", "nsz"})  # these sums are exact in any order
def _dot(left: Reals, right: Reals) -> float:
    total = 0.0
    for at in range(TOP_K):
        total += left[at] * right[at]
    return total


@compiled
def interpolate(values: Reals, powers: Reals, inverse: Reals, room: Reals, out: Reals) -> None:
    """Coefficients [128] (symmetric residues) of the polynomial through 128 distinct points.

    values: integers [128], |v| ≤ 2¹⁶. powers: of the points. inverse: `inverses()`. room: [6, 133], overwritten.

    P(z) = Σ w_i · M(z) / (z − x_i) with M(z) = ∏ (z − x_i) and w_i = values_i / M'(x_i) (Lagrange). Read backwards that
    is the product of M's reversal and the series Σ w_i / (1 − x_i z), whose coefficients are the power sums Σ w_i x_iᵏ.
    """
    master, spare, slopes, weights, sums, product = room[0], room[1], room[2], room[3], room[4], room[5]
    reversed_master(powers[1], master, spare)
    for at in range(TOP_K):
        spare[at] = reduced((at + 1) * master[QUAD + TOP_K - 1 - at])
    evaluate(spare, powers, slopes)
    for at in range(TOP_K):
        weights[at] = reduced(values[at] * inverse[int(slopes[at])])
    for start in range(0, TOP_K, STEP):
        for power in range(STEP):
            sums[start + power] = reduced(_dot(weights, powers[power]))
        for at in range(TOP_K):
            weights[at] = reduced(weights[at] * powers[STEP, at])
    product[:] = 0.0
    for shift in range(TOP_K):
        for at in range(shift, TOP_K):
            product[at] += sums[shift] * master[QUAD + at - shift]
    for at in range(TOP_K):
        out[TOP_K - 1 - at] = reduced(product[at])


@cache
def inverses() -> Reals:
    """Float64 [65497]: entry a, from the end if negative, is the symmetric residue 1/a; entry 0 is 0."""
    table = np.zeros(PRIME)
    _invert(table)
    return table


@compiled
def _invert(table: Reals) -> None:
    """1/a = −⌊p/a⌋ · 1/(p mod a)."""
    table[1] = 1.0
    for a in range(2, PRIME):
        table[a] = reduced(-(PRIME // a) * table[PRIME % a])


# Proof and comparison of chunks, from selection to polynomial


@compiled
def prove_rows(words: Words, width: int, inverse: Reals, table: Integers) -> int:
    """table [n, 129] becomes modulus and coefficients of n chunks of `width` values. Return a chunk with NaN, or −1.
    NaN patterns exceed all others, so the largest values show them."""
    spots, items = np.empty((2, PART), dtype=np.int64), np.empty(max(ROOM, PARTIAL_SORT_FROM), dtype=np.int64)
    taken = np.full(PRIME, -1, dtype=np.int64)
    points, values, evaluated = np.empty(TOP_K), np.empty(TOP_K), np.empty(TOP_K)
    powers, room = np.empty((STEP + 1, TOP_K)), np.empty((6, TOP_K + QUAD + 1))
    for row in range(len(words)):
        largest(words[row], width, spots, items)
        modulus = _injective_modulus(items, taken, row * PRIME)
        for index in range(TOP_K):
            at = items[index] & 0xFFFFFFFF
            if items[index] >> 32 > INFINITY_BITS:
                return row
            points[index] = reduced(float(at % modulus))
            values[index] = float((words[row, at >> 2] >> np.uint64((at & 3) << 4)) & np.uint64(0xFFFF))
        powers_of(points, powers)
        interpolate(values, powers, inverse, room, evaluated)
        table[row, 0] = modulus
        for power in range(TOP_K):
            residue = int(evaluated[power])
            table[row, 1 + power] = residue + PRIME if residue < 0 else residue
    return -1


@compiled
def _injective_modulus(items: Items, taken: Integers, stamp: int) -> int:
    """Return the largest modulus ≤ 65497 that keeps the indices of 128 items distinct. taken: int64 [65497] below
    `stamp`; this call leaves marks from `stamp` to `stamp` + 65496."""
    for modulus in range(PRIME, MODULUS_MIN - 1, -1):
        mark, distinct = stamp + PRIME - modulus, True
        for index in range(TOP_K):
            residue = (items[index] & 0xFFFFFFFF) % modulus
            if taken[residue] == mark:
                distinct = False
                break
            taken[residue] = mark
        if distinct:
            return modulus
    return MODULUS_MIN


@compiled
def compare_rows(
    words: Words, features: int, moduli: Integers, coefficients: Reals, counts: Integers, means: Reals, drift: Integers
) -> int:
    """Compare n claimed polynomials with n chunks of hidden states with so many features.

    moduli [n], coefficients [n, 128] (residues) → counts [n, 2]: mismatching exponents, positions compared; means [n]:
    mean difference of mantissas; drift [n, 2, BUCKETS], zeros before: `Drift`. Return a chunk with NaN, or −1.
    """
    spots, items, cut = np.empty((2, PART), dtype=np.int64), np.empty(ROOM, dtype=np.int64), 0
    points, evaluated, powers = np.zeros(TOP_K), np.empty(TOP_K), np.empty((STEP + 1, TOP_K))
    for row in range(len(words)):
        # Neighbouring chunks have similar cuts; one that is a few steps of bf16 lower is rarely too high.
        positions, cut = untied(words[row], max(cut - GUESS_BELOW, 0), spots, items)
        for index in range(max(positions, 1)):
            if items[index] >> 32 > INFINITY_BITS:
                return row
            points[index] = reduced(float((items[index] & 0xFFFFFFFF) % moduli[row]))
        powers_of(points, powers)
        evaluate(coefficients[row], powers, evaluated)
        matched, total = 0, 0
        for index in range(positions):
            residue = int(evaluated[index])
            claimed = (residue + PRIME if residue < 0 else residue) & 0x7FFF
            own, at = items[index] >> 32, items[index] & 0xFFFFFFFF
            steps = min(max(claimed - own, -MOST_STEPS), MOST_STEPS)
            negative = (words[row, at >> 2] >> np.uint64(((at & 3) << 4) + 15)) & np.uint64(1)
            drift[row, 0, at % features % BUCKETS] += -steps if negative else steps
            drift[row, 1, at % features % BUCKETS] += 1
            if claimed >> MANTISSA_BITS == own >> MANTISSA_BITS:
                matched, total = matched + 1, total + abs(claimed - own)
        counts[row, 0] = positions - matched
        counts[row, 1] = positions
        means[row] = total / matched if matched else MANTISSAS if positions else 0
    return -1
