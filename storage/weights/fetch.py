"""Fetch a policy step by the hash on chain, from sources that need not be trusted: every byte is checked."""

import hashlib
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from protocol.errors import IntegrityError, MusterError
from storage.keys import object_key
from storage.weights.cache import KEPT_VERSIONS, WeightCache
from storage.weights.manifest import MAX_STORED_BYTES, Manifest, ManifestScope, Shard, unseal

OpenObject = Callable[[str, int], bytes]
"""(key, limit in bytes) → the object's bytes; `storage.download.HttpObjects` and `Bucket.get` are such."""
PARALLEL = 4


def fetch(
    manifest_hash: bytes,
    open_object: OpenObject,
    cache_dir: Path,
    scope: ManifestScope,
    step: int | None = None,
    keep: int = KEPT_VERSIONS,
    parallel: int = PARALLEL,
) -> Path:
    """The folder `<cache_dir>/<manifest hash>` with the step's files, complete and checked.

    Shards already in the cache (from an interrupted fetch or another version) are not fetched again; damaged cache
    entries are found and replaced. At most `parallel` shards are in memory at a time; the `keep` versions used last
    stay. Raises IntegrityError if the source serves other bytes, or what `open_object` raises; what was fetched stays.
    """
    cache = WeightCache(cache_dir)
    with cache.locked(manifest_hash):
        manifest = _manifest(manifest_hash, open_object, scope, step, cache)
        if not cache.is_intact(manifest):
            _fetch_shards(manifest, open_object, cache, parallel)
            cache.install(manifest, partial(_assemble, manifest, cache))
        folder = cache.version(manifest_hash)
        os.utime(folder)
    cache.prune(keep)
    return folder


def _manifest(
    manifest_hash: bytes, open_object: OpenObject, scope: ManifestScope, step: int | None, cache: WeightCache
) -> Manifest:
    """The manifest, checked against the hash on chain, the pool and owner it must be of, and the step if given.

    The signature of one in the cache was checked when it was fetched; its hash is checked again.
    """
    manifest = cache.manifest(manifest_hash)
    if manifest is None or manifest.pool_id != scope.pool:
        stored = open_object(object_key("manifests", manifest_hash), MAX_STORED_BYTES)
        manifest = unseal(stored, manifest_hash, scope)
    if step is not None and manifest.step != step:
        raise IntegrityError(f"the manifest is of step {manifest.step}, not {step}", "report it to the pool's owner")
    return manifest


def _fetch_shards(manifest: Manifest, open_object: OpenObject, cache: WeightCache, parallel: int) -> None:
    """Bring every shard into the cache. The first failure ends the fetch, after what is under way has come."""
    places = cache.find_shards()
    wanted = list({shard.sha256: shard for shard in manifest.shards()}.values())
    failed = threading.Event()

    def bring(shard: Shard) -> None:
        if failed.is_set():
            return
        try:
            if cache.read_shard(shard, places) is None:
                cache.store_shard(shard, _checked(shard, open_object(shard.key, shard.size)))
        except BaseException:
            failed.set()
            raise

    with ThreadPoolExecutor(parallel, thread_name_prefix="shards") as pool:
        jobs = [pool.submit(bring, shard) for shard in wanted]
    errors = [error for job in jobs if (error := job.exception()) is not None]
    if errors:
        raise errors[0]


def _checked(shard: Shard, data: bytes) -> bytes:
    if len(data) != shard.size or hashlib.sha256(data).hexdigest() != shard.sha256:
        raise IntegrityError(f"shard {shard.sha256[:16]}… came with other bytes", "fetch it from another source")
    return data


def _assemble(manifest: Manifest, cache: WeightCache, folder: Path) -> None:
    """Write every file of the manifest into `folder`. Raises IntegrityError if shards do not make their file."""
    places = cache.find_shards()
    for file in manifest.files:
        whole = hashlib.sha256()
        with (folder / file.name).open("wb") as out:
            for shard in file.shards:
                data = cache.read_shard(shard, places)
                if data is None:
                    raise MusterError("a shard vanished from the weights cache", "fetch again")
                whole.update(data)
                out.write(data)
        if whole.hexdigest() != file.sha256:
            raise IntegrityError(f"{file.name} does not have its hash", "report the manifest to the pool's owner")
