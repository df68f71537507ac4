"""A model's tensors as one line of numbers cut into shards, and sums that are the same on every machine."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
Tensors = Mapping[str, F32]  # float32 tensors by name
Products = list[list[float]]  # inner products of some vectors with one another, [vectors, vectors]
_BLOCK = 1 << 16
_SHORT = 1 << 12


@dataclass(frozen=True)
class Piece:
    """Elements `start` to `end` of one tensor, in row-major order."""

    tensor: str
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


@dataclass(frozen=True)
class TensorLayout:
    """Name and shape of every tensor, sorted by name. The tensors follow one another in that order."""

    shapes: tuple[tuple[str, tuple[int, ...]], ...]

    @classmethod
    def of(cls, tensors: Tensors) -> "TensorLayout":
        """Return the layout of some tensors. Raises ValueError for one that is not float32."""
        for name, value in tensors.items():
            if value.dtype != np.float32:
                raise ValueError(f"{name} is {value.dtype}; an outer step is computed in float32")
        return cls(tuple((name, tensors[name].shape) for name in sorted(tensors)))

    @property
    def size(self) -> int:
        """Elements of all tensors."""
        return sum(math.prod(shape) for _, shape in self.shapes)

    def shards(self, count: int) -> tuple[tuple[Piece, ...], ...]:
        """Return the pieces of each of `count` shards. Shard k holds elements ⌊k·size/count⌋ to ⌊(k+1)·size/count⌋;
        empty pieces are left out, so a shard may be empty."""
        bounds = [number * self.size // count for number in range(count + 1)]
        return tuple(tuple(self._between(start, end)) for start, end in pairwise(bounds))

    def _between(self, start: int, end: int) -> Iterable[Piece]:
        at = 0
        for name, shape in self.shapes:
            size = math.prod(shape)
            first, last = max(start - at, 0), min(end - at, size)
            if first < last:
                yield Piece(name, first, last)
            at += size

    def empty(self) -> dict[str, F32]:
        """Return new tensors of these shapes, uninitialised."""
        return {name: np.empty(shape, np.float32) for name, shape in self.shapes}


def cut(tensors: Tensors, pieces: Sequence[Piece]) -> list[F32]:
    """Return views of the pieces' elements, each [piece.size] float32."""
    return [np.ascontiguousarray(tensors[one.tensor]).reshape(-1)[one.start : one.end] for one in pieces]


def paste(tensors: Tensors, pieces: Sequence[Piece], values: Sequence[F32]) -> None:
    """Write the pieces' elements into contiguous tensors."""
    for piece, value in zip(pieces, values, strict=True):
        tensors[piece.tensor].reshape(-1)[piece.start : piece.end] = value


# numpy's sums and BLAS products add in an order that depends on the processor. Here blocks of fixed length are folded
# in halves by elementwise additions in float64, in which a product of two float32 is exact, and the blocks' sums are
# added with a single rounding (math.fsum).


def moments(values: F32) -> tuple[float, float]:
    """Return mean and standard deviation of finite values; zeros if there are none."""
    if not values.size:
        return 0.0, 0.0
    mean = math.fsum(float(_halved(one, 1)[0]) for one in _blocks(values)) / values.size
    squares = []
    for block in _blocks(values):
        block -= mean
        block *= block
        squares.append(float(_halved(block, 1)[0]))
    return mean, math.sqrt(math.fsum(squares) / values.size)


def gram(vectors: Sequence[Sequence[F32]]) -> Products:
    """Return the inner products of vectors that are given as pieces, all cut alike; NaN where an element is not finite.

    Raises ValueError if the pieces' lengths differ."""
    pairs = [(row, column) for row in range(len(vectors)) for column in range(row, len(vectors))]
    sums: list[list[float]] = [[] for _ in pairs]
    for pieces in zip(*vectors, strict=True):
        if len({one.shape for one in pieces}) > 1:
            raise ValueError(f"pieces of {' and '.join(str(one.size) for one in pieces)} elements")
        for blocks in zip(*map(_blocks, pieces), strict=True):
            for parts, value in zip(sums, _block_products(blocks, pairs), strict=True):
                parts.append(value)
    products = [[0.0] * len(vectors) for _ in vectors]
    for (row, column), parts in zip(pairs, sums, strict=True):
        products[row][column] = products[column][row] = _finite_sum(parts)
    return products


def add_products(parts: Sequence[Products]) -> Products:
    """Return the products of whole vectors from those of their shards."""
    return [[_finite_sum(cells) for cells in zip(*rows, strict=True)] for rows in zip(*parts, strict=True)]


def _block_products(blocks: Sequence[NDArray[np.float64]], pairs: Sequence[tuple[int, int]]) -> list[float]:
    """Return the products of the pairs over one block. The last halvings of all pairs are done together: on short
    arrays numpy's calls take longer than their additions."""
    rest = blocks[0].size
    while rest > _SHORT:
        rest = (rest + 1) // 2
    product, rests = np.empty_like(blocks[0]), np.empty((len(pairs), rest))
    for row, (left, right) in zip(rests, pairs, strict=True):
        np.multiply(blocks[left], blocks[right], out=product)
        row[:] = _halved(product, rest)
    products: list[float] = _halved(rests, 1)[:, 0].tolist()
    return products


def _finite_sum(values: Sequence[float]) -> float:
    return math.fsum(values) if all(map(math.isfinite, values)) else math.nan


def _blocks(values: F32) -> Iterator[NDArray[np.float64]]:
    return (values[start : start + _BLOCK].astype(np.float64) for start in range(0, values.size, _BLOCK))


def _halved(values: NDArray[np.float64], least: int) -> NDArray[np.float64]:
    """Add the upper half of each row to its lower half, in place, until `least` elements are left."""
    size = values.shape[-1]
    while size > least:
        half = (size + 1) // 2
        values[..., : size - half] += values[..., half:size]
        size = half
    return values[..., :size]
