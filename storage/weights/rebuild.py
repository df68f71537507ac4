"""Make a version's folder along a way whose shards are in the cache: whole files, then deltas, then every hash."""

import shutil
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

from protocol.errors import IntegrityError, MusterError, first_line
from storage.weights.cache import WeightCache, has_its_shards
from storage.weights.manifest import FileDelta, Shard
from storage.weights.plan import Way

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
            from storage.weights.codec import apply_file

            apply_file(target, found)
        except (MusterError, OSError):
            raise
        except Exception as error:  # the codec's own trouble, a machine that cannot compile it: there are full shards
            raise IntegrityError(f"cannot apply a delta to {target.name}: {first_line(error)}") from error
