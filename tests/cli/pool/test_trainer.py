"""`muster pool train --bench` as a pool's owner runs it: two files, no chain, no key."""

import json
from pathlib import Path

import pytest

from localnet.plan import DEMO_ENVIRONMENT
from protocol.config import PoolConfig, WorkConfig
from tests.cli.muster import Muster
from tests.trainer.helpers import small_model
from trainer.model.tiny_model import tiny_model_config


@pytest.fixture
def bench(tmp_path: Path) -> tuple[Path, list[str]]:
    """The trainer's configuration, and the command with that, the pool's, and a folder with a model."""
    config, pool = tmp_path / "trainer.json", tmp_path / "pool.json"
    config.write_text(json.dumps({"memory": {"row_tokens": 256}, "key": {"keystore": "unused.json"}}))
    work = WorkConfig(max_new_tokens=40, max_prompt_tokens=40)
    made = PoolConfig(name="bench", model=tiny_model_config(), environments=(DEMO_ENVIRONMENT,), work=work)
    pool.write_text(made.model_dump_json())
    weights = str(small_model(tmp_path / "model"))
    return config, ["pool", "train", "--config", str(config), "--bench", str(pool), "--weights", weights]


def test_a_machine_is_measured_without_chain_or_key(bench: tuple[Path, list[str]], tmp_path: Path) -> None:
    done = Muster(tmp_path / "home").run(*bench[1], "--rows", "2", "--steps", "1", "--json", timeout=240)
    assert done.code == 0, done.err
    assert done.json["row_tokens"] == 256
    assert done.json["tokens_per_second"] > 0
    assert "step 2 of 2" in done.err


def test_a_misspelt_setting_is_named(bench: tuple[Path, list[str]], tmp_path: Path) -> None:
    bench[0].write_text(json.dumps({"memory": {"row_token": 256}}))
    done = Muster(tmp_path / "home").run(*bench[1])
    assert done.code == 2
    assert "memory.row_token" in done.err
    assert len(done.err.strip().splitlines()) == 1
