"""One tensor's delta: the tensor is cut into segments, each in the shortest of four forms."""

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from protocol.delta.fields import DeltaError, FieldReader, varint
from protocol.delta.layout import SEGMENT, FloatFormat
from protocol.delta.steps import decode_steps, encode_steps

Bytes = NDArray[np.uint8]
"""[size] uint8: a tensor's elements in row-major order, little-endian, as safetensors stores them."""

FORMATS = {"BF16": FloatFormat(16, 7, 255), "F16": FloatFormat(16, 10, 31), "F32": FloatFormat(32, 23, 255)}
"""Of safetensors' types those whose changes are steps between floats; of all others bytes are compared."""
SAME, FULL, XOR, STEPS = range(4)
_ZSTD_LEVEL = 1
_LOOK = 1 << 16


def encode_tensor(base: Bytes, new: Bytes, dtype: str) -> bytes:
    """The delta from `base` to `new`, empty if they are equal; at most eight bytes per segment longer than `new`.

    `dtype` is safetensors' name of it. Raises ValueError if the sizes differ.
    """
    if base.size != new.size:
        raise ValueError(f"a base of {base.size} bytes for {new.size}")
    form = FORMATS.get(dtype)
    parts: list[bytes] = []
    changed = False
    for start, end in _segments(base.size, form):
        method, code = _encode(base[start:end], new[start:end], form)
        changed |= method != SAME
        parts += [bytes([method]), varint(len(code)), code]
    return b"".join(parts) if changed else b""


def decode_tensor(delta: memoryview, base: Bytes, dtype: str) -> Bytes:
    """What `encode_tensor` was given as `new`, of the base's size, if `delta` was made of it; any other bytes come out
    else, so compare a hash. Raises DeltaError for what no coder writes."""
    if not len(delta):
        return base.copy()
    out = np.empty_like(base)
    reader, form = FieldReader(delta), FORMATS.get(dtype)
    for start, end in _segments(base.size, form):
        method = reader.byte()
        code = reader.take(reader.varint(end - start))
        _decode(method, code, base[start:end], out[start:end], form)
    reader.end()
    return out


def _segments(size: int, form: FloatFormat | None) -> Iterator[tuple[int, int]]:
    length = SEGMENT * (form.width // 8 if form else 1)
    return ((start, min(start + length, size)) for start in range(0, size, length))


def _encode(base: Bytes, new: Bytes, form: FloatFormat | None) -> tuple[int, bytes]:
    if _equal(base, new):
        return SAME, b""
    if form is not None and base.size % (form.width // 8) == 0:
        code = encode_steps(_elements(base, form), _elements(new, form), form)
        if code is not None:
            return STEPS, code
    else:
        packed: bytes = _zstd().compress((base ^ new).tobytes(), asbytes=True)
        if len(packed) < new.size:
            return XOR, packed
    return FULL, new.tobytes()


def _decode(method: int, code: memoryview, base: Bytes, out: Bytes, form: FloatFormat | None) -> None:
    if method == STEPS and form is not None and base.size % (form.width // 8) == 0:
        decode_steps(code, _elements(base, form), out.view(f"<u{form.width // 8}"), form)
    elif method == XOR:
        np.bitwise_xor(base, _unpacked(code, base.size), out=out)
    elif method == FULL and len(code) == base.size:
        out[:] = np.frombuffer(code, np.uint8)
    elif method == SAME and not len(code):
        out[:] = base
    else:
        raise DeltaError(f"a segment of {base.size} bytes has {len(code)} in form {method}")


def _equal(base: Bytes, new: Bytes) -> bool:
    """Looks at a little at a time, since most differ soon."""
    return all(np.array_equal(base[at : at + _LOOK], new[at : at + _LOOK]) for at in range(0, base.size, _LOOK))


def _elements(data: Bytes, form: FloatFormat) -> NDArray[Any]:
    """The bits of floats, aligned to eight bytes; a copy if `data` is not."""
    if data.ctypes.data % 8:
        data = data.copy()
    elements = data.view(f"<u{form.width // 8}")
    elements.flags.writeable = False
    return elements


def _unpacked(code: memoryview, size: int) -> Bytes:
    """`size` bytes of a zstd frame. Raises DeltaError if it has fewer or more."""
    try:
        plain = _zstd().decompress(code, decompressed_size=size, asbytes=True)
    except (OSError, ValueError):
        raise DeltaError("a segment's zstd frame is damaged") from None
    if len(plain) != size:
        raise DeltaError(f"a segment's zstd frame has {len(plain)} bytes instead of {size}")
    return np.frombuffer(plain, np.uint8)


def _zstd() -> Any:
    return pa.Codec("zstd", compression_level=_ZSTD_LEVEL)


if sys.byteorder != "little":
    raise ImportError("weight deltas are made on little-endian machines only")
