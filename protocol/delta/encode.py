"""The encoder's passes over a segment: count what changed, choose groups of exponents, list changes, write them."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocol.compiled import compiled
from protocol.delta.bits import (
    BLOCK,
    DENSE_GROUPS,
    DIRECT,
    FIRST_BIG_MEAN,
    LANES,
    MEAN_SHIFT,
    SEGMENT,
    SPARSE_GROUPS,
    TOKENS,
    Array,
    Arrays,
    Grouping,
    Int,
    compare_block,
    equals,
    finished,
    gap_code,
    masks_of,
    number_block,
    ones,
    put,
    rice_width,
    step_between,
    zeros_above,
    zeros_below,
)

# Places are unsigned: one with a sign would be looked at for it, every time.
_NONE, _ONE = np.uint64(0), np.uint64(1)


def count_changes(base: Array, new: Array, form: tuple[int, int, int], block: int, stride: int) -> NDArray[np.int64]:
    """Return how many elements, and how many that differ, have each exponent in `base`: [256, 2] int64, of blocks of
    `block` elements, one in `stride`."""
    found = np.zeros((4, 2, 256), np.int64)
    _count(base, new, form, (block, stride), found.reshape(-1))
    same, changed = found.sum(axis=0)
    return np.stack((same + changed, changed), axis=1)


@compiled
def _count(base: Array, new: Array, form: tuple[int, int, int], sample: tuple[int, int], counts: Array) -> None:
    shift, mask, (block, stride) = np.uint64(form[0]), np.uint64(form[1]), sample
    for start in range(0, base.size, block * stride):
        before, after = base[start : start + block], new[start : start + block]
        for at in range(before.size):
            # Four tables: a count that was just written is not waited for.
            table = np.uint64((at & 3) << 9) | np.uint64(before[at] != after[at]) << np.uint64(8)
            counts[table | ((np.uint64(before[at]) >> shift) & mask)] += 1


@compiled
def scan(elements: Arrays, form: tuple[int, int, int], maps: Arrays, lists: Arrays) -> Any:
    """List what the segment's code must say. `elements`: base and new. `form`: width of the fraction, mask of the
    exponent, half. `maps`: as `number_block`.

    `lists`: of every changed element of a sparse group, in order: `events` its group, `steps` by how many places it
    moves, and `gaps`, SPARSE_GROUPS places further, how many of the group do not change until its next one, or the
    segment's end; the first of `gaps` are those before each group's first change. `big` has the places in `events` of
    steps of more than one place. Of every element of a dense group: `symbols` its group and token, and the token's
    further bits in the stream `extra`. Returns the numbers of events, of big ones and of symbols, and the words of
    `extra`, also if it has not as many.
    """
    (base, new), (_, _, half), (events, gaps, steps, big, symbols, extra) = elements, form, lists
    event, many, dense, place, held, count = _NONE, _NONE, _NONE, 0, _NONE, _NONE
    groups, differs, masks = np.empty(BLOCK, np.uint8), np.empty(BLOCK, np.uint8), np.empty(SPARSE_GROUPS, np.uint64)
    # Of each sparse group the elements since its last change, less this word's, and that change's place in `gaps`
    since, last = np.zeros(SPARSE_GROUPS, np.int64), np.arange(SPARSE_GROUPS).astype(np.uint64)
    for start in range(0, base.size, BLOCK):
        before, after = base[start : start + BLOCK], new[start : start + BLOCK]
        number_block(before, form, maps, differs, groups)
        compare_block(before, after, differs)
        for at in range(0, before.size, LANES):
            others = masks_of(groups, at, masks)
            changed = ~equals(differs, at, np.uint8(0)) & ~others
            while changed:
                lane = zeros_below(changed)
                one = np.uint64(at) + lane
                group = groups[one]
                passed = np.int64(ones(masks[group] & ((_ONE << lane) - _ONE)))
                gaps[last[group]] = since[group] + passed
                since[group], last[group] = -passed - 1, event + np.uint64(SPARSE_GROUPS)
                step = step_between(np.int64(before[one]), np.int64(after[one]), half)
                events[event], steps[event], big[many] = group, step, event
                many += np.uint64(step * step > 1)
                event += _ONE
                changed &= changed - _ONE
            for group in range(SPARSE_GROUPS):
                since[group] += np.int64(ones(masks[group]))
            while others:
                one = np.uint64(at) + zeros_below(others)
                step = step_between(np.int64(before[one]), np.int64(after[one]), half)
                token = (step << 1) ^ (step >> 63)
                if token >= DIRECT:
                    token, further, length = _shortened(token)
                    place, held, count = put(extra, place, held, count, further, length)
                symbols[dense] = (np.int64(groups[one]) - SPARSE_GROUPS) * TOKENS + token
                dense += _ONE
                others &= others - _ONE
    for group in range(SPARSE_GROUPS):
        gaps[last[group]] = since[group]
    return np.int64(event), np.int64(many), np.int64(dense), finished(extra, place, held, count)


@compiled
def _shortened(folded: Int) -> Any:
    """The token of a folded step ≥ DIRECT, its further bits, and how many these are."""
    length = np.int64(62) - np.int64(zeros_above(np.uint64(folded)))
    further = np.uint64(folded) & ((np.uint64(1) << np.uint64(length)) - np.uint64(1))
    return DIRECT + 2 * (length - 3) + ((folded >> length) & 1), further, np.uint64(length)


# ---- The sparse groups' stream, in the order in which a reader needs it


@compiled
def write_events(lists: Arrays, total: Int, many: Int, means: Array, stream: Array) -> Any:
    """Write `total` events, `many` of them big, as `scan` listed them; returns the words that they take, also if
    `stream` has not as many.

    First how many events come before the first big step, then each sparse group's first gap; then of every event its
    sign, if it is big its size and how many come before the next big one, and the gap before its group's next event.
    """
    events, gaps, steps, big = lists
    place, held, count = 0, np.uint64(0), np.uint64(0)
    mean, width = means[:SPARSE_GROUPS] << MEAN_SHIFT, np.zeros(SPARSE_GROUPS, np.uint64)
    big_mean: Int = FIRST_BIG_MEAN
    next_big: Int = big[0] if many else total
    code, length = gap_code(np.uint64(next_big), rice_width(big_mean))
    place, held, count = put(stream, place, held, count, code, length)
    for number in range(SPARSE_GROUPS):
        if means[number] >= 0:
            code, length = gap_code(np.uint64(gaps[number]), rice_width(mean[number]))
            place, held, count = put(stream, place, held, count, code, length)
            mean[number] += gaps[number] - (mean[number] >> MEAN_SHIFT)
            width[number] = rice_width(mean[number])
    passed = 0
    for event in range(total):
        group, gap = np.int64(events[event]), np.int64(gaps[event + SPARSE_GROUPS])
        sign = np.uint64(steps[event] < 0)
        if event == next_big:
            size = np.uint64(abs(np.int64(steps[event])) - 1)
            bits = np.uint64(64) - zeros_above(size)
            place, held, count = put(stream, place, held, count, sign | (bits << np.uint64(1)), np.uint64(7))
            place, held, count = put(stream, place, held, count, size & np.uint64(0x7FFFFFFF), min(bits, np.uint64(31)))
            passed += 1
            next_big = np.int64(big[passed]) if passed < many else total
            until = next_big - event - 1
            code, length = gap_code(np.uint64(until), rice_width(big_mean))
            place, held, count = put(stream, place, held, count, code, length)
            big_mean += until - (big_mean >> MEAN_SHIFT)
            code, length = gap_code(np.uint64(gap), width[group])
            place, held, count = put(stream, place, held, count, code, length)
        else:
            code, length = gap_code(np.uint64(gap), width[group])
            code = (code << np.uint64(1)) | sign
            place, held, count = put(stream, place, held, count, code, length + np.uint64(1))
        mean[group] += gap - (mean[group] >> MEAN_SHIFT)
        width[group] = rice_width(mean[group])
    return finished(stream, place, held, count)


# ---- Groups of exponents


DENSE_SHARE = 0.3  # Where more elements change than this, each has a token; below, gaps are shorter and faster
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
