"""Tokens by range asymmetric numeral systems (rANS): four interleaved states, a table of frequencies for each group."""

from typing import Any

import numpy as np

from protocol.compiled import compiled
from protocol.delta.bits import Array, Int
from protocol.delta.layout import DENSE_GROUPS, TOKENS

SCALE_BITS = 11
SCALE = 1 << SCALE_BITS
LOW = 1 << 16
"""A state is at least LOW and less than LOW << 16 between tokens; every one begins as LOW."""
LANES = 4


@compiled
def frequencies(tokens: Array, tags: Array, total: Int) -> Any:
    """[DENSE_GROUPS, TOKENS] int64: of each group's tokens, in units of 1/SCALE, at least 1 where there is any; rows of
    groups without tokens are zero."""
    found = np.zeros((DENSE_GROUPS, TOKENS), np.int64)
    for at in range(total):
        found[tags[at], tokens[at]] += 1
    for group in range(DENSE_GROUPS):
        row = found[group]
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
def write_tokens(tokens: Array, tags: Array, total: Int, table: Array, words: Array) -> Any:
    """Code tokens, the last first, so that a reader meets the first first. `words` (uint16) is filled from its end; the
    first used place is returned, negative if there is not room, and the LANES states as the reader starts with them."""
    starts = np.zeros((DENSE_GROUPS, TOKENS), np.uint64)
    for group in range(DENSE_GROUPS):
        for token in range(1, TOKENS):
            starts[group, token] = starts[group, token - 1] + np.uint64(table[group, token - 1])
    states = np.full(LANES, LOW, np.uint64)
    place = words.size
    for at in range(total - 1, -1, -1):
        group, token, lane = tags[at], tokens[at], at & (LANES - 1)
        frequency = np.uint64(table[group, token])
        state = states[lane]
        if state >= frequency << np.uint64(32 - SCALE_BITS):
            place -= 1
            if place < 0:
                return place, states
            words[place] = state & np.uint64(0xFFFF)
            state >>= np.uint64(16)
        quotient = state // frequency
        states[lane] = (quotient << np.uint64(SCALE_BITS)) + state - quotient * frequency + starts[group, token]
    return place, states


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
