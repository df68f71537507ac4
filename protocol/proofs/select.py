"""The 128 largest magnitudes of a chunk: torch.topk's own choice among ties for provers, no ties for verifiers.

torch.topk on a CPU orders (value, index) pairs by value alone: with std::partial_sort where 64·k ≤ n, else with
std::nth_element. Which members of a tie at the cut survive follows from the exact course of these algorithms, so both
are done here as libstdc++ does them (bits/stl_heap.h, bits/stl_algo.h; introselect: Musser, 1997).

A row is a chunk's bf16 patterns, four to a 64-bit word, padded with zeros. With the sign bit set in every lane, one
subtraction compares four magnitudes with a bound, and most of a row is passed over in this way. An item is
magnitude · 2³² + index.
"""

import numpy as np
import numpy.typing as npt

from protocol.compiled import compiled
from protocol.proofs.codec import TOP_K

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

Words = npt.NDArray[np.uint64]
Items = npt.NDArray[np.int64]
Spots = npt.NDArray[np.int64]  # [2, PART]


@compiled
def item(words: Words, at: int) -> int:
    """Magnitude · 2³² + `at` of the value at index `at`."""
    return (int((words[at >> 2] >> np.uint64((at & 3) << 4)) & MAGNITUDE) << 32) | at


@compiled
def above(words: Words, start: int, bound: int, spots: Spots, items: Items, count: int) -> int:
    """Append the items of words[start : start + PART] whose magnitude exceeds `bound` ≥ −1 to items[:count].

    Returns the new count. Whether a value is kept cannot be predicted, so nothing here branches on it: stretches with
    such a value are listed, then words, then values. spots: scratch.
    """
    limit = np.uint64(bound + 1) * EACH
    part = words[start : start + PART]
    whole = len(part) // STRETCH * STRETCH
    stretches, hits = 0, 0
    for at in range(0, whole, STRETCH):
        seen = np.uint64(0)
        for word in range(STRETCH):
            seen |= (part[at + word] | SIGNS) - limit
        if seen & SIGNS:
            spots[0, stretches] = at
            stretches += 1
    for number in range(stretches):
        for word in range(spots[0, number], spots[0, number] + STRETCH):
            spots[1, hits] = word
            hits += (((part[word] | SIGNS) - limit) & SIGNS) != 0
    for word in range(whole, len(part)):
        spots[1, hits] = word
        hits += 1
    for number in range(hits):
        for lane in range(LANES):
            items[count] = item(words, LANES * (start + spots[1, number]) + lane)
            count += (items[count] >> 32) > bound
    return count


# ---- Provers: as torch.topk


@compiled
def largest(words: Words, width: int, spots: Spots, items: Items) -> None:
    """items[:128] become torch.topk's choice from a row of `width` values, in no particular order.

    items: [ROOM], or [width] if that is more and less than 8192.
    """
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
        count = above(words, start, heap[0] >> 32, spots, heap, TOP_K)
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
    """libstdc++'s nth_element for the 128th largest: partitions around medians of three, then an insertion sort.
    spots: scratch."""
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
        value, place = items[at], at
        while place > first and (value >> 32) > (items[place - 1] >> 32):
            items[place] = items[place - 1]
            place -= 1
        items[place] = value


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
    """libstdc++'s __unguarded_partition_pivot, descending: the same exchanges, so the same order. spots: scratch."""
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
    """The exchanges of a partition while its ends are far apart; returns from where to go on, one value at a time.

    An exchange is of the next value from the left that is not above the pivot and the next from the right that is not
    below it. Where a value stops an end cannot be predicted, so such places are listed a block at a time without a
    branch (Edelkamp and Weiss, "BlockQuicksort", 2016).
    """
    above_pivot, from_pivot = (pivot + 1) << 32, pivot << 32
    lefts, rights, at_left, at_right = 0, 0, 0, 0
    while right - left >= 2 * BLOCK:
        if at_left == lefts:
            lefts, at_left = 0, 0
            for place in range(left, left + BLOCK):
                spots[0, lefts] = place
                lefts += items[place] < above_pivot
            left += BLOCK
        if at_right == rights:
            rights, at_right = 0, 0
            for place in range(right - 1, right - 1 - BLOCK, -1):
                spots[1, rights] = place
                rights += items[place] >= from_pivot
            right -= BLOCK
        for _ in range(min(lefts - at_left, rights - at_right)):
            one, other = spots[0, at_left], spots[1, at_right]
            items[one], items[other] = items[other], items[one]
            at_left, at_right = at_left + 1, at_right + 1
    if at_left < lefts:
        left = spots[0, at_left]
    if at_right < rights:
        right = spots[1, at_right] + 1
    return left, right


# ---- Verifiers: no ties


@compiled
def untied(words: Words, guess: int, spots: Spots, items: Items) -> tuple[int, int]:
    """Put the 128 largest into items[:n], without the tie at the cut if there is one. items: [ROOM].

    Returns n and the 128th largest magnitude. A `guess` of that (0: none) saves work if it is a little low, and costs
    a second pass if it is too high.
    """
    count, cut = _collect(words, guess, spots, items)
    if count < TOP_K:
        count, cut = _collect(words, 0, spots, items)
    return (count if count == TOP_K else _above(items, count, cut)), cut


@compiled
def _collect(words: Words, guess: int, spots: Spots, items: Items) -> tuple[int, int]:
    """The items from `guess` on that can be among the 128 largest, 129 at most, and the magnitude of the 128th."""
    count, cut = 0, guess
    for start in range(0, len(words), PART):
        count = above(words, start, _bound(count, cut), spots, items, count)
        if count > BUFFER:
            count, cut = _prune(items, count)
    return _prune(items, count)


@compiled
def _bound(count: int, cut: int) -> int:
    """What the next value has to exceed: once a 129th value at the cut is known, further ones change nothing."""
    return cut if count > TOP_K else cut - 1


@compiled
def _prune(items: Items, count: int) -> tuple[int, int]:
    """Keep the items above the 128th largest magnitude and of those equal to it so many that 129 remain at most.

    Returns how many remain, first in `items`, and the 128th largest magnitude.
    """
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
def _above(items: Items, count: int, cut: int) -> int:
    kept = 0
    for at in range(count):
        items[kept] = items[at]
        kept += (items[at] >> 32) > cut
    return kept
