"""Polynomials of degree 127 over GF(65497) at 128 points, in exact float64 arithmetic.

Residues are symmetric, |r| ≤ 32748, so products stay below 2³⁰ and sums of 128 of them below 2³⁷, far from 2⁵³: a sum
is reduced once. Loops run over points or coefficients side by side, for the compiler to make vector instructions of.
"""

from functools import cache

import numpy as np
import numpy.typing as npt

from protocol.compiled import compiled, compiled_sum
from protocol.proofs.codec import PRIME, TOP_K

STEP = 8
"""Powers of the points that are kept side by side; between two reductions a polynomial is evaluated so far."""

QUAD = 4
P = float(PRIME)
INVERSE_P = 1.0 / P
# Adding and taking away 1.5 · 2⁵² rounds to the nearest integer.
ROUNDER = 1.5 * 2.0**52

Reals = npt.NDArray[np.float64]


@compiled
def reduced(value: float) -> float:
    """The symmetric residue of an integer, |value| < 2⁵¹."""
    return value - P * ((value * INVERSE_P + ROUNDER) - ROUNDER)


@compiled
def powers_of(points: Reals, powers: Reals) -> None:
    """points [128] (symmetric residues) → powers [9, 128]: x⁰ … x⁸."""
    for at in range(TOP_K):
        powers[0, at] = 1.0
        powers[1, at] = points[at]
    for power in range(2, STEP + 1):
        for at in range(TOP_K):
            powers[power, at] = reduced(powers[power - 1, at] * points[at])


@compiled
def evaluate(coefficients: Reals, powers: Reals, out: Reals) -> None:
    """Values of the polynomial with `coefficients` [128] (ascending powers) at 128 points: out [128], residues."""
    for at in range(TOP_K):
        out[at] = 0.0
    for start in range(TOP_K - STEP, -1, -STEP):
        a, b, c, d = coefficients[start], coefficients[start + 1], coefficients[start + 2], coefficients[start + 3]
        e, f, g, h = coefficients[start + 4], coefficients[start + 5], coefficients[start + 6], coefficients[start + 7]
        for at in range(TOP_K):
            low = a + b * powers[1, at] + c * powers[2, at] + d * powers[3, at]
            high = e * powers[4, at] + f * powers[5, at] + g * powers[6, at] + h * powers[7, at]
            out[at] = reduced(out[at] * powers[8, at] + low + high)


@compiled
def reversed_master(points: Reals, out: Reals, spare: Reals) -> None:
    """∏ (1 − x_i z) over 128 points: out [133] holds four zeros and its 129 coefficients. spare: [133].

    Four factors at a time, so that a coefficient is reduced 32 times instead of 128.
    """
    out[:] = 0.0
    spare[:] = 0.0
    out[QUAD] = 1.0
    for start in range(0, TOP_K, 2 * QUAD):
        _times_four(points[start : start + QUAD], out, spare, start)
        _times_four(points[start + QUAD : start + 2 * QUAD], spare, out, start + QUAD)


@compiled
def _times_four(points: Reals, source: Reals, target: Reals, degree: int) -> None:
    """target = source · ∏ (1 − x z) over four points; `degree` is source's."""
    left, right = -points[0] - points[1], -points[2] - points[3]
    both_left, both_right = reduced(points[0] * points[1]), reduced(points[2] * points[3])
    first, second = reduced(left + right), reduced(left * right + both_left + both_right)
    third, fourth = reduced(left * both_right + right * both_left), reduced(both_left * both_right)
    for at in range(QUAD, 2 * QUAD + degree + 1):
        near = source[at] + first * source[at - 1] + second * source[at - 2]
        target[at] = reduced(near + third * source[at - 3] + fourth * source[at - 4])


@compiled_sum
def _dot(left: Reals, right: Reals) -> float:
    total = 0.0
    for at in range(TOP_K):
        total += left[at] * right[at]
    return total


@compiled
def interpolate(values: Reals, powers: Reals, inverse: Reals, room: Reals, out: Reals) -> None:
    """Coefficients [128] (symmetric residues) of the polynomial through 128 distinct points.

    values: integers [128], |v| ≤ 2¹⁶. powers: of the points. inverse: `inverses()`. room: [6, 133], overwritten.

    P(z) = Σ w_i · M(z) / (z − x_i) with M(z) = ∏ (z − x_i) and w_i = values_i / M'(x_i) (Lagrange). Read backwards that
    is the product of M's reversal and the series Σ w_i / (1 − x_i z), whose coefficients are the power sums Σ w_i x_iᵏ.
    """
    master, spare, slopes, weights, sums, product = room[0], room[1], room[2], room[3], room[4], room[5]
    reversed_master(powers[1], master, spare)
    for at in range(TOP_K):
        spare[at] = reduced((at + 1) * master[QUAD + TOP_K - 1 - at])
    evaluate(spare, powers, slopes)
    for at in range(TOP_K):
        weights[at] = reduced(values[at] * inverse[int(slopes[at])])
    for start in range(0, TOP_K, STEP):
        for power in range(STEP):
            sums[start + power] = reduced(_dot(weights, powers[power]))
        for at in range(TOP_K):
            weights[at] = reduced(weights[at] * powers[STEP, at])
    product[:] = 0.0
    for shift in range(TOP_K):
        for at in range(shift, TOP_K):
            product[at] += sums[shift] * master[QUAD + at - shift]
    for at in range(TOP_K):
        out[TOP_K - 1 - at] = reduced(product[at])


@cache
def inverses() -> Reals:
    """Float64 [65497]: entry a, from the end if negative, is the symmetric residue 1/a; entry 0 is 0."""
    table = np.zeros(PRIME)
    _invert(table)
    return table


@compiled
def _invert(table: Reals) -> None:
    """1/a = −⌊p/a⌋ · 1/(p mod a)."""
    table[1] = 1.0
    for a in range(2, PRIME):
        table[a] = reduced(-(PRIME // a) * table[PRIME % a])
