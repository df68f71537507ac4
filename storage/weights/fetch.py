"""Fetch a policy step by the hash on chain, from sources that need not be trusted: every byte is checked.

A plan starts with a version in the cache or with the full shards of a snapshot, and continues by deltas.
"""

import errno
import heapq
import itertools
import logging
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from protocol.errors import IntegrityError, MusterError, first_line
from protocol.waits import WAITS
from storage.keys import object_key
from storage.partial import PartFile, PartialDownload
from storage.sources import MultiSource
from storage.weights.cache import (
    KEPT_VERSIONS,
    Assembly,
    Locations,
    Spot,
    WeightCache,
    has_its_shards,
    shards_of,
    spots,
)
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

log = logging.getLogger("muster.weights")
T = TypeVar("T")
MAX_DELTAS_IN_A_ROW = 16
MAX_LOOKUPS = 64
"""Manifests that planning looks at."""
MAX_LISTED = 4 * MAX_SHARDS
"""Shards that these manifests may name, all together."""
PARALLEL = 8  # shards on their way at a time
WASTE_FACTOR = 2
"""Once useless deltas have cost this many times the full weights, only the full weights are tried."""
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
Link = tuple[bytes, bytes]
"""Digests of the manifests that a delta leads from and to."""
Lookup = Callable[[StepDelta], Manifest | None]
"""Returns the manifest that a delta leads from, None if it cannot be had."""
OpenObject = Callable[[str, int], bytes]
"""(key, limit in bytes) → the object's bytes, such as `storage.transfers.HttpObjects` or `Bucket.get`."""
FetchObject = Callable[[str, int, Callable[[], PartFile]], PartialDownload]
"""(key, limit in bytes, makes part files) → the object, checked, in one of them, such as `MultiSource.fetch`."""


# Planning


@dataclass(frozen=True)
class FetchPlan:
    """`versions`: where the plan starts, and where each of its `deltas` leads; the last is the wanted step. `digests`
    are those of the versions' manifests. `held`: the first version is in the cache; otherwise its full shards are
    fetched."""

    versions: tuple[Manifest, ...]
    digests: tuple[bytes, ...]
    deltas: tuple[StepDelta, ...] = ()
    held: bool = False

    @property
    def links(self) -> list[Link]:
        return list(itertools.pairwise(self.digests))

    @property
    def assembled(self) -> dict[str, Sequence[Shard]]:
        """The shards of all files that the plan takes: those of the first version unless it is held, then the deltas,
        under names that no file of a version has."""
        start = {} if self.held else shards_of(self.versions[0])
        deltas = (file for delta in self.deltas for file in delta.files)
        return start | {f".delta-{number}": file.shards for number, file in enumerate(deltas)}

    def deltas_of(self, name: str) -> list[tuple[str, FileDelta]]:
        """Return the deltas of one file in order, each with its name in `assembled`; steps that leave it unchanged have
        none."""
        deltas = enumerate(file for delta in self.deltas for file in delta.files)
        return [(f".delta-{number}", file) for number, file in deltas if file.name == name]

    def bytes(self, present: Collection[str]) -> int:
        """Return how many bytes have to be fetched if shards of the SHA-256 in `present` are here."""
        return _total_bytes(itertools.chain.from_iterable(self.assembled.values()), present)

    def after(self, parent: Manifest, delta: StepDelta) -> "FetchPlan":
        """Return the plan that goes from `parent` by `delta` to where this one starts."""
        digest = bytes.fromhex(delta.parent)
        return FetchPlan((parent, *self.versions), (digest, *self.digests), (delta, *self.deltas))


