"""A model's tensors as shards, exact sums over them, and pseudo-gradients as bytes: float32, one byte per element, or
only the changes that bfloat16 can see.

Each shard of a payload begins with a hash of run, outer step, base, worker and number, so a copied payload is not valid
as somebody else's, and a copier would have to sign hashes of bytes that it can make only once the time to sign is over.
What strangers send is bounded before anything is allocated, and what comes out is finite."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from diloco.config import Mode
from protocol.delta.codes import SEGMENT
from protocol.delta.delta import DeltaError, FieldReader, decode_tensor, encode_tensor, varint
from protocol.errors import IntegrityError

F32 = NDArray[np.float32]
Tensors = Mapping[str, F32]  # float32 tensors by name
Products = list[list[float]]  # inner products of some vectors with one another, [vectors, vectors]
BINS = 256
_BLOCK = 1 << 16
_SIGMAS = 3.0
_PLAIN, _CODES, _PACKED = range(3)
_BOOK_BYTES = 4 * BINS
_MAGIC = b"MUSTERD1"
_HEAD_BYTES = len(_MAGIC) + 32


class MalformedContribution(IntegrityError):
    """A contribution, or a part of its payload, that no honest worker makes."""


# A model's tensors as one line of numbers that is cut into shards.


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
        return sum(math.prod(shape) for _, shape in self.shapes)

    def shards(self, count: int) -> tuple[tuple[Piece, ...], ...]:
        """Return the pieces of each of `count` shards. Shard k holds elements ⌊k·size/count⌋ to ⌊(k+1)·size/count⌋;
        empty pieces are left out, so a shard may be empty."""

        def between(start: int, end: int) -> Iterator[Piece]:
            at = 0
            for name, shape in self.shapes:
                size = math.prod(shape)
                first, last = max(start - at, 0), min(end - at, size)
                if first < last:
                    yield Piece(name, first, last)
                at += size

        bounds = [number * self.size // count for number in range(count + 1)]
        return tuple(tuple(between(start, end)) for start, end in pairwise(bounds))

    def empty(self) -> dict[str, F32]:
        """Return new tensors of these shapes, uninitialised."""
        return {name: np.empty(shape, np.float32) for name, shape in self.shapes}


def cut(tensors: Tensors, pieces: Sequence[Piece]) -> list[F32]:
    """Return views of the pieces' elements, each [piece.size] float32."""
    return [np.ascontiguousarray(tensors[piece.tensor]).reshape(-1)[piece.start : piece.end] for piece in pieces]


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
    mean = math.fsum(_folded(block) for block in _blocks(values)) / values.size
    squares = []
    for block in _blocks(values):
        block -= mean
        block *= block
        squares.append(_folded(block))
    return mean, math.sqrt(math.fsum(squares) / values.size)


def gram(vectors: Sequence[Sequence[F32]]) -> Products:
    """Return the inner products of vectors that are given as pieces, all cut alike; NaN where an element is not finite.
    Raises ValueError if the pieces' lengths differ."""
    sums: dict[tuple[int, int], list[float]] = {
        pair: [] for pair in combinations_with_replacement(range(len(vectors)), 2)
    }
    for pieces in zip(*vectors, strict=True):
        if len({piece.shape for piece in pieces}) > 1:
            raise ValueError(f"pieces of {' and '.join(str(piece.size) for piece in pieces)} elements")
        for blocks in zip(*map(_blocks, pieces), strict=True):
            for (row, column), parts in sums.items():
                parts.append(_folded(blocks[row] * blocks[column]))
    products = [[0.0] * len(vectors) for _ in vectors]
    for (row, column), parts in sums.items():
        products[row][column] = products[column][row] = _finite_sum(parts)
    return products


def add_products(parts: Sequence[Products]) -> Products:
    """Return the products of whole vectors from those of their shards."""
    return [[_finite_sum(cells) for cells in zip(*rows, strict=True)] for rows in zip(*parts, strict=True)]


def _finite_sum(values: Sequence[float]) -> float:
    return math.fsum(values) if all(map(math.isfinite, values)) else math.nan


