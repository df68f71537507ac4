"""Pseudo-gradients as bytes: float32, one byte per element, or only the changes that bfloat16 can see.

A payload consists of shards (diloco/tensors.py), each of which begins with a hash of run, outer step, base, worker
and number. So a copied payload is not valid as somebody else's: a copier would have to sign hashes of bytes that it
can make only after the original is published, and by then the time to sign is over. What is read comes from
strangers: lengths are checked before anything is allocated, and what comes out is finite.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from diloco.config import Mode
from diloco.tensors import F32, Piece, Tensors, moments
from protocol.delta.codes import SEGMENT
from protocol.delta.delta import DeltaError, FieldReader, decode_tensor, encode_tensor, varint
from protocol.encoding import canonical_json
from protocol.errors import IntegrityError

BINS = 256
_SIGMAS = 3.0
_PLAIN, _CODES, _PACKED = range(3)
_BOOK_BYTES = 4 * BINS
_MAGIC = b"MUSTERD1"
_HEAD_BYTES = len(_MAGIC) + 32


class MalformedContribution(IntegrityError):
    """A contribution, or a part of its payload, that no honest worker makes."""


# Codecs of one piece.


def quantise(values: F32) -> tuple[NDArray[np.uint8], F32]:
    """Return each element's bin, [size] uint8, and the codebook, [256] float32, ascending.

    Bins have equal width over mean ± 3σ; elements outside go to the outermost bins. A bin stands for the mean of its
    elements, an empty one for the next lower one that has any, so the mean of all elements is kept (2412.01152). Raises
    ValueError for an element that is not finite."""
    if not np.isfinite(values).all():
        raise ValueError("infinity or NaN cannot be quantised")
    if not values.size:
        return np.zeros(0, np.uint8), np.zeros(BINS, np.float32)
    mean, deviation = moments(values)
    width = 2 * _SIGMAS * deviation / BINS
    codes = np.zeros(values.size, np.uint8)
    if width > 0:
        places = values.astype(np.float64)
        places -= mean - _SIGMAS * deviation
        places /= width
        codes = np.clip(places, 0, BINS - 1).astype(np.uint8)
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
        return bytes([_PLAIN]) + _float32_bytes(values)
    codes, book = quantise(values)
    packed: bytes = _zstd().compress(codes.tobytes(), asbytes=True)
    short = len(packed) < codes.size
    return bytes([_PACKED if short else _CODES]) + _float32_bytes(book) + (packed if short else codes.tobytes())


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
    codes = np.frombuffer(rest if form == _CODES else _unpacked(rest, size), np.uint8)
    if codes.size != size:
        raise MalformedContribution(f"a piece of {size} elements has {codes.size} codes")
    values: F32 = np.take(book, codes)
    return values


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


@dataclass(frozen=True)
class SparseSelection:
    """What mode `sparse` sends in one outer step. `after`: the outer weights with what is sent subtracted; `error`:
    what was left out, added to the next pseudo-gradient (error feedback). Tensors of the model's shapes."""

    after: Tensors
    error: Tensors


def select_visible(weights: Tensors, gradient: Tensors, error: Tensors | None = None) -> SparseSelection:
    """Select the elements whose weight becomes another bfloat16 (PULSELoCo, 2602.03839): only these change the next
    forward pass.

    `weights`: the outer state's; `gradient`: outer − inner weights; `error`: left out by the step before. With
    u = gradient + error in float32, sent + new error is u where nothing is sent and where the weight is not tiny beside
    u; elsewhere it is u rounded once. Raises MalformedContribution where something would be infinite."""
    after, left = {}, {}
    for name, value in weights.items():
        due = gradient[name] + error[name] if error is not None else gradient[name]
        with np.errstate(over="ignore"):
            moved = value - due
        visible = bfloat16_bits(moved) != bfloat16_bits(value)
        after[name] = np.where(visible, moved, value)
        left[name] = due - _difference(value, after[name])
    return SparseSelection(after, left)