def cheapest_plan(
    wanted: Manifest,
    lookup: Lookup,
    held: Mapping[bytes, int] = MappingProxyType({}),
    present: Collection[str] = (),
    refused: Collection[Link] = (),
) -> FetchPlan:
    """Return the plan for `wanted` with the fewest bytes; its full shards if there is no other.

    `held`: digests and steps of the versions in the cache; `present`: SHA-256 of the shards that are here; `refused`:
    deltas that turned out useless. Looks at no more than MAX_LOOKUPS manifests and MAX_LISTED shards, and at plans of
    at most MAX_DELTAS_IN_A_ROW deltas.
    """
    tickets, lookups, listed, seen = itertools.count(), 0, 0, set[bytes]()
    full = FetchPlan((wanted,), (wanted.digest,))
    heap = [(0, True, next(tickets), full)]
    while heap:
        cost, is_open, _, plan = heapq.heappop(heap)
        if not is_open:
            return plan
        first, digest = plan.versions[0], plan.digests[0]
        if digest in seen:
            continue
        seen.add(digest)
        if digest in held:
            heapq.heappush(heap, (cost, False, next(tickets), replace(plan, held=True)))
            continue
        if first.snapshot:
            heapq.heappush(heap, (cost + _total_bytes(first.shards(), present), False, next(tickets), plan))
        for delta in _usable_deltas(plan, held, refused):
            if lookups == MAX_LOOKUPS or listed > MAX_LISTED:
                break
            lookups += 1
            parent = lookup(delta)
            listed += len(parent.every_shard()) if parent is not None else 0
            if parent is not None and _leads(parent, delta, first):
                more = _total_bytes(delta.shards, present)
                heapq.heappush(heap, (cost + more, True, next(tickets), plan.after(parent, delta)))
    return full


def _usable_deltas(plan: FetchPlan, held: Mapping[bytes, int], refused: Collection[Link]) -> list[StepDelta]:
    """The first version's deltas that may save bytes; where there is a snapshot, only those from a held version."""
    first, digest = plan.versions[0], plan.digests[0]
    if len(plan.deltas) >= MAX_DELTAS_IN_A_ROW:
        return []
    return [
        delta
        for delta in first.deltas
        if (bytes.fromhex(delta.parent), digest) not in refused
        and (not first.snapshot or any(step <= delta.step for step in held.values()))
    ]


def _leads(parent: Manifest, delta: StepDelta, after: Manifest) -> bool:
    """Whether the delta covers everything that differs between the two, and only bytes change."""
    named = {file.name for file in delta.files}
    before = {file.name: file for file in parent.files}
    if (
        parent.step != delta.step
        or parent.pool_id != after.pool_id
        or set(before) != {file.name for file in after.files}
    ):
        return False
    return all(
        before[file.name].sha256 == file.sha256 if file.name not in named else before[file.name].size == file.size
        for file in after.files
    )


def _total_bytes(shards: Iterable[Shard], present: Collection[str]) -> int:
    return sum({shard.sha256: shard.size for shard in shards if shard.sha256 not in present}.values())


# Fetching


class DiskFullError(MusterError):
    """There is no room for the weights (now)."""


def fetch(
    manifest_hash: bytes,
    source: MultiSource,
    cache_dir: Path,
    scope: ManifestScope,
    step: int | None = None,
    keep: int = KEPT_VERSIONS,
    fetch_object: FetchObject | None = None,
) -> Path:
    """Return the folder `<cache_dir>/<manifest hash>` with the step's files, complete and checked.

    The step is fetched with the fewest bytes: shards in the cache are not fetched again, and damaged ones are replaced.
    The `keep` versions used last stay. `fetch_object` fetches shards, if not `source` does.

    Raises IntegrityError if the source serves other bytes, DiskFullError, or what `source` raises; what was fetched
    stays.
    """
    cache = WeightCache(cache_dir)
    with _disk_errors(cache.folder, 0), cache.locked(manifest_hash):
        fetcher = _Fetcher(cache, source, fetch_object, scope)
        manifest = fetcher.manifest(manifest_hash)
        if step is not None and manifest.step != step:
            what = f"the manifest is for step {manifest.step}, not {step}"
            raise IntegrityError(what, "report it to the pool's owner")
        cache.touch(manifest_hash)
        if not cache.is_intact(manifest):
            cache.sweep(manifest_hash)
            fetcher.version(manifest)
        cache.remember(manifest)
        cache.touch(manifest_hash)
        cache.prune(keep, manifest_hash)
    return cache.version(manifest_hash)


