"""The coder's passes over the elements of a segment: counting what changed, and listing it."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocol.compiled import compiled
from protocol.delta.bits import Array, Arrays, Int, finished, put
from protocol.delta.blocks import BLOCK, LANES, compare_block, masks_of, number_block
from protocol.delta.layout import DIRECT, SPARSE_GROUPS, TOKENS, step_between
from protocol.delta.words import equals, ones, zeros_above, zeros_below

# Places are unsigned: one with a sign would be looked at for it, every time.
_NONE, _ONE = np.uint64(0), np.uint64(1)


def count_changes(base: Array, new: Array, form: tuple[int, int, int], block: int, stride: int) -> NDArray[np.int64]:
    """How many elements, and how many that differ, have each exponent in `base`: [256, 2] int64, of blocks of `block`
    elements, one in `stride`."""
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
