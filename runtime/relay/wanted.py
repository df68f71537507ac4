"""Which objects a relay holds: those that the signed manifests of the newest policy steps name. Pure but for manifests,
which are fetched."""

from collections.abc import Callable, Iterator

from chain.records import Pool
from chain.state import State
from storage.keys import object_key
from storage.weights.manifest import Manifest, Shard

LOOK_BACK = 64
"""Steps before the newest at which a relay looks at all."""
_FILES = 2000


def wanted_steps(state: State, pool: Pool, steps: int, now: float) -> list[int]:
    """The newest `steps`, and those of files that are not final at `now`, newest first; none older than LOOK_BACK."""
    oldest = max(0, pool.step - LOOK_BACK)
    judged = {
        file.step
        for file in (state.submissions[pool.pool, one] for one in pool.sequences[-_FILES:])
        if not file.is_final(int(now)) and file.step >= oldest
    }
    newest = range(max(oldest, pool.step - steps + 1), pool.step + 1)
    return sorted({*newest, *judged}, reverse=True)


def until_snapshot(pool: Pool, steps: list[int], look: Callable[[int], Manifest | None]) -> Iterator[int]:
    """`steps`, and then the earlier ones back to the last snapshot, which those who join late begin with."""
    seen = False
    for step in steps:
        manifest = look(step)
        seen = seen or (manifest is not None and manifest.snapshot)
        yield step
    step = min(steps, default=0) - 1
    while not seen and step >= max(0, pool.step - LOOK_BACK):
        manifest = look(step)
        seen = manifest is not None and manifest.snapshot
        yield step
        step -= 1


def objects_of(manifest: Manifest, stored: int) -> Iterator[tuple[str, int]]:
    """(key, bytes) of what was published of a step: its manifest of `stored` bytes, its deltas, then its files."""
    yield object_key("manifests", manifest.digest), stored
    shards = [shard for delta in manifest.deltas for file in delta.files for shard in file.shards]
    yield from map(_entry, shards)
    if manifest.snapshot:
        yield from map(_entry, manifest.shards())


def _entry(shard: Shard) -> tuple[str, int]:
    return shard.key, shard.size