def bfloat16_bits(values: F32) -> NDArray[np.uint16]:
    """Round finite float32 to the nearest bfloat16, ties to even. −0 becomes 0: no forward pass tells them apart."""
    bits = (values + np.float32(0)).view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return (rounded >> np.uint32(16)).astype(np.uint16)


# Shards: the pieces of a payload's file, bound to one worker's place in one outer step.


@dataclass(frozen=True)
class Origin:
    """Whose payload it is: `run` is the run's digest, `base` the digest of the outer state (both hex)."""

    run: str
    step: int
    base: str
    worker: str

    def binding(self, shard: int) -> bytes:
        """Return the 32 bytes that a shard begins with after its magic number."""
        return hashlib.sha256(canonical_json([self.run, self.step, self.base, self.worker, shard])).digest()


def max_shard_bytes(pieces: Sequence[Piece]) -> int:
    """Return the bytes that an honest shard of these pieces never exceeds, in any mode."""
    return _HEAD_BYTES + sum(_max_piece(one.size) + len(varint(_max_piece(one.size))) for one in pieces)


def encode_shard(origin: Origin, shard: int, bodies: Sequence[bytes]) -> bytes:
    """Join the encoded pieces of a shard."""
    return b"".join((_MAGIC, origin.binding(shard), *(part for body in bodies for part in (varint(len(body)), body))))


def decode_shard(
    data: bytes, origin: Origin, shard: int, pieces: Sequence[Piece], mode: Mode, base: Sequence[F32]
) -> list[F32]:
    """Return the pseudo-gradient of each piece. `base`: the outer weights' pieces, on which mode `sparse` builds.

    Raises MalformedContribution."""
    if len(data) > max_shard_bytes(pieces):
        raise MalformedContribution(
            f"shard {shard} has {len(data)} bytes, {max_shard_bytes(pieces)} at most are honest"
        )
    reader = FieldReader(memoryview(data))
    try:
        if bytes(reader.take(len(_MAGIC))) != _MAGIC:
            raise MalformedContribution(f"shard {shard} is no shard of a contribution")
        if bytes(reader.take(32)) != origin.binding(shard):
            raise MalformedContribution(f"shard {shard} was not made by {origin.worker} for this outer step")
        bodies = [reader.take(reader.varint(_max_piece(one.size))) for one in pieces]
        reader.end()
    except DeltaError as error:
        raise MalformedContribution(f"shard {shard}: {error.what}") from None
    if mode == "sparse":
        return [decode_sparse(body, before) for body, before in zip(bodies, base, strict=True)]
    decode = decode_int8 if mode == "int8" else decode_float32
    return [decode(body, piece.size) for body, piece in zip(bodies, pieces, strict=True)]


def encode_dense(values: F32, mode: Mode) -> bytes:
    """Encode a piece in mode `float32` or `int8`. Raises ValueError for what is not finite in the latter."""
    return encode_int8(values) if mode == "int8" else _float32_bytes(values)


def _max_piece(size: int) -> int:
    return 1 + 4 * size + 8 * (size // SEGMENT + 1)


def _float32_bytes(values: F32) -> bytes:
    return values.astype("<f4").tobytes()


def _difference(base: F32, after: F32) -> F32:
    with np.errstate(over="ignore"):
        return _finite(base - after)


def _finite(values: F32) -> F32:
    if not np.isfinite(values).all():
        raise MalformedContribution("infinity or NaN in it")
    return values


def _bytes(values: F32) -> Any:
    return np.ascontiguousarray(values, "<f4").view(np.uint8)


def _unpacked(code: memoryview, size: int) -> bytes:
    try:
        plain: bytes = _zstd().decompress(code, decompressed_size=size, asbytes=True)
    except (OSError, ValueError):
        raise MalformedContribution("a piece's zstd frame is damaged") from None
    return plain


def _zstd() -> Any:
    return pa.Codec("zstd", compression_level=1)
