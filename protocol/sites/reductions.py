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
_SHORT = 1 << 12
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
    """All products of the vectors, given as pieces, with one another: each as `dot` has it, in half of its time.

    Raises ValueError if the pieces' lengths differ."""
    pairs = [(row, column) for row in range(len(vectors)) for column in range(row, len(vectors))]
    sums: list[list[float]] = [[] for _ in pairs]
    for pieces in zip(*vectors, strict=True):
        if len({one.shape for one in pieces}) > 1:
            raise ValueError(f"pieces of {' and '.join(str(one.size) for one in pieces)} elements")
        for blocks in zip(*map(_blocks, pieces), strict=True):
            for found, value in zip(sums, _block_products(blocks, pairs), strict=True):
                found.append(value)
    made = [[0.0] * len(vectors) for _ in vectors]
    for (row, column), found in zip(pairs, sums, strict=True):
        made[row][column] = made[column][row] = _finite_sum(found)
    return made


def _block_products(blocks: Sequence[NDArray[np.float64]], pairs: Sequence[tuple[int, int]]) -> list[float]:
    """Of one block of each vector, the products of the pairs. What is left of each after some halvings is folded
    together with the others': of short arrays numpy's calls take longer than their additions."""
    rest = blocks[0].size
    while rest > _SHORT:
        rest = (rest + 1) // 2
    product, rests = np.empty_like(blocks[0]), np.empty((len(pairs), rest))
    for row, (one, other) in zip(rests, pairs, strict=True):
        np.multiply(blocks[one], blocks[other], out=product)
        row[:] = _halved(product, rest)
    found: list[float] = _halved(rests, 1)[:, 0].tolist()
    return found


def added(parts: Sequence[Products]) -> Products:
    """The products of whole vectors from those of their shards: each may be computed by somebody else."""
    return [[_finite_sum(cells) for cells in zip(*rows, strict=True)] for rows in zip(*parts, strict=True)]


def _finite_sum(values: Sequence[float]) -> float:
    return math.fsum(values) if all(map(math.isfinite, values)) else math.nan


def _blocks(values: F32) -> Iterator[NDArray[np.float64]]:
    return (values[start : start + BLOCK].astype(np.float64) for start in range(0, values.size, BLOCK))


def _folded(values: NDArray[np.float64]) -> float:
    """The sum of a block, which is used up: its upper half is added to its lower until one element is left."""
    return float(_halved(values, 1)[0])


def _halved(values: NDArray[np.float64], least: int) -> NDArray[np.float64]:
    """The same of each row, until `least` elements are left."""
    size = values.shape[-1]
    while size > least:
        half = (size + 1) // 2
        values[..., : size - half] += values[..., half:size]
        size = half
    return values[..., :size]
