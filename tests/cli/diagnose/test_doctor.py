"""`muster doctor` and `make setup`: every failure says what, why, and how to fix it."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cli.diagnose import checks as doctor_checks
from cli.diagnose.checks import Check, RpcLook, judge_rpc
from cli.diagnose.doctor import examine
from cli.hardware import GIB, Gpu
from cli.profile import Profile, ProfileKey
from storage.weights.cache import WeightCache
from storage.weights.manifest import Manifest
from tests.cli.muster import CLOSED, ROOT, make_key, s3_settings
from tests.conftest import TOKEN, Deployed
from tests.runtime.test_watch import FailingService, service

__all__ = ["service"]

NOW = 1_800_000_000.0
PUBLIC = RpcLook("http://rpc", 84532, int(NOW) - 4, (0.1, 0.1, 0.1, 0.1, 9.0), NOW)
LOCAL = RpcLook("http://rpc", 31337, 1000, (0.001,), NOW)
CARD = Gpu("H", 80 * GIB)
CUDA_BUILD = "2.13.0 13.0"


def rpc(**changes: Any) -> Check:
    return judge_rpc(replace(PUBLIC, **changes))


@pytest.mark.parametrize(
    ("found", "state", "words"),
    [
        (rpc(), "ok", "answers in 100 ms, chain 84532, newest block 4 s old"),
        (rpc(took=(1.0, 1.5, 2.0)), "failed", "1500 ms, chain 84532, too slowly"),
        (rpc(block_time=int(NOW) - 90), "failed", "its newest block is 2 min old"),
        (judge_rpc(LOCAL), "ok", "chain 31337"),
        (rpc(block_time=int(NOW) + 31), "failed", "31 s in this clock's future"),
        (doctor_checks.judge_gpu("cpu", [], "2.13.0+cpu"), "ok", "none is wanted"),
        (doctor_checks.judge_gpu("cpu", [CARD], CUDA_BUILD), "note", "computes on the CPU"),
        (doctor_checks.judge_gpu("cuda", [], "2.13.0+cpu"), "failed", "torch 2.13.0+cpu is a build without CUDA"),
        (doctor_checks.judge_gpu("cuda", [], CUDA_BUILD), "failed", "torch 2.13.0 13.0 can use none"),
        (doctor_checks.judge_gpu("cuda", [CARD], CUDA_BUILD), "ok", "torch can use H (80 GiB)"),
        (doctor_checks.judge_gas("node", "0x1", 5, 4), "ok", "the node's key 0x1 has"),
        (doctor_checks.judge_gas("node", "0x1", 0, 10**15), "failed", "has 0.000000 ETH; send it 0.001000 ETH"),
        (doctor_checks.judge_stake("0x1", 200 * TOKEN, 200 * TOKEN), "ok", "200 tokens at stake"),
        (doctor_checks.judge_stake("0x1", 199 * TOKEN, 200 * TOKEN), "failed", "the pool wants 200"),
    ],
)
def test_each_measurement_is_judged(found: Check, state: str, words: str) -> None:
    assert (found.state, words in found.line()) == (state, True), found
    assert bool(found.hint) == (state == "failed")


def test_a_disk_is_judged_by_the_limit_of_a_watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for free, state in ((6 * GIB, "ok"), (4 * GIB, "failed")):
        monkeypatch.setattr(doctor_checks, "free_bytes", lambda _, free=free: free)
        found = doctor_checks.disk(tmp_path / "not" / "there")
        assert (found.state, f"{free / GIB:.1f} GiB" in found.detail) == (state, True)


def test_the_first_endpoint_that_answers_counts(shared_suite: Deployed) -> None:
    lines, said = doctor_checks.chain_checks(shared_suite.folder, f"{CLOSED}, {shared_suite.chain.url}")
    assert [(line.check, line.state) for line in lines] == [("deployment", "ok"), ("rpc", "failed"), ("rpc", "ok")]
    assert said is not None
    assert said.chain_id == 31337


def profile_of(folder: Path, deployed: Deployed) -> Profile:
    keys = [make_key(folder, name) for name in ("operator", "node")]
    operator, node = (ProfileKey(keystore=key.path, password_file=key.password_file) for key in keys)
    return Profile(
        role="operator", deployment=deployed.folder / "deployment.json", rpc=deployed.chain.url, home=folder,
        cache=folder, key=operator, node=node,
    )  # fmt: skip


def test_keys_and_passwords_are_private_and_have_gas(tmp_path: Path, shared_suite: Deployed) -> None:
    profile = profile_of(tmp_path, shared_suite)
    assert [found.state for found in doctor_checks.profile_keys(profile)] == ["ok"] * 4
    assert profile.key.password_file is not None
    profile.key.password_file.chmod(0o644)
    profile.key.keystore.chmod(0o640)
    found = [one for one in doctor_checks.profile_keys(profile) if one.state == "failed"]
    assert [one.hint for one in found] == [
        f"chmod 600 {profile.key.keystore}",
        f"chmod 600 {profile.key.password_file}",
    ]
    money = list(doctor_checks.money(profile))
    assert [(one.check, one.state) for one in money] == [("gas", "failed")], "the operator's; a node needs none"
    profile.key.keystore.unlink()
    assert "muster node up" in next(iter(doctor_checks.profile_keys(profile))).detail


def test_everything_down_is_named_and_nothing_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared_suite: Deployed
) -> None:
    path = tmp_path / "profile.toml"
    path.write_text("role = 7")
    monkeypatch.setenv("MUSTER_PROFILE", str(path))
    found = list(examine(shared_suite.folder, CLOSED, CLOSED))
    failed = {one.check for one in found if one.state == "failed"}
    assert {"profile", "rpc", "service", "serves"} <= failed
    assert {"disk", "gpu"} <= {one.check for one in found}


def test_a_service_is_judged_as_a_watch_does(service: FailingService, monkeypatch: pytest.MonkeyPatch) -> None:
    service.documents["/v1/pool"] = {"pool": 1, "rpc": [], "config_hash": "00" * 32, "deployment": "{}"}
    (found,) = doctor_checks.service_checks(service.url)
    assert (found.state, "start the pool's storage" in found.hint) == ("failed", True)
    monkeypatch.setattr("runtime.diagnose.storage_error", lambda *_: "")
    (found,) = doctor_checks.service_checks(service.url)
    assert (found.state, "this clock is +0 s off" in found.detail) == ("ok", True)
    service.documents["/health"]["version"] = "9.9.9"
    service.documents["/ready"] = {"problems": ["this service has another key"]}
    noted = {one.check: one for one in doctor_checks.service_checks(service.url)}
    assert noted["service"].detail == "this service has another key"
    assert (noted["version"].state, "9.9.9" in noted["version"].detail) == ("note", True)
    service.statuses["/ready"] = 503
    assert "database does not answer" in next(iter(doctor_checks.service_checks(service.url))).detail


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
    assert doctor_checks.cached_weights(tmp_path / "weights").state == "ok"
    data = bytearray(file.read_bytes())
    data[2500] ^= 1
    file.write_bytes(data)
    found = doctor_checks.cached_weights(tmp_path / "weights")
    assert found.state == "failed"
    assert file.parent.name[:12] in found.detail
    assert "fetched again" in found.hint
    assert file.read_bytes() == data


def test_an_unreachable_bucket_is_named(tmp_path: Path) -> None:
    settings = tmp_path / "s3.json"
    settings.write_text(json.dumps(s3_settings(tmp_path, CLOSED)))
    found = doctor_checks.judged("s3", partial(doctor_checks.bucket, settings))
    assert found.state == "failed"
    assert found.detail.startswith(f"S3 at {CLOSED} does not answer")


@pytest.mark.parametrize(
    ("shown", "cards", "state", "words"),
    [
        ("0", [CARD], "note", "torch can use H (80 GiB); CUDA_VISIBLE_DEVICES=0 shows 1 of 2"),
        ("", [], "failed", "can use none of /dev/nvidia0, /dev/nvidia1; CUDA_VISIBLE_DEVICES= shows 0 of 2"),
        ("0,1", [CARD, CARD], "ok", "torch can use H (80 GiB), H (80 GiB)"),
    ],
)
def test_a_card_that_the_environment_hides_is_named(
    monkeypatch: pytest.MonkeyPatch, shown: str, cards: list[Gpu], state: str, words: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
    monkeypatch.setattr(doctor_checks, "device_files", lambda: ("/dev/nvidia0", "/dev/nvidia1"))
    found = doctor_checks.judge_gpu("cuda", cards, CUDA_BUILD)
    assert (found.state, words in found.line()) == (state, True)
