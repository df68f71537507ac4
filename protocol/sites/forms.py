"""One piece of a pseudo-gradient as bytes, in each of the modes: float32, a code of one byte, or the visible changes.

A piece is at most a few bytes longer than its float32. What is read comes from strangers: every length is checked
before anything is made, and what comes out is finite.
"""

from typing import Any

import numpy as np
import pyarrow as pa

from protocol.delta.bits import SEGMENT
from protocol.delta.tensors import DeltaError, decode_tensor, encode_tensor
from protocol.errors import IntegrityError
from protocol.sites.codebook import BINS, Kind, quantise
from protocol.sites.layout import F32

PLAIN, CODES, PACKED = range(3)
_BOOK_BYTES = 4 * BINS


class MalformedContribution(IntegrityError):
    """A contribution, or a part of its payload, that no honest site makes."""


def longest_piece(size: int) -> int:
    """Bytes that no mode exceeds for `size` elements."""
    return 1 + 4 * size + 8 * (size // SEGMENT + 1)


def encode_float32(values: F32) -> bytes:
    return values.astype("<f4").tobytes()


def decode_float32(data: memoryview, size: int) -> F32:
    """Raises MalformedContribution."""
    if len(data) != 4 * size:
        raise MalformedContribution(f"a piece of {size} elements has {len(data)} bytes, not {4 * size}")
    return _finite(np.frombuffer(data, "<f4").astype(np.float32))


def encode_int8(values: F32, kind: Kind) -> bytes:
    """A codebook and a byte per element, packed where that is shorter; float32 where a codebook does not pay."""
    if 4 * values.size <= values.size + _BOOK_BYTES:
        return bytes([PLAIN]) + encode_float32(values)
    codes, book = quantise(values, kind)
    packed: bytes = _zstd().compress(codes.tobytes(), asbytes=True)
    short = len(packed) < codes.size
    return bytes([PACKED if short else CODES]) + encode_float32(book) + (packed if short else codes.tobytes())


def decode_int8(data: memoryview, size: int) -> F32:
    """What stands for each element. Raises MalformedContribution."""
    form, body = (data[0], data[1:]) if len(data) else (-1, data)
    if form == PLAIN:
        return decode_float32(body, size)
    if form not in (CODES, PACKED) or len(body) < _BOOK_BYTES:
        raise MalformedContribution(f"a piece of {len(data)} bytes in form {form}")
    book = decode_float32(body[:_BOOK_BYTES], BINS)
    if (np.diff(book) < 0).any():
        raise MalformedContribution("a codebook that does not ascend")
    rest = body[_BOOK_BYTES:]
    codes = np.frombuffer(rest if form == CODES else _unpacked(rest, size), np.uint8)
    if codes.size != size:
        raise MalformedContribution(f"a piece of {size} elements has {codes.size} codes")
    found: F32 = np.take(book, codes)
    return found


def encode_sparse(base: F32, after: F32) -> bytes:
    """What leads from the outer weights `base` to `after`, which differ where something is sent."""
    return encode_tensor(_bytes(base), _bytes(after), "F32")


def decode_sparse(data: memoryview, base: F32) -> F32:
    """The pseudo-gradient that was sent. Raises MalformedContribution."""
    try:
        after = decode_tensor(data, _bytes(base), "F32").view("<f4")
    except DeltaError as error:
        raise MalformedContribution(error.what) from None
    return sparse_values(base, _finite(after))


def sparse_values(base: F32, after: F32) -> F32:
    """What a reader of `encode_sparse` takes for the pseudo-gradient: base − after, rounded to float32. Raises
    MalformedContribution where that is infinite."""
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
