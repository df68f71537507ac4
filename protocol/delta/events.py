"""The sparse groups' stream: what a reader needs, in the order in which it needs it."""

from typing import Any

import numpy as np

from protocol.compiled import compiled
from protocol.delta.bits import MEAN_SHIFT, Array, Arrays, Int, finished, gap_code, put, rice_width
from protocol.delta.layout import FIRST_BIG_MEAN, SPARSE_GROUPS
from protocol.delta.words import zeros_above


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
