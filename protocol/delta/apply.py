"""The decoder of a segment: defined for any bytes, in the memory that it is given."""

from typing import Any

import numpy as np

from protocol.compiled import compiled
from protocol.delta.bits import (
    BLOCK,
    DIRECT,
    FIRST_BIG_MEAN,
    LANES,
    MEAN_SHIFT,
    SPARSE_GROUPS,
    Array,
    Arrays,
    Int,
    ahead,
    at_end,
    masks_of,
    move_block,
    number_block,
    ones,
    place_of,
    read_gap,
    rice_width,
    take,
    zeros_below,
)
from protocol.delta.rans import LOW, take_token

GOOD, BAD_GAP, BAD_STEP, BAD_STATES, BAD_END = range(5)
_ONE = np.uint64(1)


@compiled
def apply(elements: Arrays, form: tuple[int, int, int], maps: Arrays, tokens: Arrays, stream: Array) -> Any:
    """Write the new elements to `out`. Returns GOOD, or what is wrong with the code; then `out` holds nothing of use.

    `elements`: base and out. `form`: as `scan`. `maps`: as `number_block`, and the groups' mean gaps. `tokens`: the
    table of `slots`, the states ([4] uint64, written to), the codes and BLOCK zeros behind them, the further bits.
    `stream`: the events.
    """
    (base, out), (lowest, numbers, means), (_, states, codes, extra) = elements, maps, tokens
    groups, exponents, masks = np.empty(BLOCK, np.uint8), np.empty(BLOCK, np.uint8), np.empty(SPARSE_GROUPS, np.uint64)
    steps, listed = np.empty(BLOCK, np.int32), np.empty(BLOCK, np.uint16)
    code, further, last = np.uint64(0), 0, np.uint64(codes.size - BLOCK)
    gaps, width, bit, wrong = _first_gaps(stream, base.size, means)
    for start in range(0, base.size, BLOCK):
        before, dense = base[start : start + BLOCK], np.uint64(0)
        steps[:] = 0
        number_block(before, form, (lowest, numbers), exponents, groups)
        for at in range(0, before.size, LANES):
            others = masks_of(groups, at, masks)
            while others:
                listed[dense] = np.uint64(at) + zeros_below(others)
                dense += _ONE
                others &= others - _ONE
            due = _due(gaps, masks)
            if due and wrong == GOOD:
                bit, wrong = _events(steps, base.size, at, due, (groups, masks), stream, bit, gaps, width)
            for group in range(SPARSE_GROUPS):
                gaps[0, group] -= np.int64(ones(masks[group]))
        if wrong != GOOD:
            return wrong
        if dense:
            code, further = _tokens(steps, (groups, listed), np.int64(dense), tokens, code, further)
            if code > last:
                return BAD_STATES
        move_block(before, steps, form[2], out[start : start + BLOCK])
    if code != last or not _all(states, LOW):
        return BAD_STATES
    if not _all(gaps[0, :SPARSE_GROUPS], 0):
        return BAD_GAP
    return GOOD if gaps[0, SPARSE_GROUPS] == 0 and at_end(stream, bit) and at_end(extra, further) else BAD_END


@compiled
def _all(values: Array, wanted: Int) -> Any:
    alike = True
    for value in values:
        alike = alike and np.int64(value) == wanted
    return alike


@compiled
def _first_gaps(stream: Array, size: Int, means: Array) -> Any:
    """Read what stands before the first event. Returns `gaps` and `width`, the stream's place, and what is wrong.

    `gaps` ([2, SPARSE_GROUPS + 1] int64): of each sparse group how many of its elements, from this word on, come before
    its next change, and the mean gap; in the last place the same of big steps, counted in events. `width`: of the gaps.
    """
    gaps, width = np.zeros((2, SPARSE_GROUPS + 1), np.int64), np.zeros(SPARSE_GROUPS + 1, np.uint64)
    gaps[1, SPARSE_GROUPS] = FIRST_BIG_MEAN
    width[SPARSE_GROUPS] = rice_width(FIRST_BIG_MEAN)
    gap, length = read_gap(ahead(stream, 0), width[SPARSE_GROUPS])
    bit, wrong = length, BAD_GAP if gap > size else GOOD
    gaps[0, SPARSE_GROUPS] = gap
    for group in range(SPARSE_GROUPS):
        if means[group] >= 0:
            gap, length = read_gap(ahead(stream, bit), rice_width(means[group] << MEAN_SHIFT))
            bit += length
            if gap > size:
                wrong = BAD_GAP
            gaps[0, group] = gap
            gaps[1, group] = (means[group] << MEAN_SHIFT) + gap - means[group]
            width[group] = rice_width(gaps[1, group])
    return gaps, width, bit, wrong


