"""What a version of a model's weights is: its tensors' names, types, shapes and hashes."""

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from protocol.delta.tensor import Bytes
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
        """The same tensors with other bytes, where `hashes` has a name."""
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
