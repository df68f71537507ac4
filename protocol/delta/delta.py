"""A delta between two versions of a model's weights: which it leads from and to, and every tensor's change.

Both sides hold the base. What comes out of a delta is believed only if it has the hashes that the delta names, and the
delta only if these make the version that its reader expects: the digest that a signed manifest names.
"""

from collections.abc import Mapping, Sequence

from protocol.delta.fields import DeltaError, FieldReader, varint
from protocol.delta.index import TensorEntry, WeightIndex, sha256
from protocol.delta.layout import SEGMENT
from protocol.delta.tensor import Bytes, decode_tensor, encode_tensor

MAGIC = b"MUSTERD1"
Weights = Mapping[str, Bytes]
"""Tensors' bytes by name."""


def encode_delta(base: Weights, base_index: WeightIndex, new: Weights, new_index: WeightIndex) -> bytes:
    """The delta that leads from `base` to `new`; at most about 100 bytes + 33 per tensor + 8 per segment longer than
    what changed. Raises ValueError if the two do not have the same tensors of the same types and shapes."""
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
            sizes[entry.name] = reader.varint(_longest(entry))
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
        """The new bytes of one tensor of `index`, given the old ones. Raises DeltaError if they lack their hash, as
        also happens where `base` is not what it should be."""
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
    """All tensors after the delta, and their index; `base` stays as it is. Unchanged tensors are the base's own arrays,
    whose hashes the caller has checked before. Raises DeltaError, and then nothing was made."""
    reader = DeltaReader(delta, base_index, expected)
    changed = set(reader.changed)
    made = {
        entry.name: reader.tensor(entry, base[entry.name]) if entry.name in changed else base[entry.name]
        for entry in reader.index.tensors
    }
    return made, reader.index


def merge_deltas(deltas: Sequence[bytes], base: Weights, base_index: WeightIndex) -> bytes:
    """One delta for those who skipped some: from `base` to where `deltas`, applied one after another, lead. Raises
    DeltaError if one does not follow the one before."""
    weights, index = base, base_index
    for delta in deltas:
        weights, index = apply_delta(delta, weights, index)
    return encode_delta(base, base_index, weights, index)


def _longest(entry: TensorEntry) -> int:
    """The bytes that no coder exceeds for a tensor."""
    return entry.size + 8 * (entry.size // SEGMENT + 1)
