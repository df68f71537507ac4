"""The compiled part of the delta codec: floats as steps between neighbours, steps as tokens, tokens by rANS.

Range asymmetric numeral systems (Duda, 2013), four states and one frequency table per group of exponents. Decoding is
defined for any bytes: nothing is read or written outside the given arrays.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocol.compiled import compiled

Array = NDArray[Any]
Int = Any  # of Python's integers, int64 and uint64, which compiled code tells apart
Form = tuple[int, int, int]  # bits of the fraction, mask of the exponent, half of the number of all bit patterns

SEGMENT = 1 << 22  # the most elements that are coded together
GROUPS = 16
DIRECT = 16  # folded steps below it are tokens; above, a token is the length and the second bit of the step
TOKENS = DIRECT + 2 * 28
SCALE_BITS = 12
SCALE = 1 << SCALE_BITS
LOW = 1 << 16  # a state is at least LOW and less than LOW << 16 between tokens; every one begins as LOW
LANES = 4
BLOCK = 1 << 12  # elements between two looks at where the codes end
_LIMIT_BITS = 32 - SCALE_BITS
_INVERSE_BITS = 64 - _LIMIT_BITS
_SLOT, _SPAN = np.uint64(SCALE - 1), np.uint64(SCALE_BITS)
GOOD, BAD_STATES, BAD_END = range(3)


@compiled
def _ordered(bits: Int, half: Int) -> Any:
    """Turn a float's bits into its place among the 2·`half` of its format, −0 next to 0; and back."""
    return bits ^ (half - 1) if bits & half else bits


@compiled
def step_between(base: Int, new: Int, half: Int) -> Any:
    """Return by how many places a float moves, from −half to half − 1."""
    return ((_ordered(new, half) - _ordered(base, half) + half) & (2 * half - 1)) - half


@compiled
def moved(base: Int, step: Int, half: Int) -> Any:
    """Return the bits of the float that is `step` places further."""
    return _ordered((_ordered(base, half) + step) & (2 * half - 1), half)


@compiled
def list_symbols(base: Array, new: Array, form: Form, group_of: Array, symbols: Array, extra: Array) -> Any:
    """Write group · TOKENS + token of every element to `symbols`, and the further bits of large steps to `extra`
    (uint32). Return how many words of `extra` they take, also if it has not as many."""
    (fraction, mask, half), filled = form, 0
    pending, count = np.uint64(0), np.uint64(0)
    for at in range(base.size):
        before = np.int64(base[at])
        step = step_between(before, np.int64(new[at]), half)
        token = (step << 1) ^ (step >> 63)
        if token >= DIRECT:
            length = 3
            while token >> (length + 2):
                length += 1
            pending |= (np.uint64(token) & ((np.uint64(1) << np.uint64(length)) - np.uint64(1))) << count
            count += np.uint64(length)
            token = DIRECT + 2 * (length - 3) + ((token >> length) & 1)
            if count >= np.uint64(32):
                extra[min(filled, extra.size - 1)] = pending & np.uint64(0xFFFFFFFF)
                pending, count, filled = pending >> np.uint64(32), count - np.uint64(32), filled + 1
        symbols[at] = np.int64(group_of[(before >> fraction) & mask]) * TOKENS + token
    extra[min(filled, extra.size - 1)] = pending
    return filled + np.int64(count > np.uint64(0))


