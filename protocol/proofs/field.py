"""Polynomials over GF(65497), many at a time, in exact float64 arithmetic.

Residues are symmetric, |r| ≤ 32749, so products stay below 2³¹ and sums of 256 of them below 2³⁹, far from 2⁵³.
Evaluation splits powers into baby and giant steps; interpolation takes the subproduct tree (von zur Gathen & Gerhard,
chapter 10) and power sums, with FFT products where they are long (rounding error below 1e-3, so rounding is exact).
Axes are laid out so that the innermost is long: torch's loops over short inner axes are ten times slower.
"""

import math
import threading
from functools import cache

import torch

from protocol.proofs.codec import PRIME, TOP_K

BABY = 16
GIANT = TOP_K // BABY
FFT_FROM = 16


_buffers = threading.local()


def _scratch(name: str, *shape: int) -> torch.Tensor:
    """An uninitialised float64 tensor that this thread's next call with the same name overwrites.

    Fresh megabytes from the allocator are unmapped pages: faulting them in costs more than the arithmetic.
    """
    size = math.prod(shape)
    buffer: torch.Tensor | None = getattr(_buffers, name, None)
    if buffer is None or buffer.numel() < size:
        # Tensors made in inference mode could not be written outside it later.
        with torch.inference_mode(False):
            buffer = torch.empty(size, dtype=torch.float64)
        setattr(_buffers, name, buffer)
    return buffer[:size].view(shape)


def reduce_(values: torch.Tensor) -> torch.Tensor:
    """Integers in float64, |value| < 2⁵¹, to symmetric residues, in place."""
    quotient = torch.mul(values, 1.0 / PRIME, out=_scratch("quotient", *values.shape)).round_()
    return values.add_(quotient, alpha=-float(PRIME))


def canonical(values: torch.Tensor) -> torch.Tensor:
    """Symmetric residues in float64 to int64 residues 0 … 65496."""
    whole = values.long()
    return whole.add_(whole.lt(0), alpha=PRIME)


@cache
def inverses() -> torch.Tensor:
    """Float64 [65497]: entry a, from the end if negative, is the symmetric residue 1/a; entry 0 is 0."""
    with torch.inference_mode(False):
        return _inverse_table(_generator())


def _inverse_table(generator: int) -> torch.Tensor:
    powers = [1] * (PRIME - 1)
    for exponent in range(1, PRIME - 1):
        powers[exponent] = powers[exponent - 1] * generator % PRIME
    elements = torch.tensor(powers)
    table = torch.zeros(PRIME, dtype=torch.float64)
    # The inverse of g^e is g^(p−1−e).
    table[elements] = torch.roll(elements.flip(0), 1).to(torch.float64)
    return reduce_(table)


