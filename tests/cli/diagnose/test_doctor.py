"""`muster doctor` and `make setup`: every missing or damaged prerequisite is named, with what to do about it."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cli.diagnose.checks import cached_weights as cached_weights_check
from storage.weights.cache import WeightCache
from storage.weights.manifest import Manifest
from tests.cli.muster import CLOSED, ROOT, Muster, s3_settings
from tests.conftest import free_port


@pytest.fixture
def bare_path(tmp_path: Path) -> Path:
    """A folder for PATH with every prerequisite except Node.js."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in ("git", "npm", "cc"):
        found = shutil.which(tool)
        if found is None:
            pytest.skip(f"{tool} is not installed")
        (folder / tool).symlink_to(found)
    return folder


def test_setup_names_a_missing_program(bare_path: Path) -> None:
    argv = [sys.executable, str(ROOT / "tools" / "setup.py")]
    done = subprocess.run(argv, env={"PATH": str(bare_path)}, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2
    assert done.stderr.strip() == "setup: `node` is not on the PATH; install Node.js 20 or newer"
    assert done.stdout == ""


def test_doctor_names_a_taken_port(tmp_path: Path, taken: int) -> None:
    done = Muster(tmp_path).run("doctor", "--data", tmp_path, "--port", taken, "--port", free_port())
    assert done.code == 1
    assert f"FAILED  ports        in use: {taken}; stop what uses them" in done.out


def cached_weights(folder: Path) -> Path:
    """A cache with one complete version; returns its only file."""
    data = os.urandom(5000)
    digest = hashlib.sha256(data).hexdigest()
    part = {"name": "model.safetensors", "size": 5000, "sha256": digest, "shards": [{"sha256": digest, "size": 5000}]}
    fields = {"chain_id": 1, "pools": "0x" + "11" * 20, "pool": 1, "step": 0, "parent": "", "dtype": "float32"}
    manifest = Manifest.model_validate({**fields, "files": [part]})
    cache = WeightCache(folder)

    def fill(aside: Path) -> None:
        (aside / "model.safetensors").write_bytes(data)

    cache.install(manifest, fill)
    return cache.version(manifest.digest) / "model.safetensors"


def test_doctor_finds_a_damaged_cache_of_weights(tmp_path: Path) -> None:
    file = cached_weights(tmp_path / "weights")
    assert cached_weights_check(tmp_path / "weights").state == "ok"
    data = bytearray(file.read_bytes())
    data[2500] ^= 1
    file.write_bytes(data)
    found = cached_weights_check(tmp_path / "weights")
    assert found.state == "failed"
    assert file.parent.name[:12] in found.detail
    assert "fetched again" in found.hint
    assert file.read_bytes() == data


def test_doctor_names_an_unreachable_bucket(tmp_path: Path) -> None:
    settings = tmp_path / "s3.json"
    settings.write_text(json.dumps(s3_settings(tmp_path, CLOSED)))
    done = Muster(tmp_path).run("doctor", "--data", tmp_path, "--s3", settings)
    assert done.code == 1
    assert f"FAILED  s3           S3 at {CLOSED} does not answer" in done.out
    assert "Traceback" not in done.err
