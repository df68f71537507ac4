"""The reader of a segment: total over any bytes, in the memory that it is given."""

from typing import Any

import numpy as np

from protocol.compiled import compiled
from protocol.delta.bits import MEAN_SHIFT, Array, Arrays, Int, rice_width, take, take_gap
from protocol.delta.layout import (
    DIRECT,
    FIELD_BITS,
    FIELD_FULL,
    FIRST_BIG_MEAN,
    GROUPS,
    SPARSE_GROUPS,
    STOP,
    added,
    ordered,
    placed,
    wrapped,
)
from protocol.delta.rans import LOW, SCALE, SCALE_BITS

GOOD, BAD_GAP, BAD_STEP, BAD_STATES, BAD_END = range(5)


@compiled
def apply(elements: Arrays, form: tuple[int, int, int], maps: Arrays, tokens: Arrays, words: Array) -> Any:
    """Write the new elements over `out`, which holds the base's. Returns GOOD, or what is wrong with the code; then
    `out` holds nothing of use.

    `form`: as `scan`. `states` and `codes` are the tokens' states and words, `words` the events, `extra` further bits.
    """
    (base, base_words, out), (group_of, adds, means), (table, states, codes, extra) = elements, maps, tokens
    (fraction, exponent_mask, half), size, at = form, base.size, 0
    lanes, lane_bits = (4, np.uint64(2)) if half == 1 << 15 else (2, np.uint64(1))
    x0, x1, x2, x3 = np.uint64(states[0]), np.uint64(states[1]), np.uint64(states[2]), np.uint64(states[3])
    code, more, more_held, more_count = 0, 0, np.uint64(0), 0
    mean, width, left = means << MEAN_SHIFT, np.zeros(GROUPS, np.int64), np.zeros(GROUPS, np.int64)
    place, held, count, counters, wrong = _first_gaps(words, size, means, mean, width, left)
    while at < size and wrong == GOOD:
        end = min(at + lanes, size)
        if end == at + lanes:
            ahead = counters + added(base_words[np.uint64(at) >> lane_bits], adds, fraction, exponent_mask, lanes)
            if ahead & STOP == 0:
                counters = ahead
                at = end
                continue
        for one in range(at, end):
            bits = np.int64(base[one])
            group = np.int64(group_of[(bits >> fraction) & exponent_mask])
            if group >= SPARSE_GROUPS:
                code, x0, folded = _token(table, group - SPARSE_GROUPS, code, x0, codes)
                x0, x1, x2, x3 = x1, x2, x3, x0
                if folded >= DIRECT:
                    length, top = 3 + ((folded - DIRECT) >> 1), 2 + ((folded - DIRECT) & 1)
                    more, more_held, more_count, low = take(extra, more, more_held, more_count, length)
                    folded = (top << length) | low
                out[one] = placed(wrapped(ordered(bits, half) + ((folded >> 1) ^ -(folded & 1)), half), half)
                continue
            shift = np.uint64(FIELD_BITS * group)
            counters += np.uint64(1) << shift
            if (counters >> shift) & np.uint64(FIELD_FULL) == 0:
                continue
            if left[group] == 0:
                place, held, count, step, wrong = _event(words, place, held, count, group, size, mean, width, left)
                out[one] = placed(wrapped(ordered(bits, half) + step, half), half)
                if wrong != GOOD:
                    break
            counters += (_loaded(left, group) - np.uint64(FIELD_FULL)) << shift
        at = end
    if wrong != GOOD:
        return wrong
    if code != codes.size or x0 != LOW or x1 != LOW or x2 != LOW or x3 != LOW:
        return BAD_STATES
    ended = _ended(words, place, held, count) and _ended(extra, more, more_held, more_count)
    return GOOD if ended and _exhausted(counters, means, left) else BAD_END


@compiled
def _loaded(left: Array, group: Int) -> Any:
    """Take as many elements from `left` as fit into a group's field; returns the field, which is full when they have
    come by."""
    now: Int = min(left[group], FIELD_FULL)
    left[group] -= now
    return np.uint64(FIELD_FULL - now)


