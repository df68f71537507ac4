"""Fetch a policy step by the hash on chain, from sources that need not be trusted: every byte is checked."""

import errno
import hashlib
import logging
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

from protocol.errors import IntegrityError, MusterError
from protocol.waits import WAITS
from storage.draft import Draft
from storage.keys import object_key
from storage.partial import PartialObject
from storage.weights.assembly import Assembly, Spot, spots
from storage.weights.cache import KEPT_VERSIONS, WeightCache
from storage.weights.manifest import MAX_STORED_BYTES, Manifest, ManifestScope, Shard, StepDelta, unseal
from storage.weights.plan import MAX_LISTED, MAX_LOOKUPS, Link, Way, shortest
from storage.weights.rebuild import prepare, rebuild

log = logging.getLogger("muster.weights")
T = TypeVar("T")
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
OpenObject = Callable[[str, int], bytes]
"""(key, limit in bytes) → the object's bytes; `storage.download.HttpObjects` and `Bucket.get` are such."""
OpenChecked = Callable[[str, int, Callable[[bytes], object]], bytes]
"""The same, and what has to be true of the bytes, or it raises a MusterError: then another source is asked."""
BringObject = Callable[[str, int, Callable[[], Draft]], PartialObject]
"""(key, limit in bytes, what makes drafts) → the object, checked, in one of them; `SpreadSources.bring` is such."""
PARALLEL = 8
WASTE = 2


def fetch(
    manifest_hash: bytes,
    open_object: OpenObject,
    cache_dir: Path,
    scope: ManifestScope,
    step: int | None = None,
    keep: int = KEPT_VERSIONS,
    parallel: int = PARALLEL,
    open_manifest: OpenChecked | None = None,
    bring: BringObject | None = None,
) -> Path:
    """The folder `<cache_dir>/<manifest hash>` with the step's files, complete and checked.

    It is had with the fewest bytes: by deltas from a version in the cache, or from the full shards of this or an
    earlier step. A delta that is of no use, for whatever reason, is left aside, and the log says so. Shards already in
    the cache (from an interrupted fetch or another version) are not fetched again; damaged cache entries are found and
    replaced. At most `parallel` shards are in memory at a time; the `keep` versions used last stay.

    `open_manifest`, if there are several sources, asks another one for a manifest that the owner did not sign. `bring`,
    if there is one, gives shards without passing their bytes through memory.

    Raises IntegrityError if the source serves other bytes, MusterError if the disk is full, or what `open_object`
    raises; what was fetched stays.
    """
    cache = WeightCache(cache_dir)
    with _disk(cache.folder, 0), cache.locked(manifest_hash):
        bringing = _Bringing(cache, open_object, open_manifest or _then_checked(open_object), bring, scope, parallel)
        manifest = bringing.manifest(manifest_hash)
        if step is not None and manifest.step != step:
            raise IntegrityError(
                f"the manifest is of step {manifest.step}, not {step}", "report it to the pool's owner"
            )
        cache.touch(manifest_hash)
        if not cache.is_intact(manifest):
            cache.sweep(manifest_hash)
            bringing.version(manifest)
        cache.remember(manifest)
        cache.touch(manifest_hash)
        cache.prune(keep, manifest_hash)
    return cache.version(manifest_hash)


def _then_checked(open_object: OpenObject) -> OpenChecked:
    def opened(key: str, limit: int, check: Callable[[bytes], object]) -> bytes:
        data = open_object(key, limit)
        check(data)
        return data

    return opened


class DiskFullError(MusterError):
    """There is no room for the weights (now)."""