def _generator() -> int:
    order, factors, rest = PRIME - 1, set(), PRIME - 1
    for prime in range(2, 257):
        while rest % prime == 0:
            factors.add(prime)
            rest //= prime
    factors.update({rest} - {1})
    return next(g for g in range(2, PRIME) if all(pow(g, order // f, PRIME) != 1 for f in factors))


def _ladder(name: str, base: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """x⁰ … x^(count−1) as [n, count, k] for base x [n, k], and x^count; count is a power of two. Scratch."""
    out = _scratch(name, base.shape[0], count, base.shape[1])
    out[:, 0] = 1.0
    out[:, 1] = base
    done, factor = 2, reduce_(base * base)
    while done < count:
        torch.mul(out[:, :done], factor.unsqueeze(1), out=out[:, done : 2 * done])
        reduce_(out[:, done : 2 * done])
        done, factor = 2 * done, reduce_(factor * factor)
    return out, factor


def _steps(points: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """x⁰ … x¹⁵ as [n, 16, k] and x⁰, x¹⁶, … x¹¹² as [n, 8, k], in scratch."""
    baby, step = _ladder("baby", points, BABY)
    return baby, _ladder("giant", step, GIANT)[0]


def _values(coefficients: torch.Tensor, baby: torch.Tensor, giant: torch.Tensor) -> torch.Tensor:
    parts = _scratch("parts", baby.shape[0], GIANT, baby.shape[2])
    torch.bmm(coefficients.reshape(-1, GIANT, BABY), baby, out=parts)
    return reduce_(reduce_(parts).mul_(giant).sum(1))


def evaluate(coefficients: torch.Tensor, points: torch.Tensor) -> torch.Tensor:
    """Values of n polynomials [n, 128] (ascending powers) at k points each [n, k]: symmetric residues [n, k]."""
    return _values(coefficients, *_steps(points))


def _pairs(lower: torch.Tensor) -> torch.Tensor:
    """Monic polynomials of degree h, lower parts [n, h, m], to the products of i and i + m/2: [n, 2h, m/2].

    (z^h + a)(z^h + b) = z^2h + z^h (a + b) + ab.
    """
    size, half = lower.shape[1], lower.shape[2] // 2
    left, right = lower[:, :, :half], lower[:, :, half:]
    product = torch.zeros(lower.shape[0], 2 * size, half, dtype=torch.float64)
    torch.add(left, right, out=product[:, size:])
    for shift in range(size):
        product[:, shift : shift + size].addcmul_(left, right[:, shift : shift + 1])
    return reduce_(product)


def _pairs_fft(lower: torch.Tensor) -> torch.Tensor:
    """The same for lower parts laid out as [n, m, h]: [n, m/2, 2h]."""
    half, size = lower.shape[1] // 2, lower.shape[2]
    spectra = torch.fft.rfft(lower, n=2 * size)
    product = torch.fft.irfft(spectra[:, :half] * spectra[:, half:], n=2 * size).round_()
    product[:, :, size:].add_(lower[:, :half]).add_(lower[:, half:])
    return reduce_(product)


def master(points: torch.Tensor) -> torch.Tensor:
    """Lower coefficients [n, 128] of M(z) = ∏ (z − x_i), monic of degree 128, by the subproduct tree."""
    lower = points.neg().unsqueeze(1)
    while lower.shape[1] < FFT_FROM:
        lower = _pairs(lower)
    lower = lower.transpose(1, 2).contiguous()
    while lower.shape[2] < TOP_K:
        lower = _pairs_fft(lower)
    return lower[:, 0]


def interpolate(points: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Coefficients [n, 128] of the polynomials through (points, values), each [n, 128], points distinct per row.

    P(z) = Σ w_i · M(z) / (z − x_i) with w_i = values_i / M'(x_i) (Lagrange). Read backwards that is the product of
    M's reversal and the series Σ w_i / (1 − x_i z), whose coefficients are the power sums Σ w_i x_i^k.
    Integers in float64 in, symmetric residues out.
    """
    points = reduce_(points.clone())
    lower = master(points)
    derivative = torch.empty_like(lower)
    torch.mul(lower[:, 1:], torch.arange(1, TOP_K, dtype=torch.float64), out=derivative[:, :-1])
    derivative[:, -1] = TOP_K
    baby, giant = _steps(points)
    slopes = _values(reduce_(derivative), baby, giant)
    weights = reduce_(inverses()[slopes.long()].mul_(values))
    weighted = reduce_(giant.mul_(weights.unsqueeze(1)))
    sums = reduce_(torch.bmm(weighted, baby.transpose(1, 2))).view(-1, TOP_K)
    backwards = torch.ones_like(lower)
    backwards[:, 1:] = lower[:, 1:].flip(1)
    spectrum = torch.fft.rfft(sums, n=2 * TOP_K).mul_(torch.fft.rfft(backwards, n=2 * TOP_K))
    product = torch.fft.irfft(spectrum, n=2 * TOP_K)[:, :TOP_K].round_()
    return reduce_(product.flip(1))
