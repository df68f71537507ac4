"""Publish a policy step: upload the shards that the bucket lacks, then the signed manifest."""

from pathlib import Path
from typing import Protocol

from eth_account.signers.local import LocalAccount

from protocol.errors import IntegrityError
from storage.keys import object_key
from storage.weights.manifest import Manifest, ManifestScope, seal
from storage.weights.shards import SHARD_BYTES, read_shards, weight_files


class ObjectWriter(Protocol):
    """Where objects are put; `storage.bucket.Bucket` is one."""

    def put(self, key: str, data: bytes) -> bool: ...


def make_manifest(
    folder: Path, scope: ManifestScope, step: int, parent: bytes | None, dtype: str, shard_size: int = SHARD_BYTES
) -> Manifest:
    """The manifest of a folder; `parent` is the digest of the step before, None for the first."""
    return Manifest(
        chain_id=scope.pool.chain_id,
        pools=scope.pool.pools,
        pool=scope.pool.pool,
        step=step,
        parent=parent.hex() if parent else "",
        dtype=dtype,
        files=weight_files(folder, shard_size),
    )


def publish(
    folder: Path,
    store: ObjectWriter,
    scope: ManifestScope,
    step: int,
    parent: bytes | None,
    account: LocalAccount,
    dtype: str = "float32",
    shard_size: int = SHARD_BYTES,
) -> Manifest:
    """Upload a step so that strangers can `fetch` its digest; what is there already is not sent again.

    The manifest goes last: whoever sees it finds every shard. Safe to repeat after a crash. Raises ConfigError for an
    unusable folder, IntegrityError if it changes meanwhile, and what the store raises.
    """
    if account.address != scope.owner:
        raise IntegrityError(f"{account.address} signs for pool owner {scope.owner}", "use the owner's key")
    manifest = make_manifest(folder, scope, step, parent, dtype, shard_size)
    for file in manifest.files:
        pieces = read_shards(folder / file.name, shard_size)
        try:
            for shard, data in zip(file.shards, pieces, strict=True):
                store.put(shard.key, data)
        except (OSError, ValueError):
            raise IntegrityError(f"{folder / file.name} changed while it was published", "publish again") from None
    store.put(object_key("manifests", manifest.digest), seal(manifest, account))
    return manifest
