"""The reader of a segment: total over any bytes, in the memory that it is given."""

import numpy as np

from protocol.compiled import compiled
from protocol.delta.bits import MEAN_SHIFT, rice_width, take, take_gap
from protocol.delta.layout import (
    DIRECT,
    FIELD_BITS,
    FIELD_FULL,
    FIRST_BIG_MEAN,
    GROUPS,
    SPARSE_GROUPS,
    STOP,
    ordered,
    placed,
    wrapped,
)
from protocol.delta.rans import LOW, SCALE, SCALE_BITS

GOOD, BAD_GAP, BAD_STEP, BAD_STATES, BAD_END = range(5)


@compiled
def apply(base, out, fraction, exponent_mask, half, group_of, adds, means, table, states, codes, words, extra):  # type: ignore[no-untyped-def]
    """Write the new elements over `out`, which holds the base's. Returns GOOD or what is wrong with the code; then `out`
    holds nothing of use.

    `states` and `codes` are the tokens' four states and words, `words` the stream of events, `extra` the further bits
    of tokens.
    """
    size, at = base.size, 0
    scale, span = np.uint64(SCALE - 1), np.uint64(SCALE_BITS)
    x0, x1, x2, x3 = np.uint64(states[0]), np.uint64(states[1]), np.uint64(states[2]), np.uint64(states[3])
    code = 0
    more, more_held, more_count = 0, np.uint64(0), 0
    place, held, count = 0, np.uint64(0), 0
    mean, width = means << MEAN_SHIFT, np.zeros(GROUPS, np.int64)
    mean[SPARSE_GROUPS] = FIRST_BIG_MEAN
    width[SPARSE_GROUPS] = rice_width(mean[SPARSE_GROUPS], 0)
    counters, spilled = np.uint64(0), np.zeros(SPARSE_GROUPS, np.int64)
    place, held, count, until = take_gap(words, place, held, count, width[SPARSE_GROUPS])
    if until > size:
        return BAD_GAP
    for group in range(SPARSE_GROUPS):
        if means[group] >= 0:
            width[group] = rice_width(mean[group], 0)
            place, held, count, gap = take_gap(words, place, held, count, width[group])
            if gap > size:
                return BAD_GAP
            mean[group] += gap - (mean[group] >> MEAN_SHIFT)
            now = min(gap + 1, FIELD_FULL)
            spilled[group] = gap + 1 - now
            counters |= np.uint64(FIELD_FULL - now) << np.uint64(FIELD_BITS * group)
    while at < size:
        end = min(at + 4, size)
        if end == at + 4:
            ahead = counters
            for one in range(4):
                ahead += adds[(np.int64(base[at + one]) >> fraction) & exponent_mask]
            if ahead & STOP == 0:
                counters = ahead
                at = end
                continue
        for one in range(at, end):
            bits = np.int64(base[one])
            group = np.int64(group_of[(bits >> fraction) & exponent_mask])
            if group >= SPARSE_GROUPS:
                packed = np.uint64(table[((group - SPARSE_GROUPS) << SCALE_BITS) + np.int64(x0 & scale)])
                start = (packed >> span) & scale
                x0 = ((packed & scale) + np.uint64(1)) * (x0 >> span) + start
                if x0 < np.uint64(LOW):
                    if code < codes.size:
                        x0 = (x0 << np.uint64(16)) | np.uint64(codes[code])
                    code += 1
                x0, x1, x2, x3 = x1, x2, x3, x0
                folded = np.int64(packed >> np.uint64(2 * SCALE_BITS))
                if folded >= DIRECT:
                    length = 3 + ((folded - DIRECT) >> 1)
                    top = 2 + ((folded - DIRECT) & 1)
                    more, more_held, more_count, low = take(extra, more, more_held, more_count, length)
                    folded = (top << length) | low
                step = (folded >> 1) ^ -(folded & 1)
                moved = wrapped(ordered(bits, half) + step, half)
                out[one] = placed(moved, half)
                continue
            shift = np.uint64(FIELD_BITS * group)
            counters += np.uint64(1) << shift
            if (counters >> shift) & np.uint64(FIELD_FULL) == 0:
                continue
            counters ^= np.uint64(FIELD_FULL) << shift
            if spilled[group] == 0:
                place, held, count, sign = take(words, place, held, count, 1)
                step = 1
                if until == 0:
                    place, held, count, length = take(words, place, held, count, 6)
                    place, held, count, more_steps = take(words, place, held, count, min(length, 31))
                    step += more_steps
                    width[SPARSE_GROUPS] = rice_width(mean[SPARSE_GROUPS], width[SPARSE_GROUPS])
                    place, held, count, until = take_gap(words, place, held, count, width[SPARSE_GROUPS])
                    if length > 31 or until > size:
                        return BAD_STEP
                    mean[SPARSE_GROUPS] += until - (mean[SPARSE_GROUPS] >> MEAN_SHIFT)
                else:
                    until -= 1
                out[one] = placed(wrapped(ordered(bits, half) + (-step if sign else step), half), half)
                width[group] = rice_width(mean[group], width[group])
                place, held, count, gap = take_gap(words, place, held, count, width[group])
                if gap > size:
                    return BAD_GAP
                mean[group] += gap - (mean[group] >> MEAN_SHIFT)
                spilled[group] = gap + 1
            now = min(spilled[group], FIELD_FULL)
            spilled[group] -= now
            counters += np.uint64(FIELD_FULL - now) << shift
        at = end
    if code != codes.size or x0 != LOW or x1 != LOW or x2 != LOW or x3 != LOW:
        return BAD_STATES
    if until or not _ended(words, place, held, count) or not _ended(extra, more, more_held, more_count):
        return BAD_END
    for group in range(SPARSE_GROUPS):
        field = np.int64((counters >> np.uint64(FIELD_BITS * group)) & np.uint64(FIELD_FULL - 1))
        if means[group] >= 0 and spilled[group] + FIELD_FULL - field != 1:
            return BAD_END
    return GOOD


@compiled
def _ended(words, place, held, count):  # type: ignore[no-untyped-def]
    """Whether a stream was read up to its last word, and only zeros are left of that."""
    return (place * 32 - count + 31) // 32 == words.size and held == 0