@compiled
def _first_gaps(words: Array, size: Int, means: Array, mean: Array, width: Array, left: Array) -> Any:
    """Read what stands before the first event: the number of events before the first big one, into
    `left[SPARSE_GROUPS]`, and every group's first gap. Returns the stream, the counters, and what is wrong."""
    mean[SPARSE_GROUPS] = FIRST_BIG_MEAN
    width[SPARSE_GROUPS] = rice_width(mean[SPARSE_GROUPS], 0)
    place, held, count, until = take_gap(words, 0, np.uint64(0), 0, width[SPARSE_GROUPS])
    left[SPARSE_GROUPS] = until
    counters, wrong = np.uint64(0), BAD_GAP if until > size else GOOD
    for group in range(SPARSE_GROUPS):
        if means[group] >= 0:
            width[group] = rice_width(mean[group], 0)
            place, held, count, gap = take_gap(words, place, held, count, width[group])
            if gap > size:
                wrong = BAD_GAP
            mean[group] += gap - (mean[group] >> MEAN_SHIFT)
            left[group] = gap + 1
            counters |= _loaded(left, group) << np.uint64(FIELD_BITS * group)
    return place, held, count, counters, wrong


@compiled
def _event(
    words: Array, place: Int, held: Any, count: Int, group: Int, size: Int, mean: Array, width: Array, left: Array
) -> Any:
    """Read an element's step, and into `left[group]` the number of elements up to the group's next change, it among
    them. Returns the stream, the step, and what is wrong."""
    place, held, count, sign = take(words, place, held, count, 1)
    step, wrong = 1, GOOD
    if left[SPARSE_GROUPS] == 0:
        place, held, count, length = take(words, place, held, count, 6)
        place, held, count, further = take(words, place, held, count, min(length, 31))
        step += further
        width[SPARSE_GROUPS] = rice_width(mean[SPARSE_GROUPS], width[SPARSE_GROUPS])
        place, held, count, until = take_gap(words, place, held, count, width[SPARSE_GROUPS])
        if length > 31 or until > size:
            wrong = BAD_STEP
        mean[SPARSE_GROUPS] += until - (mean[SPARSE_GROUPS] >> MEAN_SHIFT)
        left[SPARSE_GROUPS] = until
    else:
        left[SPARSE_GROUPS] -= 1
    width[group] = rice_width(mean[group], width[group])
    place, held, count, gap = take_gap(words, place, held, count, width[group])
    if gap > size:
        wrong = BAD_GAP
    mean[group] += gap - (mean[group] >> MEAN_SHIFT)
    left[group] = gap + 1
    return place, held, count, -step if sign else step, wrong


@compiled
def _token(table: Array, group: Int, code: Int, state: Any, codes: Array) -> Any:
    """Read one token with one state; returns the place among `codes`, the state and the token."""
    scale, span = np.uint64(SCALE - 1), np.uint64(SCALE_BITS)
    packed = np.uint64(table[np.uint64((group << SCALE_BITS) + np.int64(state & scale))])
    state = ((packed & scale) + np.uint64(1)) * (state >> span) + ((packed >> span) & scale)
    if state < np.uint64(LOW):
        if code < codes.size:
            state = (state << np.uint64(16)) | np.uint64(codes[code])
        code += 1
    return code, state, np.int64(packed >> np.uint64(2 * SCALE_BITS))


@compiled
def _exhausted(counters: Any, means: Array, left: Array) -> Any:
    """Whether the last gaps end with the segment."""
    if left[SPARSE_GROUPS]:
        return False
    for group in range(SPARSE_GROUPS):
        field = np.int64((counters >> np.uint64(FIELD_BITS * group)) & np.uint64(FIELD_FULL - 1))
        if means[group] >= 0 and left[group] + FIELD_FULL - field != 1:
            return False
    return True


@compiled
def _ended(words: Array, place: Int, held: Any, count: Int) -> Any:
    """Whether a stream was read up to its last word, and only zeros are left of that."""
    return (place * 32 - count + 31) // 32 == words.size and held == 0
