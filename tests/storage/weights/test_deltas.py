"""Steps that travel as deltas: what is published, what is fetched, and what comes out."""

import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from protocol.delta import delta as codec
from storage.weights import manifest as manifests
from storage.weights import publish as publishing
from storage.weights.fetch import fetch
from storage.weights.manifest import Manifest
from storage.weights.publish import EarlierStep, OpenFiles, make_manifest, prepare
from tests.storage.weights.folders import OWNER, PUBLISHER, contents, publish, source_of
from tests.storage.weights.stepping import NAMES, SHARD, Origin, step_folder


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
        origin.fetch(step, tmp_path)
        deltas = [sum(file.size for file in delta.files) for delta in origin.manifests[step].deltas]
        assert origin.shard_bytes() - before == (deltas[-1] if deltas else full(origin.manifests[0]))
    assert not list((tmp_path / "shards").iterdir()), "nothing is stored twice"


def test_who_skipped_steps_takes_what_is_shorter(origin: Origin, tmp_path: Path) -> None:
    """From step 0 to step 3 the merged delta is shorter than three single ones."""
    origin.fetch(0, tmp_path)
    before = origin.shard_bytes()
    origin.fetch(3, tmp_path)
    assert origin.shard_bytes() - before == sum(file.size for file in origin.manifests[3].deltas[0].files)
    assert len(list(tmp_path.glob("*.json"))) == 2, "versions between are not made"


@pytest.mark.parametrize(("step", "start"), [(0, 0), (3, 0), (4, 4), (5, 4)])
def test_a_late_joiner_takes_a_snapshot_and_at_most_one_delta(
    origin: Origin, tmp_path: Path, step: int, start: int
) -> None:
    origin.fetch(step, tmp_path)
    way = sum(file.size for delta in origin.manifests[step].deltas if delta.step == start for file in delta.files)
    assert origin.shard_bytes() == full(origin.manifests[start]) + (way if step != start else 0)


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
    assert contents(fetch(made.digest, source_of(origin.get), tmp_path / "cache", PUBLISHER)) == contents(folder)


def test_the_compiler_is_imported_only_for_a_delta() -> None:
    """Neither a command nor a daemon waits for it at its start."""
    probe = "import sys, cli.main, runtime.pool_client, trainer.pool.publish; print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.strip() == "False"


def test_a_step_is_hashed_once_and_those_before_it_never_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file once as a whole and in shards; its tensors once, however many deltas lead from it and to it."""
    hashed_files, hashed_tensors = list[int](), list[int]()  # several threads append
    whole, tensor = manifests._weight_file, codec.sha256

    def count_file(path: Path, shard_size: int) -> manifests.WeightFile:
        hashed_files.append(path.stat().st_size)
        return whole(path, shard_size)

    def count_tensor(data: codec.Bytes) -> bytes:
        hashed_tensors.append(data.nbytes)
        return tensor(data)

    monkeypatch.setattr(manifests, "_weight_file", count_file)
    monkeypatch.setattr(codec, "sha256", count_tensor)
    monkeypatch.setattr(publishing, "file_sha256", Mock(side_effect=AssertionError("a file is compared again")))
    files, made = OpenFiles(), list[EarlierStep]()
    for step in range(3):
        folder = step_folder(tmp_path / f"{step}", step)
        size = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
        hashed_files.clear()
        hashed_tensors.clear()
        manifest = make_manifest(folder, PUBLISHER, step, made[-1].manifest.digest if made else None, "bfloat16")
        for base in made:
            files.open(base.folder / NAMES[0]), files.open(base.folder / NAMES[1])  # as published by this process
        prepared = prepare(folder, manifest, made, not step, files=files)
        made.append(EarlierStep(prepared.manifest, folder))
        assert sum(hashed_files) == size + (folder / "config.json").stat().st_size
        first = step == 1  # whose base is seen for the first time
        checked = step * size  # what each delta makes is compared with what it should
        assert sum(hashed_tensors) <= (step > 0) * size + first * size + checked
