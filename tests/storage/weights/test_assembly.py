"""A version's files while they come."""

import os
import random
import resource
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from protocol.errors import IntegrityError, MusterError
from storage.keys import object_key
from storage.partial import PartFile, PartialDownload
from storage.weights import cache
from storage.weights.cache import Assembly, Spot, WeightCache, shards_of, spots
from storage.weights.fetch import fetch
from storage.weights.manifest import Manifest, Shard, seal
from tests.storage.weights.folders import OWNER, PUBLISHER, contents, model_folder, publish, source_of
from tests.storage.weights.test_fetch import Store

SHARD = 1000


class Bringing(Store):
    """Gives objects as part_files, whose bytes come in two parts; after `gives` of them none any more."""

    gives = 1 << 30

    def fetch(self, key: str, limit: int, part_files: Callable[[], PartFile]) -> PartialDownload:
        if self.shards_read() >= self.gives:
            raise MusterError("no more")
        data, partial = self.get(key, limit), PartialDownload(part_files=part_files)
        partial.append(data[:10])
        partial.append(data[10:])
        return partial


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Bringing:
    monkeypatch.setattr("storage.weights.fetch.PARALLEL", 1)
    return Bringing()


@pytest.fixture
def manifest(store: Bringing, tmp_path: Path) -> Manifest:
    return publish(model_folder(tmp_path / "v0"), store, PUBLISHER, 0, None, OWNER, shard_size=SHARD)


def test_a_way_of_many_deltas_opens_more_files_than_a_process_usually_may(tmp_path: Path) -> None:
    limits, shard = resource.getrlimit(resource.RLIMIT_NOFILE), Shard(sha256="aa" * 32, size=1)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))
    try:
        with Assembly(tmp_path / "parts", {f".delta-{number}": [shard] for number in range(300)}) as assembly:
            assert len(list(assembly.folder.iterdir())) == 300
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def one_spot(manifest: Manifest) -> Spot:
    return spots(shards_of(manifest))[manifest.files[2].shards[1].sha256][0]


def get(store: Bringing, manifest: Manifest, tmp_path: Path) -> Path:
    return fetch(manifest.digest, source_of(store.get), tmp_path / "cache", PUBLISHER, fetch_object=store.fetch)


def test_what_came_stays_and_is_not_fetched_again(store: Bringing, manifest: Manifest, tmp_path: Path) -> None:
    store.gives = 5
    with pytest.raises(MusterError, match="no more"):
        get(store, manifest, tmp_path)
    store.gives = 1 << 30
    assert contents(get(store, manifest, tmp_path)) == contents(tmp_path / "v0")
    shards = [count for key, count in store.read.items() if key.startswith("shards/")]
    assert set(shards) == {1}
    assert len(shards) == len({shard.sha256 for shard in manifest.shards()}), "those that belong twice came once"
    assert [path.name for path in (tmp_path / "cache").glob(".*.parts")] == []
    assert not list((tmp_path / "cache" / "shards").iterdir())


@pytest.mark.parametrize("what", ["wrong bytes", "a link", "a pipe", "another file", "a linked folder"])
def test_what_a_former_process_left_is_not_believed(
    store: Bringing, manifest: Manifest, tmp_path: Path, what: str
) -> None:
    parts, outside = tmp_path / "cache" / f".{manifest.digest.hex()}.parts", tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_bytes(b"precious")
    parts.parent.mkdir()
    if what == "a linked folder":
        parts.symlink_to(outside)
    else:
        parts.mkdir()
        place = parts / "model.safetensors"
        if what == "wrong bytes":
            place.write_bytes(random.Random(9).randbytes(20_000))
        elif what == "a link":
            place.symlink_to(outside / "precious")
        elif what == "a pipe":
            os.mkfifo(place)
        else:
            (parts / "more.safetensors").write_bytes(b"more")
    assert contents(get(store, manifest, tmp_path)) == contents(tmp_path / "v0")
    assert contents(outside) == {"precious": b"precious"}


