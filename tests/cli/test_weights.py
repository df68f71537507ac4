"""`muster weights`: the cache of policy steps, for people."""

from pathlib import Path

import pytest

from storage.weights.fetch import fetch
from tests.cli.muster import Muster
from tests.storage.weights.folders import PUBLISHER
from tests.storage.weights.stepping import NAMES, Origin


@pytest.fixture
def origin(tmp_path: Path) -> Origin:
    origin = Origin(tmp_path / "steps", steps=3)
    for step in (0, 1, 2):
        fetch(origin.manifests[step].digest, origin.get, tmp_path / "cache", PUBLISHER, step)
    return origin


def test_what_is_here_is_listed_verified_and_removed(origin: Origin, tmp_path: Path) -> None:
    muster, cache = Muster(tmp_path), ("--cache", tmp_path / "cache")
    assert "there is no folder" in muster.refused("weights", "list", "--cache", tmp_path / "none")
    assert not (tmp_path / "none").exists(), "looking makes nothing"
    (tmp_path / "empty").mkdir()
    assert (
        f"no policy step is in {tmp_path / 'empty'}" in muster.ok("weights", "list", "--cache", tmp_path / "empty").out
    )
    rows = muster.ok("weights", "list", *cache, "--json").json
    assert [row["manifest"] for row in rows] == [one.digest.hex() for one in origin.manifests]
    assert "as signed" in muster.ok("weights", "list", "--check", *cache).out
    path = tmp_path / "cache" / origin.manifests[1].digest.hex() / NAMES[0]
    path.write_bytes(path.read_bytes()[:-1] + b"\0")
    done = muster.run("weights", "list", "--check", *cache)
    assert done.code == 1
    assert [line.split()[1] for line in done.out.splitlines() if "DAMAGED" in line] == ["1"]
    assert [row["step"] for row in muster.ok("weights", "list", "--prune", "1", *cache, "--json").json] == [2]
    assert [row["step"] for row in muster.ok("weights", "list", *cache, "--json").json] == [2]
    assert muster.ok("weights", "list", "--prune", "0", *cache, "--json").json == []


def test_a_step_whose_manifest_is_damaged_is_told_and_counted(origin: Origin, tmp_path: Path) -> None:
    muster, cache = Muster(tmp_path), ("--cache", tmp_path / "cache")
    digest = origin.manifests[1].digest.hex()
    (tmp_path / "cache" / f"{digest}.json").write_text("junk")
    size = sum(file.size for file in origin.manifests[1].files)
    (row,) = [row for row in muster.ok("weights", "list", *cache, "--json").json if row["manifest"] == digest]
    assert (row["step"], row["bytes"]) == (None, size)
    done = muster.run("weights", "list", "--check", *cache)
    assert done.code == 1
    assert [digest[:12] in line for line in done.out.splitlines() if "DAMAGED" in line] == [True]
    assert muster.ok("weights", "list", "--prune", "0", *cache, "--json").json == []
    assert not list((tmp_path / "cache").glob("*.json"))