class _Fetcher:
    """One fetch into `cache` from `source` and `fetch_object`, believing manifests of `scope`."""

    def __init__(
        self, cache: WeightCache, source: MultiSource, fetch_object: FetchObject | None, scope: ManifestScope
    ) -> None:
        self._cache, self._source, self._scope = cache, source, scope
        self._fetch_object = fetch_object or source.fetch
        self._parents: dict[str, Manifest | None] = {}
        self._fetched_sizes: list[int] = []

    def manifest(self, digest: bytes) -> Manifest:
        """Return the manifest, checked against its hash and the pool and owner that it must be of.

        The signature of one in the cache was checked when it was fetched; its hash is checked again.
        """
        manifest = self._cache.manifest(digest)
        if manifest is not None and manifest.pool_id == self._scope.pool:
            return manifest
        check = partial(unseal, expected=digest, scope=self._scope)
        return check(self._source(object_key("manifests", digest), MAX_STORED_BYTES, check))

    def version(self, wanted: Manifest) -> None:
        """Fetch a version into the cache by the cheapest plan that works."""
        every = {(bytes.fromhex(delta.parent), wanted.digest) for delta in wanted.deltas}
        full = sum(file.size for file in wanted.files)
        disk_full: MusterError | None = None
        cache, refused = self._cache, set[Link]()
        cached = ((digest, cache.manifest(digest)) for digest in cache.versions() if digest != wanted.digest)
        held_steps = {digest: manifest.step for digest, manifest in cached if manifest is not None}
        while True:
            present = cache.find_shards()
            plan = cheapest_plan(wanted, self._parent, held_steps, present, refused)
            try:
                return self._execute(plan, present, after_failure=bool(refused))
            except MusterError as error:
                disk_full = error if isinstance(error, DiskFullError) else disk_full
                if not plan.links:
                    raise disk_full or error from None
                if plan.held and not cache.is_intact(plan.versions[0]):
                    log.warning("step %d is damaged in the cache: it is no base", plan.versions[0].step)
                    del held_steps[plan.digests[0]]
                    continue
                log.warning("the delta to step %d is useless: %s; trying another plan", wanted.step, error)
                refused |= every if sum(self._fetched_sizes) > WASTE_FACTOR * full else set(plan.links)

    def _parent(self, delta: StepDelta) -> Manifest | None:
        if delta.parent not in self._parents:
            parent = None
            try:
                parent = self.manifest(bytes.fromhex(delta.parent))
            except MusterError as error:
                log.info("no manifest of step %d, from which a delta leads: %s", delta.step, error)
            if parent is not None and len(parent.every_shard()) > MAX_LISTED // MAX_LOOKUPS:
                return parent  # too large to be kept in memory for the next plan
            self._parents[delta.parent] = parent
        return self._parents[delta.parent]

    def _execute(self, plan: FetchPlan, present: Locations, after_failure: bool) -> None:
        """Fetch what a plan lacks, and build its last version."""
        wanted, cache, size = plan.versions[-1], self._cache, plan.bytes(present)
        steps = "a delta" if len(plan.links) == 1 else f"{len(plan.links)} deltas"
        how = f"{steps} from step {plan.versions[0].step}" if plan.links else "its full shards"
        log.info("fetching step %d: %s, %.1f MB", wanted.step, how, size / 1e6)
        what = f"weights of step {wanted.step} by {how}" + (", after a useless delta" if after_failure else "")
        needed = sum(file.size for file in wanted.files) + (plan.bytes(()) if plan.links else 0)
        needed = max(0, needed - cache.assembled_bytes(wanted.digest, plan.assembled))
        if shutil.disk_usage(cache.folder).free < needed:
            cache.make_room(wanted.digest)
        with WAITS.on(what), _disk_errors(cache.folder, needed):
            with Assembly(cache.parts(wanted.digest), plan.assembled) as assembly:

                def fetch_one(all_spots: list[Spot]) -> None:
                    spot, *others = all_spots
                    if not assembly.has(spot) and not assembly.copy(spot, present):
                        assembly.keep(spot, self._fetched(spot.shard, assembly.part_files(spot)))
                    assembly.repeat(spot, others)

                self._in_parallel(fetch_one, spots(plan.assembled).values())
            if plan.held:
                cache.touch(plan.digests[0])
            cache.install(wanted, partial(rebuild, plan, cache) if plan.links else None)

    def _fetched(self, shard: Shard, part_files: Callable[[], PartFile]) -> PartialDownload:
        """Fetch a shard and check it. Its hash does not say its size: the owner may have signed another."""
        whole = self._fetch_object(shard.key, shard.size, part_files)
        if len(whole) != shard.size or whole.sha256.hex() != shard.sha256:
            whole.drop()
            raise IntegrityError(f"shard {shard.sha256[:16]}… came with other bytes", "fetch it from another source")
        self._fetched_sizes.append(shard.size)
        return whole

    def _in_parallel(self, job: Callable[[T], None], items: Iterable[T]) -> None:
        """Run the job for all items. The first failure ends it, after the running jobs have ended."""
        with ThreadPoolExecutor(PARALLEL, thread_name_prefix="shards") as pool:
            jobs = [pool.submit(job, item) for item in items]
            wait(jobs, return_when=FIRST_EXCEPTION)
            pool.shutdown(cancel_futures=True)
        for submitted in jobs:
            if not submitted.cancelled():
                submitted.result()


