"""A model of two safetensors files that moves by small steps, and its policy steps published with deltas."""

import json
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from protocol.encoding import sha256_hex
from storage.keys import MissingObjectError, object_key
from storage.sources import MultiSource
from storage.weights.cache import KEPT_VERSIONS
from storage.weights.fetch import fetch
from storage.weights.manifest import FileDelta, Manifest, Shard, StepDelta, seal
from storage.weights.publish import EarlierStep
from tests.storage.weights.folders import OWNER, PUBLISHER, contents, publish, source_of

SHARD = 4000
NAMES = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


def step_folder(folder: Path, step: int) -> Path:
    """The model after `step` steps, each of which moves one weight in fifty by an ulp."""
    folder.mkdir(parents=True)
    for number, name in enumerate(NAMES):
        dice = np.random.default_rng(number)
        tensors = {f"layer.{number}.{one}": _values(dice, 5000, one % 2 == 0) for one in range(3)}
        for _ in range(step):
            for data in tensors.values():
                data[dice.random(data.size) < 0.02] += 1
        save(folder / name, tensors)
    (folder / "config.json").write_text("{}")
    return folder


def _values(dice: np.random.Generator, size: int, bf16: bool) -> NDArray[np.uint16] | NDArray[np.uint32]:
    bits = (dice.standard_normal(size).astype(np.float32) * 0.02).view(np.uint32)
    return (bits >> 16).astype(np.uint16) if bf16 else bits


def save(path: Path, tensors: dict[str, NDArray[np.uint16] | NDArray[np.uint32]]) -> None:
    """uint16 as BF16, uint32 as F32."""
    header, at = {}, 0
    for name, data in tensors.items():
        kind = "BF16" if data.itemsize == 2 else "F32"
        header[name] = {"dtype": kind, "shape": [data.size], "data_offsets": [at, at + data.nbytes]}
        at += data.nbytes
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    path.write_bytes(struct.pack("<Q", len(head)) + head + b"".join(data.tobytes() for data in tensors.values()))


class Origin:
    """A bucket in memory with the policy steps of one run: snapshots at `snapshots`, deltas from the step before and
    from the last snapshot. `read` counts what was read."""

    def __init__(self, home: Path, steps: int, snapshots: tuple[int, ...] = (0,)) -> None:
        self.objects: dict[str, bytes] = {}
        self.read: list[str] = []
        self.folders = [step_folder(home / f"v{step}", step) for step in range(steps)]
        self.manifests: list[Manifest] = []
        self.before: Callable[[str], None] = lambda key: None
        for step, folder in enumerate(self.folders):
            last = max((one for one in snapshots if one < step), default=0)
            bases = [EarlierStep(self.manifests[one], self.folders[one]) for one in sorted({step - 1, last}) if step]
            parent = self.manifests[-1].digest if step else None
            made = publish(folder, self, PUBLISHER, step, parent, OWNER, "bfloat16", SHARD, bases, step in snapshots)
            self.manifests.append(made)

    def fetch(self, step: int, cache: Path, keep: int = KEPT_VERSIONS, source: MultiSource | None = None) -> Path:
        """Fetch a step, which comes out right; return its folder."""
        folder = fetch(self.manifests[step].digest, source or source_of(self.get), cache, PUBLISHER, step, keep)
        assert contents(folder) == contents(self.folders[step])
        return folder

    def put(self, key: str, data: bytes) -> bool:
        return self.objects.setdefault(key, data) is data

    def get(self, key: str, limit: int) -> bytes:
        self.before(key)
        self.read.append(key)
        if key not in self.objects:
            raise MissingObjectError(f"no object {key}")
        data = self.objects[key]
        assert len(data) <= limit
        return data

    def shard_bytes(self) -> int:
        """Bytes of the shards read so far."""
        return sum(len(self.objects.get(key, b"")) for key in self.read if key.startswith("shards/"))

    def sign(self, manifest: Manifest) -> Manifest:
        """Publish another manifest of the owner's."""
        self.objects[object_key("manifests", manifest.digest)] = seal(manifest, OWNER)
        return manifest

    def with_delta(self, step: int, base: int, change: Callable[[bytes], bytes]) -> Manifest:
        """The owner's manifest of a step, as a snapshot, with one delta whose files' bytes are changed."""
        made, files = self.manifests[step], []
        delta = next(one for one in made.deltas if one.step == base)
        for file in delta.files:
            shards = self._put_shards(change(b"".join(self.objects[shard.key] for shard in file.shards)))
            files.append(FileDelta(name=file.name, index=file.index, shards=shards))
        self.add_full(step)
        changed = StepDelta(step=delta.step, parent=delta.parent, files=tuple(files))
        return self.sign(Manifest.model_validate({**dict(made), "snapshot": True, "deltas": (changed,)}))

    def with_junk(self, step: int, parents: list[Manifest]) -> Manifest:
        """The owner's manifest of a step, as a snapshot, with deltas of no use from `parents`: each has nine tenths of
        the bytes of what it leads to."""
        made, dice, deltas = self.manifests[step], np.random.default_rng(step), []
        for parent in parents:
            files = []
            for file in (one for one in made.files if one.name in NAMES):
                shards = self._put_shards(dice.bytes(file.size * 9 // 10))
                files.append(FileDelta(name=file.name, index="0" * 64, shards=shards))
            deltas.append(StepDelta(step=parent.step, parent=parent.digest.hex(), files=tuple(files)))
        self.add_full(step)
        return self.sign(Manifest.model_validate({**dict(made), "snapshot": True, "deltas": tuple(deltas)}))

    def add_full(self, step: int) -> None:
        """Put the full shards of a step."""
        for file in self.manifests[step].files:
            self._put_shards((self.folders[step] / file.name).read_bytes())

    def _put_shards(self, data: bytes) -> tuple[Shard, ...]:
        pieces = [data[at : at + SHARD] for at in range(0, len(data), SHARD)]
        shards = tuple(Shard(sha256=sha256_hex(piece), size=len(piece)) for piece in pieces)
        self.objects |= {shard.key: piece for shard, piece in zip(shards, pieces, strict=True)}
        return shards
