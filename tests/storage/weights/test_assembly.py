"""A version's files while they come."""

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from protocol.errors import MusterError
from storage.draft import Draft
from storage.partial import PartialObject
from storage.weights.assembly import Assembly, spots
from storage.weights.fetch import fetch
from storage.weights.manifest import Manifest
from storage.weights.publish import publish
from tests.storage.weights.folders import OWNER, PUBLISHER, contents, model_folder
from tests.storage.weights.test_fetch import Store

SHARD = 1000


class Bringing(Store):
    """Gives objects as drafts, whose bytes come in two parts; after `gives` of them none any more."""

    gives = 1 << 30

    def bring(self, key: str, limit: int, drafts: Callable[[], Draft]) -> PartialObject:
        if self.shards_read() >= self.gives:
            raise MusterError("no more")
        data, partial = self.get(key, limit), PartialObject(drafts=drafts)
        partial.append(data[:10])
        partial.append(data[10:])
        return partial


@pytest.fixture
def store() -> Bringing:
    return Bringing()


@pytest.fixture
def manifest(store: Bringing, tmp_path: Path) -> Manifest:
    return publish(model_folder(tmp_path / "v0"), store, PUBLISHER, 0, None, OWNER, shard_size=SHARD)


def get(store: Bringing, manifest: Manifest, tmp_path: Path) -> Path:
    return fetch(manifest.digest, store.get, tmp_path / "cache", PUBLISHER, parallel=1, bring=store.bring)


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
    spot = spots(manifest.files)[manifest.files[2].shards[1].sha256][0]
    right = store.objects[spot.shard.key]
    (tmp_path / "shards").mkdir()
    with Assembly(tmp_path / "parts", manifest.files) as assembly:
        drafts = assembly.drafts(spot)
        slow, fast = PartialObject("slow", drafts=drafts), PartialObject("fast", drafts=drafts)
        slow.append(bytes(10))
        fast.append(right)
        slow.abandon()
        slow.drop()
        assembly.keep(spot, fast)
        with pytest.raises(MusterError):
            slow.append(bytes(10))
        fast.drop()
    with Assembly(tmp_path / "parts", manifest.files) as assembly:
        assert assembly.has(spot)
    assert not list((tmp_path / "shards").iterdir())