@contextmanager
def _disk_errors(folder: Path, needed: int) -> Iterator[None]:
    """Raise DiskFullError if fewer than `needed` bytes are free, now or later; other disk errors become MusterError."""
    hint = "make room, or choose another `cache`; what was fetched stays, and the fetch is repeated"
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise DiskFullError(f"the weights need {needed >> 20} MiB in {folder}, where {free >> 20} MiB are free", hint)
    try:
        yield
    except OSError as error:
        if error.errno in _DISK_FULL:
            raise DiskFullError(f"cannot write the weights to {folder}: {error.strerror}", hint) from None
        raise MusterError(f"cannot keep the weights in {folder}: {error}", "look at that disk") from None


# Rebuilding a version from a plan whose files are assembled


def rebuild(plan: FetchPlan, cache: WeightCache, folder: Path) -> None:
    """Write every file of the plan's last version into `folder`. Raises IntegrityError, MusterError, OSError."""
    parts = cache.parts(plan.digests[-1])
    base = cache.version(plan.digests[0]) if plan.held else parts
    for file in plan.versions[0].files:
        source = base / file.name
        if source.is_symlink() or not source.is_file() or source.stat().st_size != file.size:
            raise MusterError(f"{source} is damaged, or has vanished", "fetch again")
        shutil.copyfile(source, folder / file.name)
        _apply(
            folder / file.name,
            [(bytes.fromhex(delta.index), parts / name) for name, delta in plan.deltas_of(file.name)],
        )
    for file in plan.versions[-1].files:
        if not has_its_shards(folder / file.name, file):
            raise IntegrityError(f"{file.name} does not have its hashes", "report the manifest to the pool's owner")


def _apply(target: Path, deltas: list[tuple[bytes, Path]]) -> None:
    if not deltas:
        return
    try:
        from storage.weights.delta import apply_file  # lazy: it brings a compiler

        apply_file(target, deltas)
    except (MusterError, OSError):
        raise
    except Exception as error:  # such as a machine that cannot compile the codec: there are full shards
        raise IntegrityError(f"cannot apply a delta to {target.name}: {first_line(error)}") from error
