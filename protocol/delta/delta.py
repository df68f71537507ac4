"""Deltas between two versions of a model's weights: tensors cut into segments, each in the shortest of four forms.

Both sides hold the base. A delta is accepted only if the hashes that it names make the version that the reader expects,
the digest that a signed manifest names, and its result only if it has these hashes. Strangers' code is read
defensively: every length is checked against the bytes that are there (docs/design/weights.md).
"""

import hashlib
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from protocol.delta import codes
from protocol.delta.codes import SCALE, SEGMENT
from protocol.encoding import canonical_json
from protocol.errors import IntegrityError

if sys.byteorder != "little":
    raise ImportError("weight deltas are made on little-endian machines only")

Elements = NDArray[Any]
"""[n] uint16 or uint32, n ≤ SEGMENT: the bits of floats."""
Bytes = NDArray[np.uint8]
"""[size] uint8: a tensor's elements in row-major order, little-endian, as safetensors stores them."""
Weights = Mapping[str, Bytes]  # Tensors' bytes by name
BITS = {
    **dict.fromkeys(("F4", "F6_E2M3", "F6_E3M2"), 0),
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 16),
    **dict.fromkeys(("U32", "I32", "F32"), 32),
    **dict.fromkeys(("U64", "I64", "F64", "C64"), 64),
}
"""Of safetensors' types; 0 where elements do not fill bytes."""
MAGIC = b"MUSTERD1"
SAME, FULL, XOR, STEPS = range(4)
_SAMPLED, _LEAST_SHARE = 1 << 15, 1 / 400
_LOOK = 1 << 16


class DeltaError(IntegrityError):
    """A weight delta that cannot be what its maker's coder wrote, or is for another base."""

    def __init__(self, what: str) -> None:
        super().__init__(what, "fetch it from another source, or the full weights")


def varint(value: int) -> bytes:
    """Encode a number as LEB128: seven bits a byte, the lowest first."""
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


_VARINTS = tuple(map(varint, range(SCALE + 1)))


class FieldReader:
    """Takes fields from the front of `data`. Raises DeltaError where it ends too early."""

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.at = 0

    def byte(self) -> int:
        return self.take(1)[0]

    def varint(self, limit: int) -> int:
        """Take a number of at most `limit`, in its shortest form."""
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

    def end(self) -> None:
        if self.at != len(self.data):
            raise DeltaError(f"the delta has {len(self.data) - self.at} bytes too many")


# Segments of steps between neighbouring floats


class FloatFormat(NamedTuple):
    """A floating-point number of `width` bits with `fraction` bits after the exponent, whose lowest bits are
    `exponent_mask`."""

    width: int
    fraction: int
    exponent_mask: int

    @property
    def itemsize(self) -> int:
        return self.width // 8

    @property
    def numbers(self) -> codes.Form:
        return self.fraction, self.exponent_mask, 1 << (self.width - 1)


FORMATS = {"BF16": FloatFormat(16, 7, 255), "F16": FloatFormat(16, 10, 31), "F32": FloatFormat(32, 23, 255)}
"""Of safetensors' types those whose changes are steps between floats; of all others bytes are compared."""


