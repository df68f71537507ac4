"""Bad input of the four roles' processes: one clear line, exit code 2, and nothing lost."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from localnet.plan import pool_config
from tests.cli.muster import CLOSED, Key, Muster, s3_settings
from tests.conftest import Deployed, free_port

COMMANDS = {
    "worker": ("node", "up"),
    "validator": ("validator", "up"),
    "orchestrator": ("pool", "serve"),
    "trainer": ("pool", "train"),
}


def process_configs(folder: Path, suite: Deployed, key: Key) -> dict[str, dict[str, Any]]:
    """A configuration per role that is right except that there is no pool 999 and no S3."""
    config = folder / "pool.json"
    config.write_bytes(pool_config(1, 1).canonical())
    reference = {"keystore": str(key.path), "password_file": str(key.password_file)}
    common: dict[str, Any] = {
        "deployment": str(suite.folder / "deployment.json"),
        "rpc": [suite.chain.url],
        "pool": 999,
    }
    stranger = common | {"orchestrator": CLOSED, "cache": str(folder / "cache")}
    owner = {"key": reference, "s3": s3_settings(folder, CLOSED)}
    served = common | owner | {"pool_config": str(config), "port": free_port()}
    return {
        "worker": stranger | {"home": str(folder / "worker"), "node": reference},
        "validator": stranger | {"home": str(folder / "validator"), "voters": [reference]},
        "orchestrator": served | {"home": str(folder / "orchestrator")},
        "trainer": stranger | owner | {"home": str(folder / "trainer"), "base": str(folder / "base")},
    }


@pytest.fixture
def configs(tmp_path: Path, shared_suite: Deployed, key: Key) -> dict[str, dict[str, Any]]:
    return process_configs(tmp_path, shared_suite, key)


def run_roles(muster: Muster, configs: dict[str, Any]) -> dict[str, str]:
    """Start roles with these configurations, two at a time; what each said when it refused."""

    def one(role: str) -> str:
        path = muster.home / f"{role}-config.json"
        path.write_text(json.dumps(configs[role]) if isinstance(configs[role], dict) else configs[role])
        return muster.refused(*COMMANDS[role], "--config", path, timeout=150.0)

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(configs, pool.map(one, configs), strict=True))


def test_roles_name_what_is_wrong_with_their_configuration(muster: Muster, configs: dict[str, dict[str, Any]]) -> None:
    del configs["validator"]["voters"]
    configs["orchestrator"]["port"] = 70000
    configs["trainer"]["stepz"] = 3
    said = run_roles(muster, configs | {"worker": '{"home": '})
    assert "is not JSON" in said["worker"]
    assert "`voters`" in said["validator"]
    assert "`port`" in said["orchestrator"]
    assert "`stepz`" in said["trainer"]


def test_a_home_that_cannot_be_made_is_named(muster: Muster, configs: dict[str, dict[str, Any]]) -> None:
    said = run_roles(muster, {role: config | {"home": "/proc/nowhere"} for role, config in configs.items()})
    for role, words in said.items():
        assert "cannot make /proc/nowhere" in words, role
        assert words.endswith("check `home`"), role
    assert "cannot use /proc/nowhere" in muster.refused("demo", "--runs", "/proc/nowhere")


def test_the_orchestrator_names_a_taken_port_and_a_missing_pool(
    muster: Muster, configs: dict[str, dict[str, Any]], taken: int
) -> None:
    said = run_roles(muster, {"orchestrator": configs["orchestrator"] | {"port": taken}})
    assert f"127.0.0.1:{taken}" in said["orchestrator"]
    said = run_roles(muster, {"orchestrator": configs["orchestrator"]})
    assert "there is no pool 999 on this chain; create it: muster pool create" in said["orchestrator"]