@compiled
def _due(gaps: Array, masks: Array) -> Any:
    """The sparse groups of which an element of this word changes, as bits."""
    due: Int = 0
    for group in range(SPARSE_GROUPS):
        due |= np.int64(gaps[0, group] < np.int64(ones(masks[group]))) << group
    return np.uint64(due)


@compiled
def _events(
    steps: Array, size: Int, at: Int, due: Any, maps: Arrays, stream: Array, bit: Int, gaps: Array, width: Array
) -> Any:
    """Read the steps of 64 elements of a segment of `size`. Returns the stream's place and what is wrong."""
    (groups, masks), pending, until = maps, np.uint64(0), gaps[0, SPARSE_GROUPS]
    while due:
        group = np.int64(zeros_below(due))
        pending |= _ONE << place_of(masks[group], np.uint64(gaps[0, group]))
        due &= due - _ONE
    while pending:
        one = np.uint64(at) + zeros_below(pending)
        pending &= pending - _ONE
        group = groups[one]
        window = ahead(stream, bit)
        sign, step = np.int64(window & _ONE), 1
        if until == 0:
            bit, step, until = _big_step(stream, bit + 1, gaps, width)
            if step == 0 or until > size:
                return bit, BAD_STEP
            gap, length = read_gap(ahead(stream, bit), width[group])
            bit += length
        else:
            until -= 1
            gap, length = read_gap(window >> _ONE, width[group])
            bit += length + 1
        if gap > size:
            return bit, BAD_GAP
        gaps[1, group] += gap - (gaps[1, group] >> MEAN_SHIFT)
        width[group] = rice_width(gaps[1, group])
        gaps[0, group] += gap + 1
        if gaps[0, group] < np.int64(ones(masks[group])):
            pending |= _ONE << place_of(masks[group], np.uint64(gaps[0, group]))
        steps[one] = (step ^ -sign) + sign
    gaps[0, SPARSE_GROUPS] = until
    return bit, GOOD


@compiled
def _big_step(stream: Array, bit: Int, gaps: Array, width: Array) -> Any:
    """Read the size of a big step, and how many events come before the next one. Returns the stream's place, the size,
    0 if it is none, and that number."""
    bit, length = take(stream, bit, 6)
    bit, further = take(stream, bit, min(length, 31))
    until, taken = read_gap(ahead(stream, bit), width[SPARSE_GROUPS])
    gaps[1, SPARSE_GROUPS] += until - (gaps[1, SPARSE_GROUPS] >> MEAN_SHIFT)
    width[SPARSE_GROUPS] = rice_width(gaps[1, SPARSE_GROUPS])
    return bit + taken, further + 1 if length <= 31 else 0, until


@compiled
def _tokens(steps: Array, maps: Arrays, total: Int, tokens: Arrays, code: Any, bit: Int) -> Any:
    """Read the steps of a block's elements of dense groups, which are listed. Returns the places of the next code and
    of the next further bit; the states turn, so that the first is the next one's."""
    (groups, listed), (table, states, codes, extra) = maps, tokens
    x0, x1, x2, x3 = states
    whole = total - total % 4
    for at in range(0, whole, 4):
        one, two, three, four = listed[at], listed[at + 1], listed[at + 2], listed[at + 3]
        x0, code, token = take_token(x0, groups[one], table, codes, code)
        bit, steps[one] = _step(token, extra, bit)
        x1, code, token = take_token(x1, groups[two], table, codes, code)
        bit, steps[two] = _step(token, extra, bit)
        x2, code, token = take_token(x2, groups[three], table, codes, code)
        bit, steps[three] = _step(token, extra, bit)
        x3, code, token = take_token(x3, groups[four], table, codes, code)
        bit, steps[four] = _step(token, extra, bit)
    for at in range(whole, total):
        x0, code, token = take_token(x0, groups[listed[at]], table, codes, code)
        bit, steps[listed[at]] = _step(token, extra, bit)
        x0, x1, x2, x3 = x1, x2, x3, x0
    states[0], states[1], states[2], states[3] = x0, x1, x2, x3
    return code, bit


@compiled
def _step(token: Int, extra: Array, bit: Int) -> Any:
    """The place of the next further bits, and the step that a token and its own ones stand for."""
    folded = token
    if token >= DIRECT:
        length, top = 3 + ((token - DIRECT) >> 1), 2 + ((token - DIRECT) & 1)
        bit, low = take(extra, bit, length)
        folded = (top << length) | low
    return bit, (folded >> 1) ^ -(folded & 1)