class _Bringing:
    """One fetch: what it reads from, where to, and whom it believes."""

    def __init__(
        self,
        cache: WeightCache,
        open_object: OpenObject,
        open_manifest: OpenChecked,
        bring: BringObject | None,
        scope: ManifestScope,
        parallel: int,
    ) -> None:
        self._cache, self._open, self._scope, self._parallel = cache, open_object, scope, parallel
        self._open_manifest, self._bring = open_manifest, bring
        self._parents: dict[str, Manifest | None] = {}
        self._came: list[int] = []

    def manifest(self, digest: bytes) -> Manifest:
        """The manifest, checked against its hash, and the pool and owner it must be of.

        The signature of one in the cache was checked when it was fetched; its hash is checked again.
        """
        manifest = self._cache.manifest(digest)
        if manifest is None or manifest.pool_id != self._scope.pool:
            key, check = object_key("manifests", digest), partial(unseal, expected=digest, scope=self._scope)
            manifest = check(self._open_manifest(key, MAX_STORED_BYTES, check))
        return manifest

    def version(self, wanted: Manifest) -> None:
        """Bring a version into the cache, the shortest way that works. Ways that were of no use cost at most about
        WASTE times the full weights before only these are left."""
        every = {(bytes.fromhex(delta.parent), wanted.digest) for delta in wanted.deltas}
        full = sum(file.size for file in wanted.files)
        short: MusterError | None = None
        cache, refused, tried = self._cache, set[Link](), list[Shard]()
        kept = ((digest, cache.manifest(digest)) for digest in cache.versions() if digest != wanted.digest)
        held = {digest: manifest.step for digest, manifest in kept if manifest is not None}
        while True:
            present = {*cache.find_shards(), *(path.name for path in cache.shards.iterdir())}
            way = shortest(wanted, self._parent, held, present, refused)
            tried += way.shards
            try:
                self._go(way, way.bytes(present), complain=bool(refused))
                cache.forget(tried)
                return
            except MusterError as error:
                short = error if isinstance(error, DiskFullError) else short
                if not way.links:
                    raise short or error from None
                if way.held and not cache.is_intact(way.versions[0]):
                    log.warning("step %d is damaged in the cache: it is no base", way.versions[0].step)
                    del held[way.digests[0]]
                    continue
                log.warning("the delta to step %d is of no use: %s; trying another way", wanted.step, error)
                refused |= every if sum(self._came) > WASTE * full else set(way.links)

    def _parent(self, delta: StepDelta) -> Manifest | None:
        if delta.parent not in self._parents:
            found = None
            try:
                found = self.manifest(bytes.fromhex(delta.parent))
            except MusterError as error:
                log.info("no manifest of step %d, from which a delta leads: %s", delta.step, error)
            if found is not None and len(found.every_shard()) > MAX_LISTED // MAX_LOOKUPS:
                return found  # too large to be kept in memory for the next way
            self._parents[delta.parent] = found
        return self._parents[delta.parent]

    def _go(self, way: Way, size: int, complain: bool) -> None:
        """Fetch the `size` bytes that are missing for a way, and go it."""
        wanted = way.versions[-1]
        steps = "a delta" if len(way.links) == 1 else f"{len(way.links)} deltas"
        how = f"{steps} from step {way.versions[0].step}" if way.links else "its full shards"
        log.info("fetching step %d: %s, %.1f MB", wanted.step, how, size / 1e6)
        what = f"weights of step {wanted.step} by {how}" + (", as a delta was of no use" if complain else "")
        # A file's deltas are put together beside it before they are applied.
        aside = max(sum(delta.size for delta in way.deltas_of(file.name)) for file in wanted.files)
        needed = size + aside + sum(file.size for file in wanted.files)
        if not way.links:
            needed = max(0, sum(file.size for file in wanted.files) - self._cache.came(way.digests[0]))
        if shutil.disk_usage(self._cache.folder).free < needed:
            self._cache.make_room(way.shards, b"" if way.links else way.digests[0])
        with WAITS.on(what), _disk(self._cache.folder, needed):
            if not way.links:
                self._assemble(wanted)
                return
            with ThreadPoolExecutor(1, thread_name_prefix="codec") as codec:
                codec.submit(prepare)  # what is wrong with it is said when a delta is applied
                self._fetch_shards(way.shards)
            if way.held:
                self._cache.touch(way.digests[0])
            self._cache.install(wanted, partial(rebuild, way, self._cache))

    def _fetch_shards(self, shards: list[Shard]) -> None:
        """Bring every shard into the cache."""
        cache, places = self._cache, self._cache.find_shards()

        def bring(shard: Shard) -> None:
            if cache.read_shard(shard, places) is not None:
                return
            if self._bring is not None:
                cache.keep_shard(shard, _of_its_size(shard, self._bring(shard.key, shard.size, cache.draft)))
            else:
                cache.store_shard(shard, _checked(shard, self._open(shard.key, shard.size)))
            self._came.append(shard.size)

        self._in_parallel(bring, {shard.sha256: shard for shard in shards}.values())

    def _assemble(self, wanted: Manifest) -> None:
        """Bring every full shard to its place in the files, and make them a version."""
        cache, places = self._cache, self._cache.find_shards()
        with cache.assembly(wanted) as assembly:

            def bring(all_spots: list[Spot]) -> None:
                spot, *others = all_spots
                if not assembly.has(spot):
                    self._to_its_spot(assembly, spot, places)
                assembly.repeat(spot, others)

            self._in_parallel(bring, spots(wanted.files).values())
        cache.complete(wanted)

    def _to_its_spot(self, assembly: Assembly, spot: Spot, places: dict[str, tuple[Path, int]]) -> None:
        shard = spot.shard
        if (data := self._cache.read_shard(shard, places)) is not None:
            assembly.write(spot, data)
            return
        if self._bring is not None:
            assembly.keep(spot, _of_its_size(shard, self._bring(shard.key, shard.size, assembly.drafts(spot))))
        else:
            assembly.write(spot, _checked(shard, self._open(shard.key, shard.size)))
        self._came.append(shard.size)

    def _in_parallel(self, bring: Callable[[T], None], what: Iterable[T]) -> None:
        """The first failure ends it, after what is under way has come."""
        failed = threading.Event()

        def unless_failed(one: T) -> None:
            if failed.is_set():
                return
            try:
                bring(one)
            except BaseException:
                failed.set()
                raise

        with ThreadPoolExecutor(self._parallel, thread_name_prefix="shards") as pool:
            jobs = [pool.submit(unless_failed, one) for one in what]
        errors = [error for job in jobs if (error := job.exception()) is not None]
        if errors:
            raise errors[0]


def _checked(shard: Shard, data: bytes) -> bytes:
    if len(data) != shard.size or hashlib.sha256(data).hexdigest() != shard.sha256:
        raise _other_bytes(shard)
    return data


def _of_its_size(shard: Shard, whole: PartialObject) -> PartialObject:
    """What has the shard's hash: whatever size its owner signed, what is behind its bytes is nobody's."""
    if len(whole) != shard.size:
        whole.drop()
        raise _other_bytes(shard)
    return whole


def _other_bytes(shard: Shard) -> IntegrityError:
    return IntegrityError(f"shard {shard.sha256[:16]}… came with other bytes", "fetch it from another source")


@contextmanager
def _disk(folder: Path, needed: int) -> Iterator[None]:
    """Raises DiskFullError if there are not `needed` bytes of room, or no longer; other errors of the disk become a
    MusterError."""
    hint = "make room, or choose another `cache`; what came stays, and it is tried again"
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise DiskFullError(f"the weights need {needed >> 20} MiB in {folder}, where {free >> 20} MiB are free", hint)
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise DiskFullError(f"cannot write the weights to {folder}: {error.strerror}", hint) from None
        raise MusterError(f"cannot keep the weights in {folder}: {error}", "look at that disk") from None
