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
def files(tmp_path: Path) -> tuple[Path, Path, Path]:
    """The trainer's configuration, the pool's, and a folder with a model."""
    config, pool = tmp_path / "trainer.json", tmp_path / "pool.json"
    config.write_text(json.dumps({"memory": {"row_tokens": 256}, "key": {"keystore": "unused.json"}}))
    work = WorkConfig(max_new_tokens=40, max_prompt_tokens=40)
    made = PoolConfig(name="bench", model=tiny_model_config(), environments=(DEMO_ENVIRONMENT,), work=work)
    pool.write_text(made.model_dump_json())
    return config, pool, small_model(tmp_path / "model")


def test_a_machine_is_measured_without_chain_or_key(files: tuple[Path, Path, Path], tmp_path: Path) -> None:
    config, pool, model = files
    arguments = ["pool", "train", "--config", str(config), "--bench", str(pool), "--weights", str(model)]
    done = Muster(tmp_path / "home").run(*arguments, "--rows", "2", "--steps", "1", "--json", timeout=240)
    assert done.code == 0, done.err
    assert done.json["row_tokens"] == 256
    assert done.json["tokens_per_second"] > 0
    assert "step 2 of 2" in done.err


def test_a_misspelt_setting_is_named(files: tuple[Path, Path, Path], tmp_path: Path) -> None:
    config, pool, model = files
    config.write_text(json.dumps({"memory": {"row_token": 256}}))
    arguments = ["pool", "train", "--config", str(config), "--bench", str(pool), "--weights", str(model)]
    done = Muster(tmp_path / "home").run(*arguments)
    assert done.code == 2
    assert "memory.row_token" in done.err
    assert len(done.err.strip().splitlines()) == 1
