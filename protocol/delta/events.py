"""The sparse groups' stream: what a reader needs, in the order in which it needs it."""

from typing import Any

import numpy as np

from protocol.compiled import compiled
from protocol.delta.bits import MEAN_SHIFT, Array, Int, put, put_gap, rice_width
from protocol.delta.layout import FIRST_BIG_MEAN, SPARSE_GROUPS, bit_length


@compiled
def _next_gaps(events: Array, gaps: Array, count: Int, last: Array) -> Any:
    """Put in `gaps`, for each event, the gap after it in its group; returns each group's first gap."""
    following = last.copy()
    for event in range(count - 1, -1, -1):
        group = events[event]
        following[group], gaps[event] = gaps[event], following[group]
    return following


@compiled
def _until_big(steps: Array, start: Int, count: Int) -> Any:
    """How many events from `start` move by one place before one moves further, or they end."""
    at = start
    while at < count and -1 <= steps[at] <= 1:
        at += 1
    return at - start


@compiled
def write_events(events: Array, gaps: Array, steps: Array, total: Int, last: Array, means: Array, words: Array) -> Any:
    """Write `total` events as `scan` listed them; returns the words that they take, also if `words` has not as many.

    First how many events come before the first big step, then each sparse group's first gap; then of every event its
    sign, if it is big its size and how many come before the next big one, and the gap before its group's next event.
    """
    place, held, count = 0, np.uint64(0), 0
    mean, width = means << MEAN_SHIFT, np.zeros(SPARSE_GROUPS + 1, np.int64)
    mean[SPARSE_GROUPS] = FIRST_BIG_MEAN
    first = _next_gaps(events, gaps, total, last)
    until = _until_big(steps, 0, total)
    width[SPARSE_GROUPS] = rice_width(mean[SPARSE_GROUPS], 0)
    place, held, count = put_gap(words, place, held, count, until, width[SPARSE_GROUPS])
    for number in range(SPARSE_GROUPS):
        if means[number] >= 0:
            width[number] = rice_width(mean[number], 0)
            place, held, count = put_gap(words, place, held, count, first[number], width[number])
            mean[number] += first[number] - (mean[number] >> MEAN_SHIFT)
    for event in range(total):
        group, step = np.int64(events[event]), steps[event]
        place, held, count = put(words, place, held, count, np.int64(step < 0), 1)
        if until == 0:
            size = abs(step) - 1
            length = bit_length(size)
            place, held, count = put(words, place, held, count, length, 6)
            place, held, count = put(words, place, held, count, size & 0x7FFFFFFF, min(length, 31))
            until = _until_big(steps, event + 1, total)
            width[SPARSE_GROUPS] = rice_width(mean[SPARSE_GROUPS], width[SPARSE_GROUPS])
            place, held, count = put_gap(words, place, held, count, until, width[SPARSE_GROUPS])
            mean[SPARSE_GROUPS] += until - (mean[SPARSE_GROUPS] >> MEAN_SHIFT)
        else:
            until -= 1
        width[group] = rice_width(mean[group], width[group])
        place, held, count = put_gap(words, place, held, count, gaps[event], width[group])
        mean[group] += gaps[event] - (mean[group] >> MEAN_SHIFT)
    if count:
        place, held, count = put(words, place, held, count, 0, 32 - count)
    return place
