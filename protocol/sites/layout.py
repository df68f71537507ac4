"""A model's tensors as one line of numbers, cut into shards of equal length: what a shard holds follows from shapes."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
Tensors = Mapping[str, F32]
"""float32 tensors by name."""


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
    """`shapes`: name and shape of every tensor, sorted by name. The tensors follow one another in that order."""

    shapes: tuple[tuple[str, tuple[int, ...]], ...]

    @classmethod
    def of(cls, tensors: Tensors) -> "TensorLayout":
        """Raises ValueError for a tensor that is not float32."""
        for name, value in tensors.items():
            if value.dtype != np.float32:
                raise ValueError(f"{name} is {value.dtype}; an outer step is computed in float32")
        return cls(tuple((name, tensors[name].shape) for name in sorted(tensors)))

    @property
    def size(self) -> int:
        """Elements of all tensors."""
        return sum(math.prod(shape) for _, shape in self.shapes)

    def shards(self, count: int) -> tuple[tuple[Piece, ...], ...]:
        """Shard k of `count` holds the elements from ⌊k·size/count⌋ to ⌊(k+1)·size/count⌋; empty pieces are left out,
        a shard may be empty."""
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

    def joined(self, shards: Sequence[Sequence[Piece]], values: Sequence[Sequence[F32]]) -> dict[str, F32]:
        """The tensors whose pieces `values` are. The shards must be all of one cut."""
        made = {name: np.empty(shape, np.float32) for name, shape in self.shapes}
        flat = {name: one.reshape(-1) for name, one in made.items()}
        for pieces, parts in zip(shards, values, strict=True):
            for piece, part in zip(pieces, parts, strict=True):
                flat[piece.tensor][piece.start : piece.end] = part
        return made


def cut(tensors: Tensors, pieces: Sequence[Piece]) -> list[F32]:
    """The elements of each piece, [piece.size] float32."""
    return [np.ascontiguousarray(tensors[one.tensor]).reshape(-1)[one.start : one.end] for one in pieces]
