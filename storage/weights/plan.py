"""Which way a policy step is had with the fewest bytes: nothing here reads or fetches anything.

A way begins with a version that is here, or with the full shards of a snapshot, and goes on by deltas. All that it
needs is named by signed manifests; whether the bytes are right is found out by those who fetch and rebuild.
"""

import heapq
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from storage.weights.manifest import MAX_SHARDS, FileDelta, Manifest, Shard, StepDelta, WeightFile

MAX_LINKS = 16
"""Deltas one after another."""
MAX_LOOKUPS = 64
Link = tuple[bytes, bytes]
"""Digests of the manifests that a delta leads from and to."""
Lookup = Callable[[StepDelta], Manifest | None]
"""The manifest that a delta leads from, None if it cannot be had."""


@dataclass(frozen=True)
class Way:
    """`versions`: where the way begins, and where each delta leads; the last is the step that is wanted. `held`: the
    first one is here already, otherwise its files come by their shards."""

    versions: tuple[Manifest, ...]
    held: bool

    @property
    def links(self) -> list[Link]:
        return [(one.digest, after.digest) for one, after in itertools.pairwise(self.versions)]

    @property
    def shards(self) -> list[Shard]:
        """All that the way takes."""
        return [*self.start_shards, *self.delta_shards]

    @property
    def start_shards(self) -> list[Shard]:
        return [] if self.held else self.versions[0].shards()

    @property
    def delta_shards(self) -> list[Shard]:
        return [shard for one, after in itertools.pairwise(self.versions) for shard in _shards(delta_of(one, after))]

    def deltas(self, name: str) -> list[tuple[FileDelta, WeightFile]]:
        """The deltas of one file in order, each with the file that it makes; steps that leave it as it is have none."""
        found = []
        for one, after in itertools.pairwise(self.versions):
            made = after.file(name)
            for delta in delta_of(one, after).files:
                if made is not None and delta.name == name:
                    found.append((delta, made))
        return found

    def bytes(self, present: Collection[str]) -> int:
        """How many bytes have to be fetched, where shards of the SHA-256 in `present` are here."""
        return _bytes(self.shards, present)


def full(manifest: Manifest) -> Way:
    """The way without deltas."""
    return Way((manifest,), held=False)


def shortest(
    wanted: Manifest,
    lookup: Lookup,
    held: Mapping[bytes, int] = MappingProxyType({}),
    present: Collection[str] = (),
    refused: Collection[Link] = (),
) -> Way:
    """The way to `wanted` with the fewest bytes; the full shards if there is no other.

    `held`: digests and steps of the versions that are here; `present`: SHA-256 of the shards that are; `refused`:
    deltas that turned out to be of no use. Looks at most at MAX_LOOKUPS manifests, and at ways
    of at most MAX_LINKS deltas.
    """
    tickets, lookups, seen = itertools.count(), 0, set[bytes]()
    heap = [(0, True, next(tickets), Way((wanted,), held=False))]
    while heap:
        cost, open_end, _, way = heapq.heappop(heap)
        if not open_end:
            return way
        first = way.versions[0]
        if first.digest in seen:
            continue
        seen.add(first.digest)
        if first.digest in held:
            heapq.heappush(heap, (cost, False, next(tickets), Way(way.versions, held=True)))
            continue
        if first.snapshot:
            whole = _bytes(first.shards(), present)
            heapq.heappush(heap, (cost + whole, False, next(tickets), way))
        for delta in _usable(way, refused):
            # What begins with full shards anyway is no shorter for going on from here.
            worthwhile = not first.snapshot or any(step <= delta.step for step in held.values())
            if lookups == MAX_LOOKUPS or not worthwhile:
                continue
            lookups += 1
            parent = lookup(delta)
            if parent is not None and _leads(parent, delta, first):
                more = _bytes(_shards(delta), present)
                longer = Way((parent, *way.versions), held=False)
                heapq.heappush(heap, (cost + more, True, next(tickets), longer))
    return full(wanted)


def delta_of(one: Manifest, after: Manifest) -> StepDelta:
    """The delta of `after` from `one`. Raises StopIteration if there is none."""
    parent = one.digest.hex()
    return next(delta for delta in after.deltas if delta.parent == parent)


def _usable(way: Way, refused: Collection[Link]) -> Iterable[StepDelta]:
    """Those of the first version's deltas that may make the way longer, unless manifests would fill the memory."""
    first = way.versions[0]
    if len(way.versions) > MAX_LINKS or sum(len(one.shards()) for one in way.versions) > 2 * MAX_SHARDS:
        return ()
    return [delta for delta in first.deltas if (bytes.fromhex(delta.parent), first.digest) not in refused]


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