def _blocks(values: F32) -> Iterator[NDArray[np.float64]]:
    return (values[start : start + _BLOCK].astype(np.float64) for start in range(0, values.size, _BLOCK))


def _folded(values: NDArray[np.float64]) -> float:
    """Return the sum: the upper half is added to the lower half, in place, until one element is left."""
    size = values.size
    while size > 1:
        half = (size + 1) // 2
        values[: size - half] += values[half:size]
        size = half
    return float(values[0])


# Codecs of one piece.


def quantise(values: F32) -> tuple[NDArray[np.uint8], F32]:
    """Return each element's bin, [size] uint8, and the codebook, [256] float32, ascending. Bins have equal width over
    mean ± 3σ; elements outside go to the outermost bins. A bin stands for the mean of its elements, an empty one for
    the next lower one that has any, so the mean of all elements is kept (2412.01152). Raises ValueError for an element
    that is not finite."""
    if not np.isfinite(values).all():
        raise ValueError("infinity or NaN cannot be quantised")
    if not values.size:
        return np.zeros(0, np.uint8), np.zeros(BINS, np.float32)
    mean, deviation = moments(values)
    width = 2 * _SIGMAS * deviation / BINS
    codes = np.zeros(values.size, np.uint8)
    if width > 0:
        bins = values.astype(np.float64)
        bins -= mean - _SIGMAS * deviation
        bins /= width
        codes = np.clip(bins, 0, BINS - 1).astype(np.uint8)
    counts = np.bincount(codes, minlength=BINS)
    sums: NDArray[Any] = np.bincount(codes, weights=values, minlength=BINS)
    means = np.where(counts > 0, sums / np.maximum(counts, 1), -np.inf)
    lowest = means[np.flatnonzero(counts)[0]]
    # `maximum.accumulate` also mends a mean that rounding put a hair above the next one.
    book: F32 = np.maximum(np.maximum.accumulate(means), lowest).astype(np.float32)
    return codes, book


def encode_int8(values: F32) -> bytes:
    """Encode a piece as a codebook and one byte per element, packed where that is shorter; as float32 where a codebook
    does not pay. Raises ValueError for an element that is not finite."""
    if 4 * values.size <= values.size + _BOOK_BYTES:
        return bytes([_PLAIN]) + encode_float32(values)
    codes, book = quantise(values)
    packed: bytes = pa.compress(codes.tobytes(), codec="zstd", asbytes=True)
    short = len(packed) < codes.size
    return bytes([_PACKED if short else _CODES]) + encode_float32(book) + (packed if short else codes.tobytes())


def decode_int8(data: memoryview, size: int) -> F32:
    """Decode a piece of `size` elements. Raises MalformedContribution."""
    form, body = (data[0], data[1:]) if len(data) else (-1, data)
    if form == _PLAIN:
        return decode_float32(body, size)
    if form not in (_CODES, _PACKED) or len(body) < _BOOK_BYTES:
        raise MalformedContribution(f"a piece of {len(data)} bytes in form {form}")
    book = decode_float32(body[:_BOOK_BYTES], BINS)
    if (np.diff(book) < 0).any():
        raise MalformedContribution("a codebook that does not ascend")
    rest = body[_BOOK_BYTES:]
    if form == _PACKED:
        try:
            rest = memoryview(pa.decompress(rest, decompressed_size=size, codec="zstd", asbytes=True))
        except (OSError, ValueError):
            raise MalformedContribution("a piece's zstd frame is damaged") from None
    codes = np.frombuffer(rest, np.uint8)
    if codes.size != size:
        raise MalformedContribution(f"a piece of {size} elements has {codes.size} codes")
    values: F32 = np.take(book, codes)
    return values


def encode_float32(values: F32) -> bytes:
    return values.astype("<f4").tobytes()


def decode_float32(data: memoryview, size: int) -> F32:
    """Decode a piece of `size` elements. Raises MalformedContribution."""
    if len(data) != 4 * size:
        raise MalformedContribution(f"a piece of {size} elements has {len(data)} bytes, not {4 * size}")
    return _finite(np.frombuffer(data, "<f4").astype(np.float32))


