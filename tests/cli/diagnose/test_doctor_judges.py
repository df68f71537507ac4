"""What `muster doctor` makes of what it measured: every failure says what, why, and how to fix it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cli.diagnose import checks as doctor_checks
from cli.diagnose.checks import GIB, Check, RpcLook, judge_rpc
from cli.diagnose.doctor import examine
from cli.hardware import Gpu
from cli.profile import Profile, ProfileKey
from protocol.accounts import Account
from storage.weights.manifest import FileDelta, Manifest, Shard, StepDelta, WeightFile, seal
from tests.cli.muster import CLOSED, make_key
from tests.conftest import TOKEN, Deployed

NOW, MIB = 1_800_000_000.0, 1 << 20
PUBLIC = RpcLook("http://rpc", 84532, int(NOW) - 4, (0.1, 0.1, 0.1, 0.1, 9.0), NOW)
LOCAL = RpcLook("http://rpc", 31337, 1000, (0.001,), NOW)
CARD = Gpu("H", 80 * GIB, "550")
CUDA_BUILD = "2.13.0 13.0"


def rpc(**changes: Any) -> Check:
    return judge_rpc(replace(PUBLIC, **changes), 84532)


@pytest.mark.parametrize(
    ("found", "state", "words"),
    [
        (rpc(), "ok", "answers in 100 ms, chain 84532, newest block 4 s old"),
        (rpc(chain_id=1), "failed", "is chain 1, expected 84532"),
        (rpc(took=(1.0, 1.5, 2.0)), "failed", "1500 ms, chain 84532, too slowly"),
        (rpc(block_time=int(NOW) - 90), "failed", "its newest block is 2 min old"),
        (judge_rpc(LOCAL, None), "ok", "chain 31337"),
        (doctor_checks.judge_clock(PUBLIC, 4.0), "ok", "4 s off the service's"),
        (doctor_checks.judge_clock(PUBLIC, 42.0), "failed", "42 s ahead of the service's"),
        (doctor_checks.judge_clock(None, -42.0), "failed", "42 s behind the service's"),
        (doctor_checks.judge_clock(RpcLook("u", 1, int(NOW) + 31, (1,), NOW), None), "failed", "31 s in its future"),
        (doctor_checks.judge_clock(PUBLIC, None), "ok", "newest block is 4 s old by it"),
        (doctor_checks.judge_clock(LOCAL, None), "note", "nothing to compare it with"),
        (doctor_checks.judge_disk(Path("/d"), 6 * GIB, 100 * MIB), "ok", "6.0 GiB free, written at 100 MiB/s"),
        (doctor_checks.judge_disk(Path("/d"), 4 * GIB, 100 * MIB), "failed", "4.0 GiB free"),
        (doctor_checks.judge_disk(Path("/d"), 6 * GIB, 5 * MIB), "failed", "at 5 MiB/s"),
        (doctor_checks.judge_gpu("cpu", [], 0, "2.13.0+cpu"), "ok", "none is wanted"),
        (doctor_checks.judge_gpu("cpu", [CARD], 0, "2.13.0+cpu"), "note", "computes on the CPU"),
        (doctor_checks.judge_gpu("cuda", [], 0, CUDA_BUILD), "failed", "no driver answers"),
        (
            doctor_checks.judge_gpu("cuda", [CARD], 0, "2.13.0+cpu"),
            "failed",
            "torch 2.13.0+cpu is a build without CUDA",
        ),
        (
            doctor_checks.judge_gpu("cuda", [CARD], 0, CUDA_BUILD),
            "failed",
            "driver 550); torch 2.13.0 13.0 cannot use it",
        ),
        (doctor_checks.judge_gpu("cuda", [CARD], 1, CUDA_BUILD), "ok", "torch can use 1"),
        (doctor_checks.judge_storage(16 * MIB, 1.0), "ok", "weights come at 16.0 MiB/s (16.0 MiB)"),
        (doctor_checks.judge_storage(4 * MIB, 40.0), "failed", "weights come at 0.1 MiB/s"),
        (doctor_checks.judge_storage(1000, 1.0), "ok", "weights come at 0.0 MiB/s"),
        (doctor_checks.judge_gas("node", "0x1", 5, 4), "ok", "the node's key 0x1 has"),
        (doctor_checks.judge_gas("node", "0x1", 0, 10**15), "failed", "has 0.000000 ETH"),
        (doctor_checks.judge_stake("0x1", 200 * TOKEN, 200 * TOKEN), "ok", "200 tokens at stake"),
        (doctor_checks.judge_stake("0x1", 199 * TOKEN, 200 * TOKEN), "failed", "the pool wants 200"),
        (doctor_checks.judge_version("0.1.3", "0.1.0"), "ok", "muster 0.1.3"),
        (doctor_checks.judge_version("0.1.0", "0.2.0"), "failed", "the pool's service 0.2.0"),
    ],
)
def test_each_measurement_is_judged(found: Check, state: str, words: str) -> None:
    assert (found.state, words in found.detail) == (state, True), found
    assert bool(found.hint) == (state == "failed")


def test_the_gas_that_is_missing_is_said() -> None:
    assert doctor_checks.judge_gas("node", "0x1", 10**14, 10**15).hint == "send it 0.000900 ETH"


def test_a_disk_is_really_written_and_left_empty(tmp_path: Path) -> None:
    assert doctor_checks.write_speed(tmp_path) > 0
    assert list(tmp_path.iterdir()) == []
    assert doctor_checks.disk(tmp_path / "not" / "there").check == "disk"


def test_the_first_endpoint_that_answers_counts(shared_suite: Deployed) -> None:
    lines, said = doctor_checks.rpc_checks(f"{CLOSED}, {shared_suite.chain.url}", 31337)
    assert [line.state for line in lines] == ["failed", "ok"]
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


def test_everything_down_is_named_and_nothing_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "profile.toml"
    path.write_text("role = 7")
    monkeypatch.setenv("MUSTER_PROFILE", str(path))
    found = list(examine(rpc=CLOSED, url=CLOSED, s3=tmp_path / "none.json", data=tmp_path))
    failed = {one.check for one in found if one.state == "failed"}
    assert {"profile", "rpc", "service", "storage", "s3"} <= failed
    assert {"disk", "gpu", "clock", "version"} <= {one.check for one in found}


def test_doctor_names_the_engines_of_a_validator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def engines(**fields: Any) -> str:
        profile = Profile(role="validator", home=tmp_path, cache=tmp_path, key=ProfileKey(keystore=tmp_path), **fields)
        (found,) = (check for check in doctor_checks.validator_checks(profile) if check.check == "engines")
        return found.detail

    monkeypatch.setattr("validator.judging.pipeline.vllm_installed", lambda: True)
    assert engines(engine={"name": "transformers"}).startswith("transformers for every file, vllm for its")
    monkeypatch.setattr("validator.judging.pipeline.vllm_installed", lambda: False)
    assert engines(engine={"name": "transformers"}).startswith("transformers alone")


@pytest.mark.parametrize("snapshot", [True, False])
def test_the_storage_check_asks_for_a_shard_that_the_newest_step_has(
    snapshot: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step may be published as a delta alone: its files' own shards are not in the bucket."""
    full, delta = Shard(sha256="aa" * 32, size=100), Shard(sha256="bb" * 32, size=10)
    manifest = Manifest(
        chain_id=1,
        pools=f"0x{0:040x}",
        pool=1,
        step=1,
        parent="cc" * 32,
        dtype="float32",
        files=(WeightFile(name="model.safetensors", size=100, sha256="dd" * 32, shards=(full,)),),
        snapshot=snapshot,
        deltas=(
            StepDelta(
                step=0, parent="cc" * 32, files=(FileDelta(name="model.safetensors", index="ee" * 32, shards=(delta,)),)
            ),
        ),
    )
    stored = seal(manifest, Account.create())

    @contextmanager
    def objects(service: str, patience: float) -> Iterator[Any]:
        yield lambda key, most: stored

    published = [SimpleNamespace(step=0, manifest="00" * 32), SimpleNamespace(step=1, manifest=manifest.digest.hex())]
    monkeypatch.setattr("cli.session.ask_service", lambda *_: SimpleNamespace(published=published))
    monkeypatch.setattr("cli.pool.document.service_objects", objects)
    assert doctor_checks.newest_shard("http://service") == (full if snapshot else delta).key
