"""Sums over many floats that come out the same to the bit on every machine.

numpy's own sums and BLAS's products add in an order that depends on the processor. Here blocks of fixed length are
folded in halves by elementwise additions in float64, in which a product of two float32 is exact, and the blocks' sums
are added with one rounding.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from protocol.sites.layout import F32

BLOCK = 1 << 16
Products = list[list[float]]
"""Of some vectors with one another, [vectors, vectors]."""


def moments(values: F32) -> tuple[float, float]:
    """Mean and standard deviation of finite values; zeros of none."""
    if not values.size:
        return 0.0, 0.0
    mean = math.fsum(_folded(one) for one in _blocks(values)) / values.size
    squares = []
    for block in _blocks(values):
        block -= mean
        block *= block
        squares.append(_folded(block))
    return mean, math.sqrt(math.fsum(squares) / values.size)


def dot(one: Sequence[F32], other: Sequence[F32]) -> float:
    """Σ one·other over the pieces of two vectors that are cut alike; NaN if an element is infinite or NaN.

    Raises ValueError if the pieces' lengths differ."""
    sums: list[float] = []
    for left, right in zip(one, other, strict=True):
        if left.shape != right.shape:
            raise ValueError(f"pieces of {left.size} and {right.size} elements")
        for number, block in enumerate(_blocks(left)):
            block *= right[number * BLOCK : (number + 1) * BLOCK]
            sums.append(_folded(block))
    return math.fsum(sums) if all(map(math.isfinite, sums)) else math.nan


def gram(vectors: Sequence[Sequence[F32]]) -> Products:
    """All products of the vectors, given as pieces, with one another."""
    made = [[0.0] * len(vectors) for _ in vectors]
    for row, one in enumerate(vectors):
        for column in range(row, len(vectors)):
            made[row][column] = made[column][row] = dot(one, vectors[column])
    return made


def added(parts: Sequence[Products]) -> Products:
    """The products of whole vectors from those of their shards: each may be computed by somebody else."""
    return [[_finite_sum(cells) for cells in zip(*rows, strict=True)] for rows in zip(*parts, strict=True)]


def _finite_sum(values: Sequence[float]) -> float:
    return math.fsum(values) if all(map(math.isfinite, values)) else math.nan


def _blocks(values: F32) -> Iterator[NDArray[np.float64]]:
    return (values[start : start + BLOCK].astype(np.float64) for start in range(0, values.size, BLOCK))


def _folded(values: NDArray[np.float64]) -> float:
    """The sum of a block, which is used up: its upper half is added to its lower until one element is left."""
    size = values.size
    while size > 1:
        half = (size + 1) // 2
        values[: size - half] += values[half:size]
        size = half
    return float(values[0])
