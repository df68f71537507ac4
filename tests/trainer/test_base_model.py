"""The base model's cache: deterministic, verified on reuse, rebuilt when damaged."""

from pathlib import Path
from typing import Any

import pytest

from environments.pool import PoolEnvironments
from environments.prompts import prompt_tokens
from environments.registry import load_environment
from localnet.plan import DEMO_ENVIRONMENT
from protocol.config import EnvironmentConfig, ModelConfig, PoolConfig
from protocol.encoding import tagged_hash, words
from protocol.errors import ConfigError
from protocol.files import file_digests
from protocol.models import load_tokenizer, save_byte_tokenizer
from protocol.rollout_file.rows import interleaved
from trainer.model.base_model import Recipe, base_model, cache_key, conversation, warmed_up, worked_sum
from trainer.model.tiny_model import PHRASES, tiny_model_config
from trainer.sft import ConversationEncoder

QUICK = Recipe(worked_steps=3, mixed_steps=2, batch=4)


def build(cache: Path, seed: int = 1) -> tuple[Path, list[str]]:
    said: list[str] = []
    return warmed_up(DEMO_ENVIRONMENT, seed, cache, said.append, QUICK), said


def test_a_seed_decides_every_byte(tmp_path: Path) -> None:
    first, _ = build(tmp_path / "a")
    stamp = (first / "model.safetensors").stat().st_mtime_ns
    assert build(tmp_path / "a") == (first, ["base model for seed 1: from the cache"])
    assert (first / "model.safetensors").stat().st_mtime_ns == stamp
    second, _ = build(tmp_path / "b")
    other, _ = build(tmp_path / "a", seed=2)
    assert file_digests(first) == file_digests(second)
    assert file_digests(first)["model.safetensors"] != file_digests(other)["model.safetensors"]
    assert {"config.json", "generation_config.json", "tokenizer.json"} <= set(file_digests(first))


@pytest.mark.parametrize("damage", ["flip", "truncate", "remove", "extra", "record"])
def test_a_damaged_cache_is_noticed_and_made_again(tmp_path: Path, damage: str) -> None:
    folder, _ = build(tmp_path)
    good = file_digests(folder)
    target = folder / "model.safetensors"
    data = target.read_bytes()
    if damage == "flip":
        target.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    elif damage == "truncate":
        target.write_bytes(data[:100])
    elif damage == "remove":
        target.unlink()
    elif damage == "extra":
        (folder / "more.json").write_text("{}")
    else:
        (tmp_path / f"{folder.name}.json").write_text("{")
    again, said = build(tmp_path)
    assert said[0] == f"the cached base model {folder} is damaged; making it again"
    assert file_digests(again) == good


def test_the_key_depends_on_recipe_seed_and_task() -> None:
    demo = DEMO_ENVIRONMENT
    other = demo.model_copy(update={"params": demo.params | {"max_terms": 5}})
    parts = ((demo, 1, QUICK), (demo, 2, QUICK), (demo, 1, Recipe()), (other, 1, QUICK))
    assert len({cache_key(*part) for part in parts}) == 4


def test_sums_are_worked_from_left_to_right() -> None:
    task = load_environment(DEMO_ENVIRONMENT)
    for index in range(200):
        problem = task.problem(_number(index))
        thought, _, answer = conversation(task, 5, index, 1.0).messages[1].text.partition("</think>")
        assert thought == worked_sum(problem)
        assert thought.rsplit("=", 1)[1] == answer == problem.answer
        for line in thought.splitlines():
            left, right = line.split("=")
            assert eval(left) == int(right)


def test_a_blurted_answer_teaches_only_the_decision_not_to_think(tmp_path: Path) -> None:
    save_byte_tokenizer(tmp_path, PHRASES)
    tokenizer: Any = load_tokenizer(tmp_path)
    task, encoder = load_environment(DEMO_ENVIRONMENT), ConversationEncoder(tokenizer, chat_template=False)
    for index in range(50):
        blurted, worked = (encoder.encode(conversation(task, 5, index, share)) for share in (0.0, 1.0))
        learned = [token for token, wanted in zip(blurted.tokens, blurted.learned, strict=True) if wanted]
        assert learned == [tokenizer.convert_tokens_to_ids("</think>")]
        prompt = prompt_tokens(tokenizer, tiny_model_config(), task.problem(_number(index)), 0)
        assert worked.tokens[: len(prompt)] == blurted.tokens[: len(prompt)] == prompt
        assert worked.learned == (False,) * len(prompt) + (True,) * (len(worked.tokens) - len(prompt))
        assert worked.tokens[-1] == tokenizer.eos_token_id


def test_a_tool_is_taught_in_turns_as_rollouts_have_them(tmp_path: Path) -> None:
    """The worked example is, token for token, a rollout of three turns that is worth 1; what the tool says is read."""
    save_byte_tokenizer(tmp_path, PHRASES)
    tokenizer: Any = load_tokenizer(tmp_path)
    tool = EnvironmentConfig(name="lookup")
    config = PoolConfig(name="tool", model=tiny_model_config(), environments=(tool,))
    task, pool = load_environment(tool), PoolEnvironments(config, tokenizer, (tokenizer.eos_token_id,), len(tokenizer))
    encoder = ConversationEncoder(tokenizer, chat_template=False)
    for index in range(20):
        made, seed = encoder.encode(conversation(task, 5, index, 1.0)), _number(index)
        prompt = pool.prompt(seed, 0)
        learned = tuple(token for token, wanted in zip(made.tokens, made.learned, strict=True) if wanted)
        transcript = pool.transcript(seed, learned)
        assert made.tokens == (*prompt, *interleaved(learned, transcript.inserted))
        assert (len(transcript.turns), transcript.due, transcript.excess) == (3, None, 0)
        assert pool.score(seed, 0, learned).task_reward == 1.0


def _number(index: int) -> int:
    return words(tagged_hash("muster/warmup/1", 5, index), 1)[0]


def test_a_folder_is_used_as_it_is_and_nonsense_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert base_model(ModelConfig(source=str(tmp_path)), DEMO_ENVIRONMENT, 1) == tmp_path
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ConfigError, match="neither a folder nor a model"):
        base_model(ModelConfig(source="no-such/../model"), DEMO_ENVIRONMENT, 1)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot write to the cache"):
        build(tmp_path / "file" / "cache")