def encode_sparse(base: F32, after: F32) -> bytes:
    """Encode what leads from the outer weights `base` to `after`, which differ where something is sent."""
    return encode_tensor(_bytes(base), _bytes(after), "F32")


def decode_sparse(data: memoryview, base: F32) -> F32:
    """Decode the pseudo-gradient `base` − `after`, rounded to float32. Raises MalformedContribution."""
    try:
        after = decode_tensor(data, _bytes(base), "F32").view("<f4")
    except DeltaError as error:
        raise MalformedContribution(error.what) from None
    return _difference(base, _finite(after))


def select_visible(weights: Tensors, gradient: Tensors, error: Tensors | None = None) -> tuple[Tensors, Tensors]:
    """Select the elements whose weight becomes another bfloat16 (PULSELoCo, 2602.03839): only these change the next
    forward pass. `weights`: the outer state's; `gradient`: outer − inner weights; `error`: left out by the step before.
    Return the weights with what is sent subtracted, and what is left out, to be added to the next pseudo-gradient
    (error feedback): together gradient + error, up to one rounding of what is sent. Raises MalformedContribution
    where something would be infinite."""
    after, left = {}, {}
    for name, value in weights.items():
        due = gradient[name] + error[name] if error is not None else gradient[name]
        with np.errstate(over="ignore"):
            moved = value - due
        visible = bfloat16_bits(moved) != bfloat16_bits(value)
        after[name] = np.where(visible, moved, value)
        left[name] = due - _difference(value, after[name])
    return after, left


def bfloat16_bits(values: F32) -> NDArray[np.uint16]:
    """Round finite float32 to the nearest bfloat16, ties to even. −0 becomes 0: no forward pass tells them apart."""
    bits = (values + np.float32(0)).view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return (rounded >> np.uint32(16)).astype(np.uint16)


# Shards: the pieces of a payload's file, bound to one worker's place in one outer step (`Expected.binding`).


def max_shard_bytes(pieces: Sequence[Piece]) -> int:
    """Return the bytes that an honest shard of these pieces never exceeds, in any mode."""
    return _HEAD_BYTES + sum(_max_piece(piece.size) + len(varint(_max_piece(piece.size))) for piece in pieces)


def encode_shard(binding: bytes, bodies: Sequence[bytes]) -> bytes:
    """Join the encoded pieces of a shard."""
    return b"".join((_MAGIC, binding, *(part for body in bodies for part in (varint(len(body)), body))))


def decode_shard(data: bytes, binding: bytes, pieces: Sequence[Piece], mode: Mode, base: Sequence[F32]) -> list[F32]:
    """Return the pseudo-gradient of each piece. `base`: the outer weights' pieces, on which mode `sparse` builds.
    Raises MalformedContribution."""
    if len(data) > max_shard_bytes(pieces):
        raise MalformedContribution(f"a shard of {len(data)} bytes, {max_shard_bytes(pieces)} at most are honest")
    reader = FieldReader(memoryview(data))
    try:
        if bytes(reader.take(len(_MAGIC))) != _MAGIC:
            raise MalformedContribution("a file that is no shard of a contribution")
        if bytes(reader.take(32)) != binding:
            raise MalformedContribution("a shard that was not made by this worker for this place in this outer step")
        bodies = [reader.take(reader.varint(_max_piece(piece.size))) for piece in pieces]
        reader.end()
    except DeltaError as error:
        raise MalformedContribution(f"a damaged shard: {error.what}") from None
    if mode == "sparse":
        return [decode_sparse(body, before) for body, before in zip(bodies, base, strict=True)]
    decode = decode_int8 if mode == "int8" else decode_float32
    return [decode(body, piece.size) for body, piece in zip(bodies, pieces, strict=True)]


def _max_piece(size: int) -> int:
    return 1 + 4 * size + 8 * (size // SEGMENT + 1)


def _difference(base: F32, after: F32) -> F32:
    with np.errstate(over="ignore"):
        return _finite(base - after)


def _finite(values: F32) -> F32:
    if not np.isfinite(values).all():
        raise MalformedContribution("infinity or NaN in it")
    return values


def _bytes(values: F32) -> Any:
    return np.ascontiguousarray(values, "<f4").view(np.uint8)
