"""Prompts and stop tokens are those of the step that work is made with, whenever a process began to look."""

import json
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.hf import TransformersEngine
from environments import pool
from environments.base import Environment
from environments.pool import FollowingEnvironments, PoolEnvironments, float32, length_penalty, reward
from environments.registry import load_environment
from protocol.config import EnvironmentConfig
from tests.validator import tiny
from worker.produce import Producer

CONFIG = tiny.CONFIG.model_copy(update={"model": tiny.CONFIG.model.model_copy(update={"chat_template": True})})
TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"


def step(folder: Path, template: str) -> Path:
    """A policy step whose chat template is `template`."""
    shutil.copytree(tiny.model_folder(), folder)
    (folder / "chat_template.jinja").write_text(template)
    return folder


@pytest.mark.parametrize("name", ["generation_config.json", "chat_template.jinja", "tokenizer_config.json"])
def test_a_change_of_any_file_of_text_is_followed_and_no_other_is(tmp_path: Path, name: str) -> None:
    first = step(tmp_path / "0", TEMPLATE)
    followed = FollowingEnvironments(CONFIG)
    own = followed.of(first)
    again = shutil.copytree(first, tmp_path / "1")
    (again / "README.md").write_text("other words")
    assert followed.of(again) is own, "weights alone are what steps change"
    path = again / name
    path.write_text(path.read_text() + " " if path.exists() else json.dumps({"eos_token_id": 3}))
    assert followed.of(again) is not own
    if name == "generation_config.json" and not (first / name).exists():
        assert followed.of(again).eos_ids == (3,)
    plain = FollowingEnvironments(tiny.CONFIG)
    with_template = plain.of(first)
    assert plain.of(tiny.model_folder()) is not with_template, "a template that is taken away is missed"


def test_environments_are_loaded_once_before_there_are_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They take seconds, in which a machine that joins is still downloading. A worker that was there before makes the
    prompts that newcomers make: an owner who changes the template would else have who stayed refused by who joined."""
    loaded = list[str]()

    def counted(config: EnvironmentConfig, data: Path | None = None) -> Environment:
        loaded.append(config.name)
        return load_environment(config, data)

    monkeypatch.setattr(pool, "load_environment", counted)
    producer = Producer(CONFIG, TransformersEngine())
    producer.prepare()
    assert loaded == [one.name for one in CONFIG.environments]
    producer.load(step(tmp_path / "0", TEMPLATE))
    before, prompt = producer.environment, producer.environment.prompt(5, 0)
    producer.load(step(tmp_path / "1", TEMPLATE + "!"))
    assert producer.environment is not before
    assert len(loaded) == len(CONFIG.environments)
    assert producer.environment.prompt(5, 0) == PoolEnvironments.of(CONFIG, tmp_path / "1").prompt(5, 0) != prompt


LENGTHS = st.integers(0, 131072)


@given(st.floats(0, 1), st.floats(0, 1), LENGTHS, LENGTHS)
def test_every_reward_survives_a_float32_column(score: float, alpha: float, target: int, length: int) -> None:
    assert length_penalty(alpha, 0, length) == length_penalty(0.0, target, length) == 0.0
    task = float32(score)
    penalty = length_penalty(alpha, target, length)
    total = reward(task, penalty)
    assert list(struct.unpack(">fff", struct.pack(">fff", task, penalty, total))) == [task, penalty, total]
    penalties = np.float32(alpha) * np.abs(np.array([target - length])).astype(np.float32)
    expected = np.array([score], dtype=np.float32) - (penalties if target > 0 else np.float32(0))
    assert total == float(expected[0]), "a vectorised computation agrees bit for bit"
