"""`muster pool train --bench` as a pool's owner runs it: two files, no chain, no key."""

import json
from pathlib import Path

from localnet.plan import DEMO_ENVIRONMENT
from protocol.config import PoolConfig, WorkConfig
from tests.cli.muster import Muster
from tests.trainer.helpers import small_model
from trainer.model.tiny_model import tiny_model_config


def test_a_machine_is_measured_without_chain_or_key_and_a_misspelt_setting_is_named(tmp_path: Path) -> None:
    config, pool = tmp_path / "trainer.json", tmp_path / "pool.json"
    config.write_text(json.dumps({"memory": {"row_tokens": 256}, "key": {"keystore": "unused.json"}}))
    work = WorkConfig(max_new_tokens=40, max_prompt_tokens=40)
    made = PoolConfig(name="bench", model=tiny_model_config(), environments=(DEMO_ENVIRONMENT,), work=work)
    pool.write_text(made.model_dump_json())
    bench = ["pool", "train", "--config", config, "--bench", pool, "--weights", small_model(tmp_path / "model")]
    done = Muster(tmp_path / "home").run(*bench, "--rows", "2", "--steps", "1", "--json", timeout=240)
    assert done.code == 0, done.err
    assert done.json["row_tokens"] == 256
    assert done.json["tokens_per_second"] > 0
    assert "step 2 of 2" in done.err
    config.write_text(json.dumps({"memory": {"row_token": 256}}))
    done = Muster(tmp_path / "home").run(*bench)
    assert done.code == 2
    assert "memory.row_token" in done.err
    assert len(done.err.strip().splitlines()) == 1