@compiled
def frequencies(symbols: Array) -> Any:
    """Return [GROUPS, TOKENS] int64, each group's tokens in units of 1/SCALE: at least 1 where there is any."""
    # Four tables: a count that was just written is not waited for.
    counts, tallies = np.zeros((4, GROUPS * TOKENS), np.int64), np.zeros((GROUPS, TOKENS), np.int64)
    for at in range(symbols.size):
        counts[at & 3, symbols[at]] += 1
    for group in range(GROUPS):
        row = tallies[group]
        for token in range(TOKENS):
            symbol = group * TOKENS + token
            row[token] = counts[0, symbol] + counts[1, symbol] + counts[2, symbol] + counts[3, symbol]
        amount = row.sum()
        if amount == 0:
            continue
        for token in range(TOKENS):
            if row[token]:
                row[token] = max(1, (row[token] * SCALE + amount // 2) // amount)
        while row.sum() != SCALE:
            excess = row.sum() - SCALE
            most = row.argmax()
            row[most] -= min(excess, row[most] // 2) if excess > 0 else excess
    return tallies


@compiled
def write_tokens(symbols: Array, table: Array, codes: Array) -> Any:
    """Code symbols, the last first. `codes` (uint16, at least one more than symbols) is filled from its end. Return the
    first used place, and the states as the reader starts with them."""
    steps = _steps(table)
    x0, x1, x2, x3, cursor = np.uint64(LOW), np.uint64(LOW), np.uint64(LOW), np.uint64(LOW), codes.size
    total = symbols.size
    whole = total - total % LANES
    # Each state takes every fourth: those behind the last whole four are the first ones' as well.
    for at in range(total - 1, whole - 1, -1):
        if at & 3 == 2:
            x2, cursor = _put_token(x2, symbols[at], steps, codes, cursor)
        elif at & 3 == 1:
            x1, cursor = _put_token(x1, symbols[at], steps, codes, cursor)
        else:
            x0, cursor = _put_token(x0, symbols[at], steps, codes, cursor)
    for at in range(whole - LANES, -1, -LANES):
        x3, cursor = _put_token(x3, symbols[at + 3], steps, codes, cursor)
        x2, cursor = _put_token(x2, symbols[at + 2], steps, codes, cursor)
        x1, cursor = _put_token(x1, symbols[at + 1], steps, codes, cursor)
        x0, cursor = _put_token(x0, symbols[at], steps, codes, cursor)
    return cursor, (x0, x1, x2, x3)


@compiled
def _steps(table: Array) -> Any:
    """Return of each symbol ([GROUPS · TOKENS, 4] uint64): the least state that is too large for it, ⌈2^_INVERSE_BITS ÷
    frequency⌉, SCALE − frequency, and where its slots start."""
    steps = np.zeros((GROUPS * TOKENS, 4), np.uint64)
    for group in range(GROUPS):
        start = 0
        for token in range(TOKENS):
            frequency, step = table[group, token], steps[group * TOKENS + token]
            step[0], step[2], step[3] = frequency << _LIMIT_BITS, SCALE - frequency, start
            step[1] = ((1 << _INVERSE_BITS) + frequency - 1) // max(frequency, 1)
            start += frequency
    return steps


@compiled
def _put_token(state: Any, symbol: Int, steps: Array, codes: Array, cursor: Int) -> Any:
    """Code a symbol with a state; return the state, and the place of the last code that was written."""
    codes[cursor - 1] = state & np.uint64(0xFFFF)
    large = np.int64(state >= steps[symbol, 0])
    state >>= np.uint64(16 * large)
    # Exact, as the state is less than frequency · 2^_LIMIT_BITS and a frequency at most SCALE.
    quotient = (state * steps[symbol, 1]) >> np.uint64(_INVERSE_BITS)
    return state + quotient * steps[symbol, 2] + steps[symbol, 3], cursor - large


@compiled
def slots(table: Array) -> Any:
    """Return [GROUPS · SCALE] uint32 for the reader: token, place in its span and frequency − 1 of each slot, in 8, 12
    and 12 bits. Rows of `table` add up to SCALE or are zero."""
    slots = np.zeros(GROUPS * SCALE, np.uint32)
    for group in range(GROUPS):
        start = 0
        for token in range(TOKENS):
            amount = table[group, token]
            for at in range(start, min(start + amount, SCALE)):
                slots[group * SCALE + at] = (token << 2 * SCALE_BITS) | (at - start) << SCALE_BITS | (amount - 1)
            start += amount
    return slots


@compiled
def decode(base: Array, out: Array, form: Form, group_of: Array, table: Array, states: Array, codes: Any) -> Any:
    """Write the new elements to `out`; return GOOD, or what is wrong with the code. `table`: of `slots`; `states`: [4]
    uint64; `codes`: the codes (uint16) with BLOCK zeros behind them, and the further bits (uint32) with two."""
    words, extra = codes
    x0, x1, x2, x3 = states
    cursor, bit, last = np.uint64(0), 0, np.uint64(words.size - BLOCK)
    for start in range(0, base.size, BLOCK):
        end = min(start + BLOCK, base.size)
        whole = end - (end - start) % LANES
        for at in range(start, whole, LANES):
            x0, cursor, bit, out[at] = _element(x0, base[at], form, group_of, table, words, cursor, extra, bit)
            x1, cursor, bit, out[at + 1] = _element(x1, base[at + 1], form, group_of, table, words, cursor, extra, bit)
            x2, cursor, bit, out[at + 2] = _element(x2, base[at + 2], form, group_of, table, words, cursor, extra, bit)
            x3, cursor, bit, out[at + 3] = _element(x3, base[at + 3], form, group_of, table, words, cursor, extra, bit)
        for at in range(whole, end):
            x0, cursor, bit, out[at] = _element(x0, base[at], form, group_of, table, words, cursor, extra, bit)
            x0, x1, x2, x3 = x1, x2, x3, x0
        if cursor > last:
            return BAD_STATES
    if cursor != last or x0 != LOW or x1 != LOW or x2 != LOW or x3 != LOW:
        return BAD_STATES
    left = extra.size - 2 - ((bit + 31) >> 5)
    return GOOD if left == 0 and (bit & 31 == 0 or extra[bit >> 5] >> np.uint32(bit & 31) == 0) else BAD_END


@compiled
def _element(
    state: Any, base: Int, form: Form, group_of: Array, table: Array, words: Array, cursor: Any, extra: Array, bit: Int
) -> Any:
    """Read one element: the state, the places of the next code and further bit, and the element."""
    before = np.int64(base)
    group = np.uint64(group_of[(before >> form[0]) & form[1]])
    packed = np.uint64(table[(group << _SPAN) + (state & _SLOT)])
    state = ((packed & _SLOT) + np.uint64(1)) * (state >> _SPAN) + ((packed >> _SPAN) & _SLOT)
    filled = (state << np.uint64(16)) | np.uint64(words[cursor])
    small = state < np.uint64(LOW)
    state, cursor, folded = filled if small else state, cursor + np.uint64(small), np.int64(packed >> (_SPAN + _SPAN))
    if folded >= DIRECT:
        length, top = 3 + ((folded - DIRECT) >> 1), 2 + ((folded - DIRECT) & 1)
        word = min(bit >> 5, extra.size - 2)
        pair = np.uint64(extra[word]) | np.uint64(extra[word + 1]) << np.uint64(32)
        low = np.int64((pair >> np.uint64(bit & 31)) & ((np.uint64(1) << np.uint64(length)) - np.uint64(1)))
        folded, bit = (top << length) | low, bit + length
    return state, cursor, bit, moved(before, (folded >> 1) ^ -(folded & 1), form[2])
