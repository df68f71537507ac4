"""Deltas of single tensors: cut into segments, each in the shortest of four forms (docs/design/weights.md).

Strangers' code is read defensively: every length is checked against the bytes that are there.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from protocol.delta.codes import (
    BAD_END,
    BAD_STATES,
    BLOCK,
    GOOD,
    GROUPS,
    LANES,
    SCALE,
    SEGMENT,
    TOKENS,
    Form,
    decode,
    frequencies,
    list_symbols,
    slots,
    write_tokens,
)
from protocol.errors import IntegrityError


class DeltaError(IntegrityError):
    """A weight delta that cannot be what its maker's coder wrote, or is for another base."""

    def __init__(self, what: str) -> None:
        super().__init__(what, "fetch it from another source, or the full weights")


def varint(value: int) -> bytes:
    """LEB128: seven bits a byte, the lowest first."""
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


class FieldReader:
    """Takes fields from the front of `data`. Raises DeltaError where it ends too early."""

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.at = 0

    def byte(self) -> int:
        if self.at >= len(self.data):
            raise DeltaError("the delta ends 1 bytes too early")
        self.at += 1
        return self.data[self.at - 1]

    def varint(self, limit: int) -> int:
        """At most `limit`, in its shortest form."""
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 127) << shift
            shift += 7
            if value > limit or shift > 70:
                raise DeltaError(f"the delta has a number above {limit}")
            if byte < 128:
                break
        if byte == 0 and shift > 7:
            raise DeltaError("the delta has a number in a longer form than it needs")
        return value

    def take(self, size: int) -> memoryview:
        if size > len(self.data) - self.at:
            raise DeltaError(f"the delta ends {size - len(self.data) + self.at} bytes too early")
        self.at += size
        return self.data[self.at - size : self.at]

    def rest(self) -> memoryview:
        return self.take(len(self.data) - self.at)

    def end(self) -> None:
        if self.at != len(self.data):
            raise DeltaError(f"the delta has {len(self.data) - self.at} bytes too many")


# Segments of steps between neighbouring floats


Elements = NDArray[Any]
"""[n] uint16 or uint32, n ≤ SEGMENT: the bits of floats."""
_SAMPLED, _LEAST_SHARE = 1 << 15, 1 / 400
_VARINTS = tuple(map(varint, range(SCALE + 1)))
_WRONG = {
    BAD_STATES: "the tokens do not end where they should",
    BAD_END: "the further bits do not end where they should",
}


@dataclass(frozen=True)
class FloatFormat:
    """A floating-point number of `width` bits with `fraction` bits after the exponent, whose lowest bits are
    `exponent_mask`."""

    width: int
    fraction: int
    exponent_mask: int

    @property
    def numbers(self) -> Form:
        return self.fraction, self.exponent_mask, 1 << (self.width - 1)


