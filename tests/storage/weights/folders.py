"""Small folders of weights, and who may publish them."""

import random
from collections.abc import Sequence
from pathlib import Path

from protocol.accounts import Account, LocalAccount
from protocol.identity import PoolId
from storage.sources import MultiSource
from storage.weights.fetch import OpenObject
from storage.weights.manifest import DELTA_SHARD_BYTES, SHARD_BYTES, Manifest, ManifestScope
from storage.weights.publish import EarlierStep, ObjectWriter, make_manifest, prepare, send

OWNER = Account.from_key(b"\x07" * 32)
PUBLISHER = ManifestScope(PoolId(31337, "0x" + "11" * 20, 1), OWNER.address)


class ShardStore(dict[str, bytes]):
    """A bucket in memory."""

    def put(self, key: str, data: bytes) -> bool:
        return self.setdefault(key, data) is data


def model_folder(folder: Path, seed: int = 0) -> Path:
    """A few files; only `model.safetensors` depends on the seed."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.safetensors").write_bytes(random.Random(seed).randbytes(10_500))
    (folder / "tokenizer.json").write_bytes(b"t" * 3_000)
    (folder / "config.json").write_text("{}")
    (folder / "empty.txt").touch()
    return folder


def publish(
    folder: Path,
    store: ObjectWriter,
    scope: ManifestScope,
    step: int,
    parent: bytes | None,
    account: LocalAccount,
    dtype: str = "float32",
    shard_size: int = SHARD_BYTES,
    bases: Sequence[EarlierStep] = (),
    snapshot: bool = True,
) -> Manifest:
    """Upload a step so that strangers can `fetch` its digest."""
    manifest = make_manifest(folder, scope, step, parent, dtype, shard_size)
    prepared = prepare(folder, manifest, bases, snapshot, min(shard_size, DELTA_SHARD_BYTES))
    send(folder, prepared, store, account, shard_size)
    return prepared.manifest


def source_of(get: OpenObject) -> MultiSource:
    """A single source, which gives what `get` does."""
    return MultiSource({"store": lambda key, limit, partial: partial.append(get(key, limit))})


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}
