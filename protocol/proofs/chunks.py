"""Proof and comparison of one chunk after another, from selection to polynomial, without leaving compiled code."""

import numpy as np
import numpy.typing as npt

from protocol.compiled import compiled
from protocol.proofs.codec import MODULUS_MIN, PRIME, TOP_K
from protocol.proofs.drift import BUCKETS, MOST_STEPS
from protocol.proofs.field import QUAD, STEP, Reals, evaluate, interpolate, powers_of, reduced
from protocol.proofs.select import PART, PARTIAL_SORT_FROM, ROOM, Items, Words, largest, untied

INFINITY_BITS = 0x7F80
MANTISSA_BITS = 7
MANTISSAS = 1 << MANTISSA_BITS
GUESS_BELOW = 4

Integers = npt.NDArray[np.int64]


@compiled
def prove_rows(words: Words, width: int, inverse: Reals, table: Integers) -> int:
    """table [n, 129] becomes modulus and coefficients of each of n chunks of `width` values.

    Returns the number of a chunk with NaN, or −1: NaN patterns exceed all others, so the largest values show them.
    """
    spots, items = np.empty((2, PART), dtype=np.int64), np.empty(max(ROOM, PARTIAL_SORT_FROM), dtype=np.int64)
    taken = np.full(PRIME, -1, dtype=np.int64)
    points, values, found = np.empty(TOP_K), np.empty(TOP_K), np.empty(TOP_K)
    powers, room = np.empty((STEP + 1, TOP_K)), np.empty((6, TOP_K + QUAD + 1))
    for row in range(len(words)):
        largest(words[row], width, spots, items)
        modulus = _injective_modulus(items, taken, row * PRIME)
        for place in range(TOP_K):
            at = items[place] & 0xFFFFFFFF
            if items[place] >> 32 > INFINITY_BITS:
                return row
            points[place] = reduced(float(at % modulus))
            values[place] = float((words[row, at >> 2] >> np.uint64((at & 3) << 4)) & np.uint64(0xFFFF))
        powers_of(points, powers)
        interpolate(values, powers, inverse, room, found)
        table[row, 0] = modulus
        for power in range(TOP_K):
            residue = int(found[power])
            table[row, 1 + power] = residue + PRIME if residue < 0 else residue
    return -1


@compiled
def _injective_modulus(items: Items, taken: Integers, stamp: int) -> int:
    """The largest modulus ≤ 65497 that keeps the indices of 128 items distinct.

    taken: int64 [65497] below `stamp`; marks that this call leaves are from `stamp` to `stamp` + 65496.
    """
    for modulus in range(PRIME, MODULUS_MIN - 1, -1):
        mark, distinct = stamp + PRIME - modulus, True
        for place in range(TOP_K):
            residue = (items[place] & 0xFFFFFFFF) % modulus
            if taken[residue] == mark:
                distinct = False
                break
            taken[residue] = mark
        if distinct:
            return modulus
    return MODULUS_MIN


@compiled
def compare_rows(
    words: Words, features: int, moduli: Integers, coefficients: Reals, counts: Integers, means: Reals, drift: Integers
) -> int:
    """How far n claimed polynomials are from n chunks of hidden states with so many features.

    moduli [n], coefficients [n, 128] (residues) → counts [n, 2]: mismatching exponents, positions compared; means [n]:
    mean difference of mantissas; drift [n, 2, BUCKETS], zeros before: signed differences and values by bucket of
    features (protocol/proofs/drift.py). Returns the number of a chunk with NaN, or −1.
    """
    spots, items, cut = np.empty((2, PART), dtype=np.int64), np.empty(ROOM, dtype=np.int64), 0
    points, found, powers = np.zeros(TOP_K), np.empty(TOP_K), np.empty((STEP + 1, TOP_K))
    for row in range(len(words)):
        # Neighbouring chunks have similar cuts; one that is a few steps of bf16 lower is rarely too high.
        positions, cut = untied(words[row], max(cut - GUESS_BELOW, 0), spots, items)
        for place in range(max(positions, 1)):
            if items[place] >> 32 > INFINITY_BITS:
                return row
            points[place] = reduced(float((items[place] & 0xFFFFFFFF) % moduli[row]))
        powers_of(points, powers)
        evaluate(coefficients[row], powers, found)
        matched, total = 0, 0
        for place in range(positions):
            residue = int(found[place])
            claimed = (residue + PRIME if residue < 0 else residue) & 0x7FFF
            own, at = items[place] >> 32, items[place] & 0xFFFFFFFF
            steps = min(max(claimed - own, -MOST_STEPS), MOST_STEPS)
            negative = (words[row, at >> 2] >> np.uint64(((at & 3) << 4) + 15)) & np.uint64(1)
            drift[row, 0, at % features % BUCKETS] += -steps if negative else steps
            drift[row, 1, at % features % BUCKETS] += 1
            if claimed >> MANTISSA_BITS == own >> MANTISSA_BITS:
                matched, total = matched + 1, total + abs(claimed - own)
        counts[row, 0] = positions - matched
        counts[row, 1] = positions
        means[row] = total / matched if matched else MANTISSAS if positions else 0
    return -1
