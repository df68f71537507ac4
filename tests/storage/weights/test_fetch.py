import os
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import ConfigError, IntegrityError
from storage.keys import MissingObjectError, check_content, object_key
from storage.weights.fetch import fetch
from storage.weights.manifest import Manifest, seal
from tests.storage.weights.folders import OWNER, PUBLISHER, contents, model_folder, publish, source_of


class Store:
    """Objects in memory that counts what is read and stored."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.stored: list[str] = []
        self.read: Counter[str] = Counter()
        self.lock = threading.Lock()

    def put(self, key: str, data: bytes) -> bool:
        if key in self.objects:
            return False
        self.objects[key] = data
        self.stored.append(key)
        return True

    def get(self, key: str, limit: int) -> bytes:
        with self.lock:
            self.read[key] += 1
        time.sleep(0.001)
        if key not in self.objects:
            raise MissingObjectError(f"no object {key}")
        return self.objects[key]

    def shards_read(self) -> int:
        return sum(count for key, count in self.read.items() if key.startswith("shards/"))


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def manifest(store: Store, tmp_path: Path) -> Manifest:
    return publish(model_folder(tmp_path / "v0"), store, PUBLISHER, 0, None, OWNER, shard_size=1000)


def get(store: Store, manifest: Manifest, tmp_path: Path, **options: Any) -> Path:
    return fetch(manifest.digest, source_of(store.get), tmp_path / "cache", PUBLISHER, **options)


def test_publish_and_fetch(store: Store, manifest: Manifest, tmp_path: Path) -> None:
    folder = get(store, manifest, tmp_path, step=0)
    assert folder == tmp_path / "cache" / manifest.digest.hex()
    assert contents(folder) == contents(tmp_path / "v0")
    assert store.stored[-1].startswith("manifests/"), "the manifest goes last"
    read = store.shards_read()
    assert get(store, manifest, tmp_path) == folder
    assert store.shards_read() == read, "a second fetch reads the cache"
    assert not list((tmp_path / "cache" / "shards").iterdir()), "nothing is stored twice"


def test_only_new_shards_travel(store: Store, manifest: Manifest, tmp_path: Path) -> None:
    get(store, manifest, tmp_path)
    before, stored = store.shards_read(), len(store.stored)
    second = model_folder(tmp_path / "v1")
    raw = bytearray((second / "model.safetensors").read_bytes())
    raw[4500] ^= 1
    (second / "model.safetensors").write_bytes(raw)
    later = publish(second, store, PUBLISHER, 1, manifest.digest, OWNER, shard_size=1000)
    assert len(store.stored) - stored == 2, "one shard and the manifest"
    assert contents(get(store, later, tmp_path)) == contents(second)
    assert store.shards_read() - before == 1
    assert later.parent == manifest.digest.hex()


@pytest.mark.parametrize("how", ["other", "short", "long", "empty"])
def test_tampered_shard(store: Store, manifest: Manifest, tmp_path: Path, how: str) -> None:
    key = manifest.shards()[5].key
    good = store.objects[key]
    bad = {"other": bytes(len(good)), "short": good[:-1], "long": good + b"x", "empty": b""}[how]
    store.objects[key] = bad
    with pytest.raises(IntegrityError, match="other bytes"):
        get(store, manifest, tmp_path)
    assert not (tmp_path / "cache" / manifest.digest.hex()).exists(), "no half version is ever visible"
    store.objects[key] = good
    assert contents(get(store, manifest, tmp_path)) == contents(tmp_path / "v0")
    assert max(store.read.values()) <= 3, "what came before the failure is not read again"


@pytest.mark.parametrize("damage", ["flip", "cut", "grow", "remove", "extra", "folder", "manifest", "link"])
def test_corrupt_cache_is_mended(store: Store, manifest: Manifest, tmp_path: Path, damage: str) -> None:
    folder = get(store, manifest, tmp_path)
    before = store.shards_read()
    path = folder / "model.safetensors"
    raw = path.read_bytes()
    if damage == "flip":
        stat = path.stat()
        path.write_bytes(raw[:1500] + bytes([raw[1500] ^ 1]) + raw[1501:])
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    elif damage == "cut":
        path.write_bytes(raw[:-1])
    elif damage == "grow":
        path.write_bytes(raw + b"x")
    elif damage == "remove":
        path.unlink()
    elif damage == "extra":
        (folder / "model-extra.safetensors").write_bytes(b"poison")
    elif damage == "folder":
        path.unlink()
        path.mkdir()
    elif damage == "link":
        path.unlink()
        path.symlink_to("/dev/zero")
    else:
        (tmp_path / "cache" / f"{manifest.digest.hex()}.json").write_bytes(b"[" * 50_000)
    assert contents(get(store, manifest, tmp_path)) == contents(tmp_path / "v0")
    again = store.shards_read() - before
    assert again == {"flip": 1, "cut": 1, "remove": 11, "folder": 11, "link": 11}.get(damage, 0)


def test_shards_say_what_a_file_is(store: Store, tmp_path: Path) -> None:
    """An owner who signs another hash of the file gains nothing: whichever way a node takes, it has the shards."""
    good = publish(model_folder(tmp_path / "v0"), store, PUBLISHER, 0, None, OWNER, shard_size=1000)
    files = [file.model_copy(update={"sha256": "0" * 64}) if file.size else file for file in good.files]
    odd = good.model_copy(update={"files": tuple(files)})
    store.put(object_key("manifests", odd.digest), seal(odd, OWNER))
    assert contents(get(store, odd, tmp_path)) == contents(tmp_path / "v0")
    read = store.shards_read()
    assert contents(get(store, odd, tmp_path)) == contents(tmp_path / "v0")
    assert store.shards_read() == read, "it is whole"


def test_wrong_step(store: Store, manifest: Manifest, tmp_path: Path) -> None:
    with pytest.raises(IntegrityError, match="step 0, not 4"):
        get(store, manifest, tmp_path, step=4)


def test_five_versions_stay(store: Store, tmp_path: Path) -> None:
    made: list[Manifest] = []
    for step in range(8):
        folder = model_folder(tmp_path / f"v{step}", seed=step)
        made.append(publish(folder, store, PUBLISHER, step, made[-1].digest if made else None, OWNER, shard_size=1000))
        get(store, made[-1], tmp_path)
        if step == 5:
            get(store, made[2], tmp_path)
    kept = {path.name for path in (tmp_path / "cache").iterdir() if len(path.name) == 64}
    assert kept == {made[step].digest.hex() for step in (2, 4, 5, 6, 7)}, "least recently used go first"
    assert len(list((tmp_path / "cache").glob("*.json"))) == 5


def test_processes_share_a_cache(store: Store, manifest: Manifest, tmp_path: Path) -> None:
    with ThreadPoolExecutor(6) as pool:
        folders = set(pool.map(lambda _: get(store, manifest, tmp_path), range(6)))
    assert len(folders) == 1
    assert store.shards_read() == len({shard.sha256 for shard in manifest.shards()})


def test_unwritable_cache(store: Store, manifest: Manifest, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(ConfigError, match="cache"):
        get(store, manifest, tmp_path)


def test_folder_that_changes_while_it_is_published(tmp_path: Path) -> None:
    folder = model_folder(tmp_path / "v0")

    class Meddler(Store):
        def put(self, key: str, data: bytes) -> bool:
            check_content(key, data)
            (folder / "model.safetensors").write_bytes(b"half")
            return super().put(key, data)

    store = Meddler()
    with pytest.raises(IntegrityError):
        publish(folder, store, PUBLISHER, 0, None, OWNER, shard_size=1000)
    assert not [key for key in store.objects if key.startswith("manifests/")]
