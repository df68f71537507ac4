"""Which way a policy step is had with the fewest bytes: nothing here reads or fetches anything.

A way begins with a version that is here, or with the full shards of a snapshot, and goes on by deltas. All that it
needs is named by signed manifests; whether the bytes are right is found out by those who fetch and rebuild.
"""

import errno
import hashlib
import heapq
import itertools
import logging
import shutil
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import TypeVar

from protocol.errors import IntegrityError, MusterError, first_line
from protocol.waits import WAITS
from storage.keys import object_key
from storage.partial import Draft, PartialObject
from storage.weights.cache import KEPT_VERSIONS, Assembly, Spot, WeightCache, has_its_shards, spots
from storage.weights.manifest import (
    MAX_SHARDS,
    MAX_STORED_BYTES,
    FileDelta,
    Manifest,
    ManifestScope,
    Shard,
    StepDelta,
    unseal,
)

MAX_LINKS = 16
"""Deltas one after another."""
MAX_LOOKUPS = 64
MAX_LISTED = 4 * MAX_SHARDS
Link = tuple[bytes, bytes]
"""Digests of the manifests that a delta leads from and to."""
Lookup = Callable[[StepDelta], Manifest | None]
"""The manifest that a delta leads from, None if it cannot be had."""


@dataclass(frozen=True)
class Way:
    """`versions`: where the way begins, and where each of its `deltas` leads; the last is the step that is wanted.
    `digests`: those of the versions' manifests. `held`: the first version is here already, otherwise its files come by
    their shards."""

    versions: tuple[Manifest, ...]
    digests: tuple[bytes, ...]
    deltas: tuple[StepDelta, ...] = ()
    held: bool = False

    @property
    def links(self) -> list[Link]:
        return list(itertools.pairwise(self.digests))

    @property
    def shards(self) -> list[Shard]:
        """All that the way takes."""
        start = [] if self.held else self.versions[0].shards()
        return [*start, *(shard for delta in self.deltas for shard in _shards(delta))]

    def deltas_of(self, name: str) -> list[FileDelta]:
        """The deltas of one file in order; steps that leave it as it is have none."""
        return [file for delta in self.deltas for file in delta.files if file.name == name]

    def bytes(self, present: Collection[str]) -> int:
        """How many bytes have to be fetched, where shards of the SHA-256 in `present` are here."""
        return _bytes(self.shards, present)

    def after(self, parent: Manifest, delta: StepDelta) -> "Way":
        """The way that begins with `parent` and goes on by `delta`, which leads to where this one begins."""
        digest = bytes.fromhex(delta.parent)
        return Way((parent, *self.versions), (digest, *self.digests), (delta, *self.deltas))


def shortest(
    wanted: Manifest,
    lookup: Lookup,
    held: Mapping[bytes, int] = MappingProxyType({}),
    present: Collection[str] = (),
    refused: Collection[Link] = (),
) -> Way:
    """The way to `wanted` with the fewest bytes; the full shards if there is no other.

    `held`: digests and steps of the versions that are here; `present`: SHA-256 of the shards that are; `refused`:
    deltas that turned out to be of no use. Looks at most at MAX_LOOKUPS manifests, at no more shards than MAX_LISTED
    in all of them, and at ways of at most MAX_LINKS deltas.
    """
    tickets, lookups, listed, seen = itertools.count(), 0, 0, set[bytes]()
    full = Way((wanted,), (wanted.digest,))
    heap = [(0, True, next(tickets), full)]
    while heap:
        cost, open_end, _, way = heapq.heappop(heap)
        if not open_end:
            return way
        first, digest = way.versions[0], way.digests[0]
        if digest in seen:
            continue
        seen.add(digest)
        if digest in held:
            heapq.heappush(heap, (cost, False, next(tickets), replace(way, held=True)))
            continue
        if first.snapshot:
            heapq.heappush(heap, (cost + _bytes(first.shards(), present), False, next(tickets), way))
        for delta in _usable(way, held, refused):
            if lookups == MAX_LOOKUPS or listed > MAX_LISTED:
                break
            lookups += 1
            parent = lookup(delta)
            listed += len(parent.every_shard()) if parent is not None else 0
            if parent is not None and _leads(parent, delta, first):
                more = _bytes(_shards(delta), present)
                heapq.heappush(heap, (cost + more, True, next(tickets), way.after(parent, delta)))
    return full