def test_one_draft_at_a_time_is_at_its_spot(store: Bringing, manifest: Manifest, tmp_path: Path) -> None:
    """Who is asked besides writes elsewhere; if it is first, its bytes are copied and the other's never come after."""
    spot = one_spot(manifest)
    right = store.objects[spot.shard.key]
    (tmp_path / "shards").mkdir()
    with Assembly(tmp_path / "parts", shards_of(manifest)) as parts:
        part_files = parts.part_files(spot)
        slow, fast = PartialDownload("slow", part_files=part_files), PartialDownload("fast", part_files=part_files)
        slow.append(bytes(10))
        fast.append(right)
        slow.abandon()
        slow.drop()
        parts.keep(spot, fast)
        with pytest.raises(MusterError):
            slow.append(bytes(10))
        fast.drop()
    with Assembly(tmp_path / "parts", shards_of(manifest)) as parts:
        assert parts.has(spot)
    assert not list((tmp_path / "shards").iterdir())


def test_a_shard_shorter_than_its_manifest_says_is_refused(store: Bringing, manifest: Manifest, tmp_path: Path) -> None:
    """The owner signed a size that the bytes of this hash do not have: what is behind them would be anything, another
    thing at each node."""
    file = manifest.files[2]
    last = file.shards[-1].model_copy(update={"size": file.shards[-1].size + 100})
    longer = file.model_copy(update={"size": file.size + 100, "shards": (*file.shards[:-1], last)})
    lying = Manifest.model_validate({**dict(manifest), "files": (*manifest.files[:2], longer, *manifest.files[3:])})
    store.put(object_key("manifests", lying.digest), seal(lying, OWNER))
    with pytest.raises(IntegrityError, match="came with other bytes"):
        get(store, lying, tmp_path)
    assert not (tmp_path / "cache" / lying.digest.hex()).exists()


def test_two_that_begin_at_once_do_not_share_the_spot(
    manifest: Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A source that was caught begins anew just as another one is asked besides."""

    class Slow(PartFile):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            time.sleep(0.2)
            super().__init__(*args, **kwargs)

    monkeypatch.setattr(cache, "PartFile", Slow)
    (tmp_path / "shards").mkdir()
    spot = one_spot(manifest)
    with Assembly(tmp_path / "parts", shards_of(manifest)) as parts, ThreadPoolExecutor(2) as pool:
        part_files = parts.part_files(spot)
        made = [pool.submit(part_files) for _ in range(2)]
        assert len({draft.result()._location[0].name for draft in made}) == 2  # type: ignore[index]


def test_a_shard_that_belongs_twice_is_whole_where_the_disk_takes_a_part_at_a_time(
    store: Bringing, manifest: Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it does when it is about to be full."""
    whole = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda handle, data, at: whole(handle, bytes(data)[:300], at))
    assert contents(get(store, manifest, tmp_path)) == contents(tmp_path / "v0")


def test_what_came_makes_no_room_for_itself(
    store: Bringing, manifest: Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long ago most of it came, and there is no room for all of it besides; a version of another owner goes."""
    store.gives = 5
    with pytest.raises(MusterError, match="no more"):
        get(store, manifest, tmp_path)
    store.gives = 1 << 30
    mine, other = (tmp_path / "cache" / f".{name}.parts" for name in (manifest.digest.hex(), "ab" * 32))
    other.mkdir()
    for folder in (mine, other):
        os.utime(folder, (time.time() - 7200,) * 2)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=(1 << 30) * (not other.exists())))
    monkeypatch.setattr("storage.weights.fetch._disk_errors", lambda *_: nullcontext())
    assert contents(get(store, manifest, tmp_path)) == contents(tmp_path / "v0")
    assert not other.exists()
    assert {count for key, count in store.read.items() if key.startswith("shards/")} == {1}


def test_an_assembly_that_shards_come_into_is_not_idle(store: Bringing, manifest: Manifest, tmp_path: Path) -> None:
    """Where a step takes hours, others that need room must leave it alone."""
    folder, spot = tmp_path / "parts", one_spot(manifest)
    with Assembly(folder, shards_of(manifest)) as parts:
        os.utime(folder, (0, 0))
        parts.keep(spot, store.fetch(spot.shard.key, spot.shard.size, parts.part_files(spot)))
    assert folder.stat().st_mtime > time.time() - 600


def test_a_version_whose_manifest_was_not_written_in_time_is_found_again(
    store: Bringing, manifest: Manifest, tmp_path: Path
) -> None:
    """A process that died between the two: otherwise no delta would ever lead from it."""
    get(store, manifest, tmp_path)
    (tmp_path / "cache" / f"{manifest.digest.hex()}.json").unlink()
    get(store, manifest, tmp_path)
    assert WeightCache(tmp_path / "cache").manifest(manifest.digest) == manifest
