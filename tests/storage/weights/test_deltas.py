"""Steps that travel as deltas: what is published, what is fetched, and what comes out."""

import subprocess
import sys
from pathlib import Path

import pytest

from storage.weights.fetch import fetch
from storage.weights.manifest import Manifest
from storage.weights.publish import EarlierStep, publish
from tests.storage.weights.folders import OWNER, PUBLISHER, contents
from tests.storage.weights.stepping import SHARD, Origin, step_folder


def get(origin: Origin, step: int, cache: Path) -> Path:
    folder = fetch(origin.manifests[step].digest, origin.get, cache, PUBLISHER, step)
    assert contents(folder) == contents(origin.folders[step])
    return folder


def full(manifest: Manifest) -> int:
    return sum(file.size for file in manifest.files)


def test_what_is_published(origin: Origin) -> None:
    made = origin.manifests
    assert [one.snapshot for one in made] == [True, False, False, False, True, False]
    assert [[delta.step for delta in one.deltas] for one in made] == [[], [0], [0, 1], [0, 2], [0, 3], [4]]
    for one in made:
        stored = all(shard.key in origin.objects for file in one.files for shard in file.shards)
        assert stored == one.snapshot, "full shards of snapshots only"
        for delta in one.deltas:
            assert sum(file.size for file in delta.files) < full(one) / 4


def test_equal_folders_give_equal_manifests(origin: Origin) -> None:
    bases = [EarlierStep(origin.manifests[one], origin.folders[one]) for one in (0, 1)]
    parent, before = origin.manifests[1].digest, len(origin.objects)
    again = publish(origin.folders[2], origin, PUBLISHER, 2, parent, OWNER, "bfloat16", SHARD, bases, snapshot=False)
    assert again == origin.manifests[2]
    assert len(origin.objects) == before


def test_each_step_in_turn_takes_its_delta(origin: Origin, tmp_path: Path) -> None:
    for step in range(6):
        before = origin.shard_bytes()
        get(origin, step, tmp_path)
        deltas = [sum(file.size for file in delta.files) for delta in origin.manifests[step].deltas]
        assert origin.shard_bytes() - before == (deltas[-1] if deltas else full(origin.manifests[0]))
    assert not list((tmp_path / "shards").iterdir()), "nothing is stored twice"


def test_who_skipped_steps_takes_what_is_shorter(origin: Origin, tmp_path: Path) -> None:
    """From step 0 to step 3 the merged delta is shorter than three single ones."""
    get(origin, 0, tmp_path)
    before = origin.shard_bytes()
    get(origin, 3, tmp_path)
    assert origin.shard_bytes() - before == sum(file.size for file in origin.manifests[3].deltas[0].files)
    assert len(list(tmp_path.glob("*.json"))) == 2, "versions between are not made"


@pytest.mark.parametrize(("step", "start"), [(0, 0), (3, 0), (4, 4), (5, 4)])
def test_a_late_joiner_takes_a_snapshot_and_at_most_one_delta(
    origin: Origin, tmp_path: Path, step: int, start: int
) -> None:
    get(origin, step, tmp_path)
    way = sum(file.size for delta in origin.manifests[step].deltas if delta.step == start for file in delta.files)
    assert origin.shard_bytes() == full(origin.manifests[start]) + (way if step != start else 0)


def test_an_older_step_stays_loadable(origin: Origin, tmp_path: Path) -> None:
    for step in (4, 5, 2):
        get(origin, step, tmp_path)


@pytest.mark.parametrize("change", ["file", "shape", "tokenizer", "lost base", "other base"])
def test_what_no_delta_leads_to_is_published_whole(origin: Origin, tmp_path: Path, change: str) -> None:
    folder = step_folder(tmp_path / "new", 5)
    base = EarlierStep(origin.manifests[4], origin.folders[4])
    if change in ("file", "tokenizer"):
        (folder / {"file": "more.json", "tokenizer": "config.json"}[change]).write_text("[]")
    elif change == "shape":
        name = "model-00001-of-00002.safetensors"
        (folder / name).write_bytes((folder / name).read_bytes().replace(b"layer.0.0", b"layer.9.0"))
    elif change == "lost base":
        base = EarlierStep(origin.manifests[4], tmp_path)
    else:
        base = EarlierStep(origin.manifests[4], origin.folders[3])
    made = publish(
        folder, origin, PUBLISHER, 5, origin.manifests[4].digest, OWNER, "bfloat16", SHARD, [base], snapshot=False
    )
    assert made.snapshot
    assert not made.deltas
    assert contents(fetch(made.digest, origin.get, tmp_path / "cache", PUBLISHER)) == contents(folder)


def test_the_compiler_is_imported_only_for_a_delta() -> None:
    """Neither a command nor a daemon waits for it at its start."""
    probe = "import sys, cli.main, runtime.pool_client, trainer.pool.publish; print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.strip() == "False"