def _usable(way: Way, held: Mapping[bytes, int], refused: Collection[Link]) -> list[StepDelta]:
    """Those of the first version's deltas that may make the way shorter: what begins with full shards anyway is no
    shorter for beginning earlier."""
    first, digest = way.versions[0], way.digests[0]
    if len(way.deltas) >= MAX_LINKS:
        return []
    return [
        delta
        for delta in first.deltas
        if (bytes.fromhex(delta.parent), digest) not in refused
        and (not first.snapshot or any(step <= delta.step for step in held.values()))
    ]


def _leads(parent: Manifest, delta: StepDelta, after: Manifest) -> bool:
    """Whether the delta has all that differs between the two, and nothing else changes but bytes."""
    named = {file.name for file in delta.files}
    before = {file.name: file for file in parent.files}
    if parent.step != delta.step or parent.pool_id != after.pool_id or set(before) != {one.name for one in after.files}:
        return False
    return all(
        before[file.name].sha256 == file.sha256 if file.name not in named else before[file.name].size == file.size
        for file in after.files
    )


def _shards(delta: StepDelta) -> list[Shard]:
    return [shard for file in delta.files for shard in file.shards]


def _bytes(shards: Iterable[Shard], present: Collection[str]) -> int:
    return sum({shard.sha256: shard.size for shard in shards if shard.sha256 not in present}.values())


# ---- Make a version's folder along a way whose shards are in the cache


Places = dict[str, tuple[Path, int]]


def rebuild(way: Way, cache: WeightCache, folder: Path) -> None:
    """Write every file of the way's last version into `folder`.

    Raises IntegrityError if a file does not come out with its hash, MusterError if a shard or a version vanished
    meanwhile, OSError.
    """
    first, last, places = way.versions[0], way.versions[-1], cache.find_shards()
    for file in first.files:
        target = folder / file.name
        if way.held:
            _copy(cache.version(way.digests[0]) / file.name, target, file.size)
        else:
            _join(file.shards, target, cache, places)
        _apply(target, way.deltas_of(file.name), cache, places)
    for file in last.files:
        if not has_its_shards(folder / file.name, file):
            raise IntegrityError(f"{file.name} does not have its hashes", "report the manifest to the pool's owner")


def prepare() -> None:
    """Load what applies deltas, which takes a second. Raises whatever a machine that cannot compile raises."""
    from storage.weights.warm import load_decoder

    load_decoder()


def _copy(source: Path, target: Path, size: int) -> None:
    try:
        if source.is_symlink() or not source.is_file() or source.stat().st_size != size:
            raise MusterError(f"{source} is damaged", "fetch again")
        shutil.copyfile(source, target)
    except FileNotFoundError:
        raise MusterError("a version vanished from the weights cache", "fetch again") from None


def _join(shards: Iterable[Shard], target: Path, cache: WeightCache, places: Places) -> None:
    """Write the shards one after another."""
    with target.open("wb") as out:
        for shard in shards:
            if not cache.copy_shard(shard, places, out):
                raise MusterError("a shard vanished from the weights cache", "fetch again")


def _apply(target: Path, deltas: list[FileDelta], cache: WeightCache, places: Places) -> None:
    if not deltas:
        return
    with TemporaryDirectory(prefix=".deltas.", dir=target.parent) as name:
        found = []
        for number, delta in enumerate(deltas):
            path = Path(name) / str(number)
            _join(delta.shards, path, cache, places)
            found.append((bytes.fromhex(delta.index), path))
        try:
            from storage.weights.delta import apply_file

            apply_file(target, found)
        except (MusterError, OSError):
            raise
        except Exception as error:  # the codec's own trouble, a machine that cannot compile it: there are full shards
            raise IntegrityError(f"cannot apply a delta to {target.name}: {first_line(error)}") from error


# ---- Fetch a policy step by the hash on chain, from sources that need not be trusted


log = logging.getLogger("muster.weights")
T = TypeVar("T")
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
OpenObject = Callable[[str, int], bytes]
"""(key, limit in bytes) → the object's bytes; `storage.transfers.HttpObjects` and `Bucket.get` are such."""
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
