"""The byte-level tokenizer, prompts and answers, and careful loading of model folders."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from environments.base import Problem
from environments.prompts import completion_text, prompt_tokens
from protocol.config import ChatTurn, ModelConfig
from protocol.errors import ConfigError, IntegrityError
from protocol.models import eos_ids, load_tokenizer, save_byte_tokenizer
from trainer.model.tiny_model import PHRASES, tiny_model_config

PROBLEM = Problem("State the final answer to the following arithmetic problem: 5 - 9 + 3 =", "-1")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("tokenizer")
    size = save_byte_tokenizer(folder, PHRASES)
    loaded: Any = load_tokenizer(folder)
    assert len(loaded) == size == 266
    return loaded


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=60))
def test_any_text_comes_back(tokenizer: Any, text: str) -> None:
    assert completion_text(tokenizer, tokenizer.encode(text), ()) == text


def test_phrases_are_single_tokens(tokenizer: Any) -> None:
    tokens = prompt_tokens(tokenizer, tiny_model_config(), PROBLEM, 0)
    assert len(tokens) == 8
    longer = prompt_tokens(tokenizer, tiny_model_config(), PROBLEM, 24)
    assert len(longer) == len(tokens) + 4
    assert "Think for 24 tokens" in tokenizer.decode(list(longer))


def test_the_answer_is_what_follows_the_thought(tokenizer: Any) -> None:
    end = tokenizer.eos_token_id
    done = [*tokenizer.encode("4+7=11</think>11"), end]
    assert completion_text(tokenizer, done, (end,), "</think>") == "11"
    assert completion_text(tokenizer, tokenizer.encode("11"), (end,), "</think>") == ""
    assert completion_text(tokenizer, [end, end], (end,), "") == "<|end|>"
    assert completion_text(tokenizer, [], (end,), "") == ""
    beyond_the_tokenizer = [70_000, -4, 2**40]
    assert completion_text(tokenizer, [*beyond_the_tokenizer, *tokenizer.encode("7")], ()) == "7"


def test_a_template_is_plain_text(tokenizer: Any) -> None:
    model = ModelConfig(source="x", prompt_template="{question.__class__} {question}{0}")
    text = tokenizer.decode(list(prompt_tokens(tokenizer, model, Problem("1", "1"), 0)))
    assert text == "{question.__class__} 1{0}"
    with pytest.raises(ConfigError, match="lacks"):
        prompt_tokens(tokenizer, ModelConfig(source="x", prompt_template="none"), PROBLEM, 0)


def test_a_chat_template_is_used_where_configured(tokenizer: Any) -> None:
    tokenizer.chat_template = "{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}{% endfor %}[assistant]"
    model = ModelConfig(source="x", chat_template=True)
    tokens = prompt_tokens(tokenizer, model, Problem("hi", ""), 0)
    assert tokenizer.decode(list(tokens)) == "[user]hi[assistant]"
    turns = (ChatTurn(role="system", content="Add."), ChatTurn(role="user", content="1+1"))
    tokens = prompt_tokens(tokenizer, model.model_copy(update={"turns": turns}), Problem("hi", ""), 0)
    assert tokenizer.decode(list(tokens)) == "[system]Add.[user]1+1[user]hi[assistant]"
    tokenizer.chat_template = None


def test_a_chat_template_that_fails_is_named_in_one_line(tokenizer: Any) -> None:
    with pytest.raises(ValueError, match="set chat_template to true"):
        ModelConfig(source="x", turns=(ChatTurn(role="system", content="Add."),))
    model = ModelConfig(source="x", chat_template=True)
    for template, said in ((None, "chat_template is not set"), ("{{ raise_exception('two turns') }}", "two turns")):
        tokenizer.chat_template = template
        with pytest.raises(ConfigError, match=f"chat template cannot be used: .*{said}"):
            prompt_tokens(tokenizer, model, Problem("hi", ""), 0)
    tokenizer.chat_template = None


def test_a_chat_template_that_names_the_day_gives_the_same_prompt_on_every_day(tokenizer: Any) -> None:
    tokenizer.chat_template = "Today: {{ strftime_now('%d %b %Y') }}. {{ messages[0]['content'] }}"
    tokens = prompt_tokens(tokenizer, ModelConfig(source="x", chat_template=True), Problem("hi", ""), 0)
    assert tokenizer.decode(list(tokens)) == "Today: 26 Jul 2024. hi"
    tokenizer.chat_template = None


def test_the_tokenizer_file_rules_and_not_the_class_that_the_folder_names(tmp_path: Path) -> None:
    """Qwen2's own class would split digits, which this file does not ask for."""
    save_byte_tokenizer(tmp_path, ("12",))
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"tokenizer_class": "Qwen2Tokenizer"}))
    document = json.loads((tmp_path / "tokenizer.json").read_text())
    document["added_tokens"] = [token for token in document["added_tokens"] if token["content"] != "12"]
    document["model"]["vocab"]["12"] = 256
    document["model"]["merges"] = [["1", "2"]]
    (tmp_path / "tokenizer.json").write_text(json.dumps(document))
    loaded: Any = load_tokenizer(tmp_path)
    assert loaded.encode("12") == [256]


def test_eos_ids_come_from_the_generation_config_first(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": 5}))
    assert eos_ids(tmp_path) == (5,)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [9, 2, 9]}))
    assert eos_ids(tmp_path) == (2, 9)


@pytest.mark.parametrize("text", ["{}", '{"eos_token_id": "x"}', '{"eos_token_id": []}', '{"eos_token_id": true}'])
def test_a_folder_without_eos_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(IntegrityError, match="names no eos_token_id"):
        eos_ids(tmp_path)


def test_broken_folders_are_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(IntegrityError, match="no model folder"):
        load_tokenizer(tmp_path / "absent")
    with pytest.raises(IntegrityError, match="holds no tokenizer"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(IntegrityError, match="cannot be read"):
        load_tokenizer(tmp_path)
    (tmp_path / "config.json").write_text("[" * 100_000)
    with pytest.raises(IntegrityError, match="is not JSON"):
        eos_ids(tmp_path)