def encode_steps(base: Elements, new: Elements, form: FloatFormat) -> bytes | None:
    """Encode `new`, given `base`; None if it would not be shorter than `new` itself."""
    lowest = _choose_groups(base[:: max(1, base.size // _SAMPLED)], form)
    symbols, tokens = np.empty(base.size, np.uint16), np.empty(base.size + 1, np.uint16)
    extra = np.empty(base.nbytes // 4 + 1, np.uint32)
    further = codes.list_symbols(base, new, form.numbers, _group_of(lowest), symbols, extra)
    if further > extra.size:
        return None
    table = codes.frequencies(symbols)
    first, states = codes.write_tokens(symbols, table, tokens)
    parts = [bytes([len(lowest), *lowest])]
    for row in table[: len(lowest)].tolist():
        amount = max((token + 1 for token, share in enumerate(row) if share), default=0)
        parts.append(bytes([amount]) + b"".join([_VARINTS[share] for share in row[:amount]]))
    parts += [np.array(states, "<u4").tobytes(), varint(tokens.size - first), varint(further)]
    code = b"".join((*parts, tokens[first:].tobytes(), extra[:further].tobytes()))
    return code if len(code) < new.nbytes else None


def decode_steps(code: memoryview, base: Elements, out: Elements, form: FloatFormat) -> None:
    """Write to `out` what `encode_steps` was given. Raises DeltaError."""
    reader = FieldReader(code)
    lowest = _read_groups(reader, form)
    table = np.zeros((codes.GROUPS, codes.TOKENS), np.int64)
    for group in range(len(lowest)):
        amount = reader.byte()
        if amount > codes.TOKENS:
            raise DeltaError(f"a group has {amount} tokens")
        shares = [reader.varint(SCALE) for _ in range(amount)]
        if amount and (sum(shares) != SCALE or not shares[-1]):
            raise DeltaError("a group's frequencies do not add up")
        table[group, :amount] = shares
    states = np.frombuffer(reader.take(4 * codes.LANES), "<u4").astype(np.uint64)
    amount, further = reader.varint(2 * SEGMENT), reader.varint(SEGMENT)
    tokens = np.zeros(amount + codes.BLOCK, "<u2")
    tokens[:amount] = np.frombuffer(reader.take(2 * amount), "<u2")
    extra = np.zeros(further + 2, "<u4")
    extra[:further] = np.frombuffer(reader.take(4 * further), "<u4")
    reader.end()
    outcome = codes.decode(base, out, form.numbers, _group_of(lowest), codes.slots(table), states, (tokens, extra))
    if outcome != codes.GOOD:
        what = "tokens" if outcome == codes.BAD_STATES else "further bits"
        raise DeltaError(f"the {what} do not end where they should")


def _choose_groups(sample: Elements, form: FloatFormat) -> tuple[int, ...]:
    """Return each group's lowest exponent, falling, the last 0: the smaller a weight, the likelier a step. Every
    exponent that enough elements have is a group; what is left joins its lower neighbour."""
    exponents = (sample >> form.fraction & form.exponent_mask).astype(np.int64)
    counts, elements, lowest = np.bincount(exponents, minlength=1), 0, list[int]()
    for exponent in np.flatnonzero(counts)[::-1].tolist():
        elements += int(counts[exponent])
        if exponent and elements >= max(1, sample.size * _LEAST_SHARE) and len(lowest) < codes.GROUPS - 1:
            lowest.append(exponent)
            elements = 0
    return (*lowest, 0)


def _group_of(lowest: tuple[int, ...]) -> NDArray[np.uint8]:
    """Return the group of every exponent."""
    groups = np.zeros(256, np.uint8)
    for group, exponent in reversed(list(enumerate(lowest))):
        groups[exponent:] = group
    return groups


def _read_groups(reader: FieldReader, form: FloatFormat) -> tuple[int, ...]:
    amount = reader.byte()
    lowest = tuple(bytes(reader.take(amount)))
    if not 0 < amount <= codes.GROUPS:
        raise DeltaError(f"the delta has {amount} groups")
    if list(lowest) != sorted({*lowest}, reverse=True) or lowest[0] > form.exponent_mask:
        raise DeltaError("the groups' exponents do not fall")
    if lowest[-1]:
        raise DeltaError("the groups do not hold every exponent")
    return lowest


# Tensors


def encode_tensor(base: Bytes, new: Bytes, dtype: str) -> bytes:
    """Encode the delta from `base` to `new`, empty if they are equal; at most eight bytes per segment longer than
    `new`. `dtype` is safetensors' name of it. Raises ValueError if the sizes differ."""
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
    """Decode what `encode_tensor` was given as `new`, if `delta` was made of `base`; any other bytes come out else, so
    compare a hash. Raises DeltaError for what no coder writes."""
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
    length = SEGMENT * (form.itemsize if form else 1)
    return ((start, min(start + length, size)) for start in range(0, size, length))


def _encode(base: Bytes, new: Bytes, form: FloatFormat | None) -> tuple[int, bytes]:
    # A little at a time, since most segments differ soon.
    if all(np.array_equal(base[at : at + _LOOK], new[at : at + _LOOK]) for at in range(0, base.size, _LOOK)):
        return SAME, b""
    if form is not None and base.size % form.itemsize == 0:
        code = encode_steps(_elements(base, form), _elements(new, form), form)
        if code is not None:
            return STEPS, code
    else:
        packed: bytes = _zstd().compress((base ^ new).tobytes(), asbytes=True)
        if len(packed) < new.size:
            return XOR, packed
    return FULL, new.tobytes()


def _decode(method: int, code: memoryview, base: Bytes, out: Bytes, form: FloatFormat | None) -> None:
    if method == STEPS and form is not None and base.size % form.itemsize == 0:
        decode_steps(code, _elements(base, form), out.view(f"<u{form.itemsize}"), form)
    elif method == XOR:
        np.bitwise_xor(base, _unpacked(code, base.size), out=out)
    elif method == FULL and len(code) == base.size:
        out[:] = np.frombuffer(code, np.uint8)
    elif method == SAME and not len(code):
        out[:] = base
    else:
        raise DeltaError(f"a segment of {base.size} bytes has {len(code)} in form {method}")


def _elements(data: Bytes, form: FloatFormat) -> NDArray[Any]:
    """Return the bits of floats, aligned to eight bytes; a copy if `data` is not."""
    if data.ctypes.data % 8:
        data = data.copy()
    elements = data.view(f"<u{form.itemsize}")
    elements.flags.writeable = False
    return elements


def _unpacked(code: memoryview, size: int) -> Bytes:
    """Return `size` bytes of a zstd frame. Raises DeltaError if it has fewer or more."""
    try:
        plain = _zstd().decompress(code, decompressed_size=size, asbytes=True)
    except (OSError, ValueError):
        raise DeltaError("a segment's zstd frame is damaged") from None
    if len(plain) != size:
        raise DeltaError(f"a segment's zstd frame has {len(plain)} bytes instead of {size}")
    return np.frombuffer(plain, np.uint8)


def _zstd() -> Any:
    return pa.Codec("zstd", compression_level=1)


# Whole models


@dataclass(frozen=True)
class TensorEntry:
    """`dtype`: safetensors' name of it. `size` in bytes. `sha256`: of the bytes, as safetensors stores them."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    size: int
    sha256: bytes

    @classmethod
    def of(cls, name: str, dtype: str, shape: tuple[int, ...], data: Bytes) -> "TensorEntry":
        """Raises ValueError for a type that safetensors lacks, or a size that does not fit the shape."""
        bits = BITS.get(dtype)
        if bits is None or (bits and math.prod(shape) * bits != 8 * data.size):
            raise ValueError(f"{data.size} bytes are no {dtype} tensor of shape {shape}")
        return cls(name, dtype, shape, data.size, sha256(data))


@dataclass(frozen=True)
class WeightIndex:
    """`tensors` sorted by name, no name twice."""

    tensors: tuple[TensorEntry, ...]

    @classmethod
    def of(cls, tensors: Iterable[TensorEntry]) -> "WeightIndex":
        """Raises ValueError for two tensors of one name."""
        ordered = tuple(sorted(tensors, key=lambda entry: entry.name))
        if len({entry.name for entry in ordered}) < len(ordered):
            raise ValueError("two tensors of one name")
        return cls(ordered)

    def with_hashes(self, hashes: Mapping[str, bytes]) -> "WeightIndex":
        """Return the same tensors with other bytes, where `hashes` has a name."""
        return WeightIndex(tuple(replace(entry, sha256=hashes.get(entry.name, entry.sha256)) for entry in self.tensors))

    @property
    def digest(self) -> bytes:
        """SHA-256 of the index as canonical JSON: the name of these weights."""
        rows = [[entry.name, entry.dtype, list(entry.shape), entry.size, entry.sha256.hex()] for entry in self.tensors]
        return hashlib.sha256(canonical_json(rows)).digest()


def sha256(data: Bytes) -> bytes:
    return hashlib.sha256(data.data).digest()


def encode_delta(
    base: Weights,
    base_index: WeightIndex,
    new: Weights,
    new_index: WeightIndex,
    apply: Callable[..., Iterable[bytes]] = map,
) -> bytes:
    """Encode the delta that leads from `base` to `new`; at most about 100 bytes + 33 per tensor + 8 per segment longer
    than what changed. `apply` works as `map` does, on threads perhaps. Raises ValueError if the two do not have the
    same tensors of the same types and shapes."""
    if base_index.with_hashes({entry.name: entry.sha256 for entry in new_index.tensors}) != new_index:
        raise ValueError("the versions have other tensors: publish the full weights")

    def encode(before: TensorEntry, after: TensorEntry) -> bytes:
        return b"" if before == after else encode_tensor(base[before.name], new[after.name], after.dtype)

    head, bodies = [MAGIC, base_index.digest, new_index.digest], []
    for after, body in zip(new_index.tensors, apply(encode, base_index.tensors, new_index.tensors), strict=True):
        head.append(varint(len(body)))
        if body:
            head.append(after.sha256)
            bodies.append(body)
    return b"".join((*head, *bodies))


class DeltaReader:
    """A stranger's `delta` against `base`; its head is read and checked, nothing is decoded yet.

    `expected` is the digest of the version that the delta must lead to, None to take what it says. Raises DeltaError
    if it is for another base or leads elsewhere, or its lengths are not those of its bytes.
    """

    def __init__(self, delta: bytes | memoryview, base: WeightIndex, expected: bytes | None = None) -> None:
        reader = FieldReader(memoryview(delta))
        if bytes(reader.take(len(MAGIC))) != MAGIC:
            raise DeltaError("this is not a weight delta")
        if bytes(reader.take(32)) != base.digest:
            raise DeltaError("the delta is for another base")
        target = bytes(reader.take(32))
        sizes, hashes = {}, {}
        for entry in base.tensors:
            sizes[entry.name] = reader.varint(entry.size + 8 * (entry.size // SEGMENT + 1))
            if sizes[entry.name]:
                hashes[entry.name] = bytes(reader.take(32))
        self.base, self.index = base, base.with_hashes(hashes)
        if self.index.digest != target or target != (expected or target):
            raise DeltaError("the delta does not lead to the version that is expected")
        self._bodies = {name: reader.take(size) for name, size in sizes.items()}
        reader.end()

    @property
    def changed(self) -> tuple[str, ...]:
        """Names of the tensors that the delta changes."""
        return tuple(name for name, body in self._bodies.items() if len(body))

    def tensor(self, entry: TensorEntry, base: Bytes) -> Bytes:
        """Decode the new bytes of one tensor of `index`, given the old ones. Raises DeltaError if they lack their hash,
        as also happens where `base` is not what it should be."""
        if base.size != entry.size:
            raise DeltaError(f"the base's {entry.name} has {base.size} bytes instead of {entry.size}")
        try:
            tensor = decode_tensor(self._bodies[entry.name], base, entry.dtype)
        except DeltaError as error:
            raise DeltaError(f"{entry.name}: {error.what}") from None
        if sha256(tensor) != entry.sha256:
            raise DeltaError(f"{entry.name} does not come out with its hash: the delta or the base is damaged")
        return tensor
