"""What else is in the cache, or happens to it: nothing there holds a version up for good."""

import os
import shutil
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from protocol.errors import MusterError
from storage.weights import fetch as fetching
from storage.weights.cache import PART_FILES, WeightCache, has_its_shards
from storage.weights.fetch import fetch
from storage.weights.manifest import Manifest, WeightFile
from tests.storage.weights.folders import PUBLISHER, contents, source_of
from tests.storage.weights.stepping import Origin


def single(origin: Origin, step: int) -> Manifest:
    """The step, with no delta but the one from the step before."""
    deltas = tuple(one for one in origin.manifests[step].deltas if one.step == step - 1)
    return origin.sign(origin.manifests[step].model_copy(update={"deltas": deltas, "snapshot": False}))


@pytest.mark.parametrize("damage", ["flip", "cut", "grow", "gone", "pipe", "endless link"])
def test_a_damaged_base_does_not_close_the_only_way(origin: Origin, tmp_path: Path, damage: str) -> None:
    """Step 2 leads from step 1 alone. That is here and damaged, but can be made again from step 0."""
    wanted = single(origin, 2)
    origin.fetch(0, tmp_path)
    base = origin.fetch(1, tmp_path)
    path = base / origin.manifests[1].files[1].name
    data = path.read_bytes()
    path.unlink()
    if damage == "pipe":
        os.mkfifo(path)
    elif damage == "endless link":
        path.symlink_to("/dev/zero")
    elif damage != "gone":
        flipped = data[:-1] + bytes([data[-1] ^ 1])
        path.write_bytes({"flip": flipped, "cut": data[:-1], "grow": data + b"x"}[damage])
    made = fetch(wanted.digest, source_of(origin.get), tmp_path, PUBLISHER, 2)
    assert contents(made) == contents(origin.folders[2])


@pytest.mark.parametrize("ahead", [600, 10 * 86_400])
def test_a_clock_that_was_set_back(origin: Origin, tmp_path: Path, ahead: float) -> None:
    """Versions used at times to come are not kept instead of the one that was fetched just now."""
    for folder in [origin.fetch(step, tmp_path) for step in (0, 1)]:
        os.utime(folder, (time.time() + ahead,) * 2)
    origin.fetch(2, tmp_path, keep=1)


def test_what_was_used_before_the_clock_was_set_back_goes_first(origin: Origin, tmp_path: Path) -> None:
    folders = [origin.fetch(step, tmp_path) for step in range(3)]
    for folder in folders[:2]:
        os.utime(folder, (time.time() + 10 * 86_400,) * 2)
    origin.fetch(3, tmp_path, keep=2)
    assert [folder.exists() for folder in folders] == [False, False, True]


@pytest.mark.parametrize("what", ["version", "old", "manifest"])
def test_something_is_in_the_way(origin: Origin, tmp_path: Path, what: str) -> None:
    name = origin.manifests[0].digest.hex()
    if what == "version":
        (tmp_path / name).symlink_to(tmp_path / "nowhere")
    elif what == "old":
        (tmp_path / name).mkdir()
        (tmp_path / f".{name}.old").write_bytes(b"")
    else:
        (tmp_path / f"{name}.json" / "more").mkdir(parents=True)
    origin.fetch(0, tmp_path)


def test_a_version_that_vanishes_while_it_is_looked_at(
    origin: Origin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = origin.fetch(0, tmp_path)

    def pruned(path: Path, file: WeightFile) -> bool:
        shutil.rmtree(folder, ignore_errors=True)
        return has_its_shards(path, file)

    with monkeypatch.context() as patched:
        patched.setattr("storage.weights.cache.has_its_shards", pruned)
        assert not WeightCache(tmp_path).is_intact(origin.manifests[0])
    origin.fetch(0, tmp_path)


def test_deltas_of_no_use_do_not_cost_many_times_the_weights(origin: Origin, tmp_path: Path) -> None:
    """The owner signs eight deltas to a snapshot, each of nearly its size, none of use."""
    home, steps = tmp_path / "steps", 9
    many = Origin(home, steps, snapshots=tuple(range(steps)))
    last = many.manifests[-1]
    full = sum(file.size for file in last.files)
    bad = many.with_junk(steps - 1, [many.manifests[step] for step in range(steps - 1)])
    for step in range(steps - 1):
        many.fetch(step, tmp_path / "cache", keep=steps)
    many.read.clear()
    made = fetch(bad.digest, source_of(many.get), tmp_path / "cache", PUBLISHER)
    assert contents(made) == contents(many.folders[-1])
    assert many.shard_bytes() < (fetching.WASTE_FACTOR + 2.1) * full
    manifests = [key for key in many.read if key.startswith("manifests/")]
    assert len(manifests) == len(set(manifests)), "each is read once"


def test_no_room_for_a_chain_of_deltas_but_for_the_full_shards(
    origin: Origin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = Origin(tmp_path / "steps", 2, snapshots=(0, 1))
    full = sum(file.size for file in two.manifests[1].files)
    bad = two.with_junk(1, [two.manifests[0]])
    two.fetch(0, tmp_path / "cache")
    room = type("room", (), {"free": int(1.5 * full)})
    monkeypatch.setattr(shutil, "disk_usage", lambda _: room)
    two.read.clear()
    made = fetch(bad.digest, source_of(two.get), tmp_path / "cache", PUBLISHER)
    assert contents(made) == contents(two.folders[1])
    assert two.shard_bytes() <= full, "the delta was not even fetched"


def test_shards_of_fetches_that_never_succeed_make_room(
    origin: Origin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An owner who publishes steps that cannot be put together fills no disk for good."""
    shards, full = WeightCache(tmp_path).folder / PART_FILES, sum(file.size for file in origin.manifests[0].files)
    for number, age in ((1, 7200), (2, 60)):
        path = shards / f"{number:064x}"
        path.write_bytes(bytes(300_000))
        os.utime(path, (time.time() - age,) * 2)

    def room(_: Path) -> Any:
        return SimpleNamespace(free=600_000 + full // 2 - sum(path.stat().st_size for path in shards.iterdir()))

    monkeypatch.setattr(shutil, "disk_usage", room)
    origin.fetch(0, tmp_path)
    assert [path.name[-1] for path in shards.iterdir()] == ["2"], "what came just now may be of a fetch under way"


def test_errors_of_the_disk_are_named(origin: Origin, tmp_path: Path) -> None:
    (tmp_path / f".lock-{origin.manifests[0].digest[0]:02x}").mkdir()
    with pytest.raises(MusterError):
        origin.fetch(0, tmp_path)
