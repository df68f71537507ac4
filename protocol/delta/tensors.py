"""Deltas of single tensors: cut into segments, each in the shortest of four forms (docs/design/weights.md).

Strangers' code is read defensively: every length is checked against the bytes that are there.
"""

import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from protocol.delta.apply import BAD_END, BAD_GAP, BAD_STATES, BAD_STEP, GOOD, apply
from protocol.delta.bits import (
    BLOCK,
    DENSE_GROUPS,
    GROUPS,
    SEGMENT,
    SLACK,
    SPARSE_GROUPS,
    TOKENS,
    FloatFormat,
    Grouping,
)
from protocol.delta.encode import choose_groups, count_changes, scan, write_events
from protocol.delta.rans import LANES, LOW, SCALE, frequencies, slots, write_tokens
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


# ---- Segments of steps between neighbouring floats


Elements = NDArray[Any]  # [n] uint16 or uint32, n ≤ SEGMENT: the bits of floats

_BLOCK, _SAMPLED = 512, 1 << 15
_DENSE = 0x80
_VARINTS = tuple(map(varint, range(SCALE + 1)))
_threads = threading.local()
_WRONG = {
    BAD_GAP: "a gap reaches past the segment's end",
    BAD_STEP: "a step is larger than the format",
    BAD_STATES: "the tokens do not end where they should",
    BAD_END: "the changes do not end where they should",
}


def encode_steps(base: Elements, new: Elements, form: FloatFormat) -> bytes | None:
    """Encode `new`, given `base`; None if it would not be shorter than `new` itself."""
    stride = max(1, base.size // _SAMPLED)
    counts = count_changes(base, new, form.numbers, _BLOCK, stride)
    grouping = choose_groups(counts, stride)
    lowest, numbers, means = grouping.tables()
    *lists, symbols, extra, stream, codes = _scratch(base)
    changes, big, coded, further = scan((base, new), form.numbers, (lowest, numbers), (*lists, symbols, extra))
    if further > base.nbytes // 4:
        return None
    used = write_events(tuple(lists), changes, big, means, stream)
    if used > base.nbytes // 4:
        return None
    table = frequencies(symbols, coded)
    parts = [_head(grouping), _tables(grouping, table)]
    if min(grouping.means) < 0:
        first, states = write_tokens(symbols, coded, table, codes)
        parts += [np.array(states, "<u4").tobytes(), varint(codes.size - first), varint(further)]
        parts += [codes[first:].tobytes(), extra[: 4 * further].tobytes()]
    code = b"".join((*parts, stream[: 4 * used].tobytes()))
    return code if len(code) < new.nbytes else None


def decode_steps(code: memoryview, base: Elements, out: Elements, form: FloatFormat) -> None:
    """Write to `out` what `encode_steps` was given. Raises DeltaError."""
    reader = FieldReader(code)
    grouping = _read_head(reader, form)
    table = np.zeros((DENSE_GROUPS, TOKENS), np.int64)
    states = np.full(LANES, LOW, np.uint64)
    codes, extra = memoryview(b""), memoryview(b"")
    dense = sum(mean < 0 for mean in grouping.means)
    if dense:
        for group in range(dense):
            _read_table(reader, table[group])
        states = np.frombuffer(reader.take(4 * LANES), "<u4").astype(np.uint64)
        amount, further = reader.varint(2 * SEGMENT), reader.varint(SEGMENT)
        codes, extra = reader.take(2 * amount), reader.take(4 * further)
    if len(code) - reader.at & 3:
        raise DeltaError("the changes are not whole words")
    tokens = (slots(table), states, _padded(codes, 2 * BLOCK).view("<u2"), _padded(extra, SLACK))
    found = apply((base, out), form.numbers, grouping.tables(), tokens, _padded(reader.rest(), SLACK))
    if found != GOOD:
        raise DeltaError(_WRONG[found])


def _scratch(base: Elements) -> list[NDArray[Any]]:
    """A thread's memory for the lists of `scan` and the streams, which are at most as long as `base`: events, gaps,
    steps, big ones, symbols, further bits, the stream of events, codes."""
    kinds = (np.uint8, np.int32, np.int32, np.int32, np.uint16, np.uint8, np.uint8, np.uint16)
    # As many elements as fit into the bytes at two each: the next tensor may have narrower ones.
    most, streams = base.nbytes // 2, base.nbytes + 4 + SLACK
    sizes = (most, most + SPARSE_GROUPS, most, most + 1, most, streams, streams, most + 1)
    if getattr(_threads, "size", 0) < base.nbytes:
        _threads.arrays = [np.empty(size, kind) for size, kind in zip(sizes, kinds, strict=True)]
        _threads.size = base.nbytes
    return [one[:size] for one, size in zip(_threads.arrays, sizes, strict=True)]


def _padded(data: memoryview, zeros: int) -> NDArray[np.uint8]:
    made = np.zeros(len(data) + zeros, np.uint8)
    made[: len(data)] = data
    return made


def _head(grouping: Grouping) -> bytes:
    fields = [len(grouping.lowest)]
    for lowest, mean in zip(grouping.lowest, grouping.means, strict=True):
        fields += [lowest, mean if mean >= 0 else _DENSE]
    return bytes(fields)


def _read_head(reader: FieldReader, form: FloatFormat) -> Grouping:
    amount = reader.byte()
    fields = bytes(reader.take(2 * amount))
    lowest = fields[::2]
    means = tuple(-1 if field == _DENSE else field for field in fields[1::2])
    if max(means, default=-1) >= SEGMENT.bit_length():
        raise DeltaError("a group's mean gap is longer than a segment")
    sparse = sum(mean >= 0 for mean in means)
    if not 0 < amount <= GROUPS or sparse > SPARSE_GROUPS or amount - sparse > DENSE_GROUPS:
        raise DeltaError(f"the delta has {sparse} sparse and {amount - sparse} dense groups")
    above = form.exponent_mask + 1
    for low in lowest:
        if low >= above:
            raise DeltaError("the groups' exponents do not fall")
        above = low
    if above:
        raise DeltaError("the groups do not hold every exponent")
    return Grouping(tuple(lowest), means)


def _tables(grouping: Grouping, table: NDArray[np.int64]) -> bytes:
    """Of each dense group how many tokens there are, and their frequencies."""
    parts = []
    for row in table[: sum(mean < 0 for mean in grouping.means)].tolist():
        amount = max((token + 1 for token, share in enumerate(row) if share), default=0)
        parts.append(bytes([amount]) + b"".join([_VARINTS[share] for share in row[:amount]]))
    return b"".join(parts)


def _read_table(reader: FieldReader, row: NDArray[np.int64]) -> None:
    amount = reader.byte()
    if amount > TOKENS:
        raise DeltaError(f"a group has {amount} tokens")
    shares = [reader.varint(SCALE) for _ in range(amount)]
    if amount and (sum(shares) != SCALE or not shares[-1]):
        raise DeltaError("a group's frequencies do not add up")
    row[:amount] = shares


# ---- Tensors


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
