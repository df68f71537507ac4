"""Which way a policy step is had with the fewest bytes: nothing here reads or fetches anything.

A way begins with a version that is here, or with the full shards of a snapshot, and goes on by deltas. All that it
needs is named by signed manifests; whether the bytes are right is found out by those who fetch and rebuild.
"""

import heapq
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from storage.weights.manifest import MAX_SHARDS, FileDelta, Manifest, Shard, StepDelta

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