def encode_steps(base: Elements, new: Elements, form: FloatFormat) -> bytes | None:
    """Encode `new`, given `base`; None if it would not be shorter than `new` itself."""
    lowest = _choose_groups(base[:: max(1, base.size // _SAMPLED)], form)
    symbols, codes = np.empty(base.size, np.uint16), np.empty(base.size + 1, np.uint16)
    extra = np.empty(base.nbytes // 4 + 1, np.uint32)
    further = list_symbols(base, new, form.numbers, _group_of(lowest), symbols, extra)
    if further > extra.size:
        return None
    table = frequencies(symbols)
    first, states = write_tokens(symbols, table, codes)
    parts = [bytes([len(lowest), *lowest])]
    for row in table[: len(lowest)].tolist():
        amount = max((token + 1 for token, share in enumerate(row) if share), default=0)
        parts.append(bytes([amount]) + b"".join([_VARINTS[share] for share in row[:amount]]))
    parts += [np.array(states, "<u4").tobytes(), varint(codes.size - first), varint(further)]
    code = b"".join((*parts, codes[first:].tobytes(), extra[:further].tobytes()))
    return code if len(code) < new.nbytes else None


def decode_steps(code: memoryview, base: Elements, out: Elements, form: FloatFormat) -> None:
    """Write to `out` what `encode_steps` was given. Raises DeltaError."""
    reader = FieldReader(code)
    lowest = _read_groups(reader, form)
    table = np.zeros((GROUPS, TOKENS), np.int64)
    for group in range(len(lowest)):
        amount = reader.byte()
        if amount > TOKENS:
            raise DeltaError(f"a group has {amount} tokens")
        shares = [reader.varint(SCALE) for _ in range(amount)]
        if amount and (sum(shares) != SCALE or not shares[-1]):
            raise DeltaError("a group's frequencies do not add up")
        table[group, :amount] = shares
    states = np.frombuffer(reader.take(4 * LANES), "<u4").astype(np.uint64)
    amount, further = reader.varint(2 * SEGMENT), reader.varint(SEGMENT)
    codes = np.zeros(amount + BLOCK, "<u2")
    codes[:amount] = np.frombuffer(reader.take(2 * amount), "<u2")
    extra = np.zeros(further + 2, "<u4")
    extra[:further] = np.frombuffer(reader.take(4 * further), "<u4")
    reader.end()
    found = decode(base, out, form.numbers, _group_of(lowest), slots(table), states, (codes, extra))
    if found != GOOD:
        raise DeltaError(_WRONG[found])


def _choose_groups(sample: Elements, form: FloatFormat) -> tuple[int, ...]:
    """Each group's lowest exponent, falling, the last 0: the smaller a weight, the likelier a step. Every exponent that
    enough elements have is a group; what is left joins its lower neighbour."""
    exponents = (sample >> form.fraction & form.exponent_mask).astype(np.int64)
    counts, elements, lowest = np.bincount(exponents, minlength=1), 0, list[int]()
    for exponent in np.flatnonzero(counts)[::-1].tolist():
        elements += int(counts[exponent])
        if exponent and elements >= max(1, sample.size * _LEAST_SHARE) and len(lowest) < GROUPS - 1:
            lowest.append(exponent)
            elements = 0
    return (*lowest, 0)


def _group_of(lowest: tuple[int, ...]) -> NDArray[np.uint8]:
    """The group of every exponent."""
    made = np.zeros(256, np.uint8)
    for group, exponent in reversed(list(enumerate(lowest))):
        made[exponent:] = group
    return made


def _read_groups(reader: FieldReader, form: FloatFormat) -> tuple[int, ...]:
    amount = reader.byte()
    lowest = tuple(bytes(reader.take(amount)))
    if not 0 < amount <= GROUPS:
        raise DeltaError(f"the delta has {amount} groups")
    if list(lowest) != sorted({*lowest}, reverse=True) or lowest[0] > form.exponent_mask:
        raise DeltaError("the groups' exponents do not fall")
    if lowest[-1]:
        raise DeltaError("the groups do not hold every exponent")
    return lowest


# Tensors


Bytes = NDArray[np.uint8]
"""[size] uint8: a tensor's elements in row-major order, little-endian, as safetensors stores them."""

FORMATS = {"BF16": FloatFormat(16, 7, 255), "F16": FloatFormat(16, 10, 31), "F32": FloatFormat(32, 23, 255)}
"""Of safetensors' types those whose changes are steps between floats; of all others bytes are compared."""
SAME, FULL, XOR, STEPS = range(4)
_ZSTD_LEVEL = 1
_LOOK = 1 << 16


def encode_tensor(base: Bytes, new: Bytes, dtype: str) -> bytes:
    """Encode the delta from `base` to `new`, empty if they are equal; at most eight bytes per segment longer than
    `new`.

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
    """Decode what `encode_tensor` was given as `new`, of the base's size, if `delta` was made of it; any other bytes
    come out else, so compare a hash. Raises DeltaError for what no coder writes."""
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
