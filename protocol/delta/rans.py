"""Tokens by range asymmetric numeral systems (rANS): four interleaved states, one frequency table per group.

Duda, "Asymmetric numeral systems" (2013).
"""

from typing import Any

import numpy as np

from protocol.compiled import compiled
from protocol.delta.bits import DENSE_GROUPS, SPARSE_GROUPS, TOKENS, Array, Int

SCALE_BITS = 11
SCALE = 1 << SCALE_BITS
LOW = 1 << 16  # A state is at least LOW and less than LOW << 16 between tokens; every one begins as LOW
LANES = 4
_LIMIT_BITS = 32 - SCALE_BITS
_INVERSE_BITS = 64 - _LIMIT_BITS
_SLOT, _SPAN = np.uint64(SCALE - 1), np.uint64(SCALE_BITS)


@compiled
def frequencies(symbols: Array, total: Int) -> Any:
    """[DENSE_GROUPS, TOKENS] int64: of each group's tokens, in units of 1/SCALE, at least 1 where there is any; rows of
    groups without tokens are zero. A symbol is group · TOKENS + token."""
    # Four tables: a count that was just written is not waited for.
    counts, found = np.zeros((LANES, DENSE_GROUPS * TOKENS), np.int64), np.zeros((DENSE_GROUPS, TOKENS), np.int64)
    for at in range(total):
        counts[at & (LANES - 1), symbols[at]] += 1
    for group in range(DENSE_GROUPS):
        row = found[group]
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
    return found


@compiled
def write_tokens(symbols: Array, total: Int, table: Array, codes: Array) -> Any:
    """Code symbols, the last first, so that a reader meets the first first. `codes` (uint16, at least one more than
    `total`) is filled from its end; the first used place is returned, and the states as the reader starts with them."""
    steps = _steps(table)
    x0, x1, x2, x3, place = np.uint64(LOW), np.uint64(LOW), np.uint64(LOW), np.uint64(LOW), codes.size
    whole = total - total % LANES
    # Each state takes every fourth: those behind the last whole four are the first ones' as well.
    for at in range(total - 1, whole - 1, -1):
        if at & 3 == 2:
            x2, place = _put_token(x2, symbols[at], steps, codes, place)
        elif at & 3 == 1:
            x1, place = _put_token(x1, symbols[at], steps, codes, place)
        else:
            x0, place = _put_token(x0, symbols[at], steps, codes, place)
    for at in range(whole - LANES, -1, -LANES):
        x3, place = _put_token(x3, symbols[at + 3], steps, codes, place)
        x2, place = _put_token(x2, symbols[at + 2], steps, codes, place)
        x1, place = _put_token(x1, symbols[at + 1], steps, codes, place)
        x0, place = _put_token(x0, symbols[at], steps, codes, place)
    return place, (x0, x1, x2, x3)


@compiled
def _steps(table: Array) -> Any:
    """Of each symbol ([DENSE_GROUPS · TOKENS, 4] uint64): the least state that is too large for it, ⌈2^_INVERSE_BITS ÷
    frequency⌉, SCALE − frequency, and where its slots start."""
    steps = np.zeros((DENSE_GROUPS * TOKENS, 4), np.uint64)
    for group in range(DENSE_GROUPS):
        start = 0
        for token in range(TOKENS):
            frequency, step = table[group, token], steps[group * TOKENS + token]
            step[0], step[2], step[3] = frequency << _LIMIT_BITS, SCALE - frequency, start
            step[1] = ((1 << _INVERSE_BITS) + frequency - 1) // max(frequency, 1)
            start += frequency
    return steps


@compiled
def _put_token(state: Any, symbol: Int, steps: Array, codes: Array, place: Int) -> Any:
    """Code a symbol with a state; returns the state, and the place of the last code that was written."""
    codes[place - 1] = state & np.uint64(0xFFFF)
    large = np.int64(state >= steps[symbol, 0])
    state >>= np.uint64(16 * large)
    # Exact, as the state is less than frequency · 2^_LIMIT_BITS and a frequency at most SCALE.
    quotient = (state * steps[symbol, 1]) >> np.uint64(_INVERSE_BITS)
    return state + quotient * steps[symbol, 2] + steps[symbol, 3], place - large


@compiled
def slots(table: Array) -> Any:
    """[DENSE_GROUPS · SCALE] uint32 for the reader: token, start and frequency − 1 of each slot, in 10, 11 and 11 bits.

    Rows of `table` add up to SCALE or are zero.
    """
    made = np.zeros(DENSE_GROUPS * SCALE, np.uint32)
    for group in range(DENSE_GROUPS):
        start = 0
        for token in range(TOKENS):
            amount = table[group, token]
            for at in range(start, min(start + amount, SCALE)):
                packed = (token << 2 * SCALE_BITS) | (at - start) << SCALE_BITS | (amount - 1)
                made[group * SCALE + at] = packed
            start += amount
    return made


@compiled
def take_token(state: Any, group: Any, table: Array, codes: Array, place: Any) -> Any:
    """Read a token of a group with a state; returns the state, the next code's place (uint64) and the token. `codes`
    has room for a code at `place`, read or not."""
    slot = ((np.uint64(group) - np.uint64(SPARSE_GROUPS)) << _SPAN) + (state & _SLOT)
    packed = np.uint64(table[slot])
    state = ((packed & _SLOT) + np.uint64(1)) * (state >> _SPAN) + ((packed >> _SPAN) & _SLOT)
    filled = (state << np.uint64(16)) | np.uint64(codes[place])
    small = state < np.uint64(LOW)
    return filled if small else state, place + np.uint64(small), np.int64(packed >> np.uint64(2 * SCALE_BITS))
