"""The coder's passes over the elements of a segment: counting what changed, and listing it."""

from typing import Any

import numpy as np

from protocol.compiled import compiled
from protocol.delta.bits import Array, Arrays, Int, put
from protocol.delta.layout import (
    DIRECT,
    FIELD_BITS,
    FIELD_FULL,
    SPARSE_GROUPS,
    STOP,
    added,
    bit_length,
    ordered,
    wrapped,
)


@compiled
def count_changes(base: Array, new: Array, fraction: Int, exponent_mask: Int, block: Int, stride: Int) -> Any:
    """How many elements, and how many that differ, have each exponent in `base`: [256, 2] int64, of blocks of `block`
    elements, one in `stride`."""
    found = np.zeros((2, 256, 2), np.int64)
    for start in range(0, base.size, block * stride):
        for at in range(start, min(start + block, base.size)):
            exponent = (np.int64(base[at]) >> fraction) & exponent_mask
            found[at & 1, exponent, 0] += 1
            found[at & 1, exponent, 1] += base[at] != new[at]
    return found[0] + found[1]


@compiled
def scan(elements: Arrays, form: tuple[int, int, int], maps: Arrays, lists: Arrays) -> Any:
    """List what the segment's code must say. `form`: width of the fraction, mask of the exponent, half.

    `lists`: of every changed element of a sparse group, in order: `events` its group, `gaps` how many of the group did
    not change since the one before, `steps` by how many places it moves. Of every element of a dense group: `tags` its
    group, `tokens` its token, and the token's further bits into `extra`. Returns the numbers of events and tokens, the
    place, bits and count of the stream `extra`, and how many elements of each sparse group come after its last change.
    """
    (base, new, base_words, new_words), (group_of, adds) = elements, maps
    (fraction, exponent_mask, half), (events, tokens, tags, gaps, steps, extra) = form, lists
    counters, at, event, dense = np.uint64(0), 0, 0, 0
    lanes, lane_bits = (4, np.uint64(2)) if half == 1 << 15 else (2, np.uint64(1))
    spilled = np.zeros(SPARSE_GROUPS, np.int64)
    place, held, count = 0, np.uint64(0), 0
    while at < base.size:
        end = min(at + lanes, base.size)
        if end == at + lanes:
            word = base_words[np.uint64(at) >> lane_bits]
            ahead = counters + added(word, adds, fraction, exponent_mask, lanes)
            if (word ^ new_words[np.uint64(at) >> lane_bits]) | (ahead & STOP) == 0:
                counters = ahead
                at = end
                continue
        for one in range(at, end):
            bits, after = np.int64(base[one]), np.int64(new[one])
            group = np.int64(group_of[(bits >> fraction) & exponent_mask])
            if group >= SPARSE_GROUPS:
                step = wrapped(ordered(after, half) - ordered(bits, half), half)
                place, held, count, tokens[dense] = _tokenised(step, extra, place, held, count)
                tags[dense] = group - SPARSE_GROUPS
                dense += 1
                continue
            shift = np.uint64(FIELD_BITS * group)
            if bits == after:
                counters += np.uint64(1) << shift
                if (counters >> shift) & np.uint64(FIELD_FULL):
                    counters ^= np.uint64(FIELD_FULL) << shift
                    spilled[group] += FIELD_FULL
                continue
            field = (counters >> shift) & np.uint64(FIELD_FULL - 1)
            counters ^= field << shift
            events[event], gaps[event] = group, spilled[group] + np.int64(field)
            steps[event] = wrapped(ordered(after, half) - ordered(bits, half), half)
            spilled[group] = 0
            event += 1
        at = end
    for number in range(SPARSE_GROUPS):
        spilled[number] += np.int64((counters >> np.uint64(FIELD_BITS * number)) & np.uint64(FIELD_FULL - 1))
    return event, dense, place, held, count, spilled


@compiled
def _tokenised(step: Int, extra: Array, place: Int, held: Any, count: Int) -> Any:
    """Append a step's further bits to the stream `extra`; returns the stream and the step's token."""
    folded = (step << 1) ^ (step >> 63)
    if folded < DIRECT:
        return place, held, count, folded
    further = bit_length(folded) - 2
    place, held, count = put(extra, place, held, count, folded & ((1 << further) - 1), further)
    return place, held, count, DIRECT + 2 * (further - 3) + ((folded >> further) & 1)
