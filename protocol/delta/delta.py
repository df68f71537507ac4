"""A delta between two versions of a model's weights: what it leads from and to, and every tensor's change.

Both sides hold the base. The result of a delta is accepted only if it has the hashes that the delta names, and the
delta only if these hashes make the version that the reader expects: the digest that a signed manifest names.
"""

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from protocol.delta.codes import SEGMENT
from protocol.delta.tensors import Bytes, DeltaError, FieldReader, decode_tensor, encode_tensor, varint
from protocol.encoding import canonical_json

BITS = {
    **dict.fromkeys(("F4", "F6_E2M3", "F6_E3M2"), 0),
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 16),
    **dict.fromkeys(("U32", "I32", "F32"), 32),
    **dict.fromkeys(("U64", "I64", "F64", "C64"), 64),
}
"""Of safetensors' types; 0 where elements do not fill bytes."""


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
        made = tuple(sorted(tensors, key=lambda one: one.name))
        if len({one.name for one in made}) < len(made):
            raise ValueError("two tensors of one name")
        return cls(made)

    def with_hashes(self, hashes: Mapping[str, bytes]) -> "WeightIndex":
        """Return the same tensors with other bytes, where `hashes` has a name."""
        return WeightIndex(tuple(replace(one, sha256=hashes.get(one.name, one.sha256)) for one in self.tensors))

    def same_shapes(self, other: "WeightIndex") -> bool:
        return [_shape(one) for one in self.tensors] == [_shape(one) for one in other.tensors]

    @property
    def digest(self) -> bytes:
        """SHA-256 of the index as canonical JSON: the name of these weights."""
        rows = [[one.name, one.dtype, list(one.shape), one.size, one.sha256.hex()] for one in self.tensors]
        return hashlib.sha256(canonical_json(rows)).digest()


def sha256(data: Bytes) -> bytes:
    return hashlib.sha256(data.data).digest()


def _shape(entry: TensorEntry) -> tuple[str, str, tuple[int, ...], int]:
    return entry.name, entry.dtype, entry.shape, entry.size


# Deltas


MAGIC = b"MUSTERD1"
Weights = Mapping[str, Bytes]  # Tensors' bytes by name


def encode_delta(base: Weights, base_index: WeightIndex, new: Weights, new_index: WeightIndex) -> bytes:
    """Encode the delta that leads from `base` to `new`; at most about 100 bytes + 33 per tensor + 8 per segment longer
    than what changed. Raises ValueError if the two do not have the same tensors of the same types and shapes."""
    if not base_index.same_shapes(new_index):
        raise ValueError("the versions have other tensors: publish the full weights")
    head, bodies = [MAGIC, base_index.digest, new_index.digest], []
    for before, after in zip(base_index.tensors, new_index.tensors, strict=True):
        body = b"" if before == after else encode_tensor(base[before.name], new[after.name], after.dtype)
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
            made = decode_tensor(self._bodies[entry.name], base, entry.dtype)
        except DeltaError as error:
            raise DeltaError(f"{entry.name}: {error.what}") from None
        if sha256(made) != entry.sha256:
            raise DeltaError(f"{entry.name} does not come out with its hash: the delta or the base is damaged")
        return made


def apply_delta(
    delta: bytes | memoryview, base: Weights, base_index: WeightIndex, expected: bytes | None = None
) -> tuple[dict[str, Bytes], WeightIndex]:
    """Apply a delta and return all tensors and their index; `base` stays as it is. Unchanged tensors are the base's own
    arrays, whose hashes the caller has checked before. Raises DeltaError, and then nothing was made."""
    reader = DeltaReader(delta, base_index, expected)
    changed = set(reader.changed)
    made = {
        entry.name: reader.tensor(entry, base[entry.name]) if entry.name in changed else base[entry.name]
        for entry in reader.index.tensors
    }
    return made, reader.index
