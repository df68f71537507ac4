"""What is learned of a conversation: the assistant's words and that it stops, nothing else; unusable data is named."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from protocol.errors import ConfigError
from protocol.models import EOS, load_tokenizer, save_byte_tokenizer
from trainer.sft import Conversation, ConversationEncoder, Example, packed_row, read_conversations

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
FORGETFUL = (
    "{% for m in messages %}{% if loop.last or m.role == 'user' %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SHOUTING = "{% for m in messages %}{{ m.content | upper }}{% endfor %}{% if add_generation_prompt %}>{% endif %}"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("tokenizer")
    save_byte_tokenizer(folder, ["<|im_start|>", "<|im_end|>", "</think>"])
    return load_tokenizer(folder)


@pytest.fixture
def chat(tokenizer: Any) -> Any:
    tokenizer.chat_template = CHATML
    yield tokenizer
    tokenizer.chat_template = None


def talk(*turns: tuple[str, Any]) -> Conversation:
    return Conversation.model_validate({"messages": [{"role": role, "content": content} for role, content in turns]})


def split(tokenizer: Any, example: Example) -> list[tuple[bool, str]]:
    """The example as runs of learned and unlearned text."""
    runs: list[tuple[bool, list[int]]] = []
    for token, wanted in zip(example.tokens, example.learned, strict=True):
        if not runs or runs[-1][0] != wanted:
            runs.append((wanted, []))
        runs[-1][1].append(token)
    return [(wanted, tokenizer.decode(ids)) for wanted, ids in runs]


def test_only_what_the_assistant_says_is_learned_and_that_it_stops(chat: Any) -> None:
    said = talk(("system", "Be brief."), ("user", "2+2?"), ("assistant", "4"), ("user", "Sure?"), ("assistant", "Yes"))
    assert split(chat, ConversationEncoder(chat, True).encode(said)) == [
        (False, "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n"),
        (True, "4<|im_end|>"),
        (False, "\n<|im_start|>user\nSure?<|im_end|>\n<|im_start|>assistant\n"),
        (True, "Yes<|im_end|>"),
    ]


def test_the_prompt_is_tokenized_as_in_training_by_reinforcement(chat: Any) -> None:
    example = ConversationEncoder(chat, True).encode(talk(("user", "2+2?"), ("assistant", "4")))
    text = chat.apply_chat_template([{"role": "user", "content": "2+2?"}], add_generation_prompt=True, tokenize=False)
    prompt = chat.encode(text, add_special_tokens=False)
    assert list(example.tokens[: len(prompt)]) == prompt
    assert example.learned.index(True) == len(prompt)


def test_without_a_template_turns_follow_one_another_and_eos_ends_each_answer(tokenizer: Any) -> None:
    said = talk(("user", "1+1="), ("assistant", "2"), ("user", "2+2="), ("assistant", "4"))
    assert split(tokenizer, ConversationEncoder(tokenizer, False).encode(said)) == [
        (False, "1+1="),
        (True, f"2{EOS}"),
        (False, "2+2="),
        (True, f"4{EOS}"),
    ]


def test_of_an_answer_in_parts_only_the_learned_ones_are_learned(tokenizer: Any) -> None:
    parts = [{"text": "</think>"}, {"text": "17", "learned": False}]
    assert split(
        tokenizer, ConversationEncoder(tokenizer, False).encode(talk(("user", "9+8="), ("assistant", parts)))
    ) == [
        (False, "9+8="),
        (True, "</think>"),
        (False, f"17{EOS}"),
    ]


def test_templates_that_change_what_was_said_are_refused(tokenizer: Any) -> None:
    twice = talk(("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", "d"))
    for template, said in ((FORGETFUL, "changes earlier turns"), (SHOUTING, "changes what the assistant says")):
        tokenizer.chat_template = template
        with pytest.raises(ConfigError, match=said):
            ConversationEncoder(tokenizer, True).encode(twice)
    tokenizer.chat_template = None
    with pytest.raises(ConfigError, match="has no chat template"):
        ConversationEncoder(tokenizer, True)


def test_a_packed_row_predicts_every_learned_token_from_the_one_before() -> None:
    first = Example((5, 6, 7, 8), (False, False, True, True))
    second = Example((1, 2, 3), (False, True, False))
    row = packed_row([first, second], [1, 0], torch.device("cpu"))
    assert row.tokens.tolist() == [[1, 2, 3, 5, 6, 7, 8]]
    assert row.rows.tolist() == [0, 4, 5]
    assert row.targets.tolist() == [2, 7, 8]
    assert row.sequence.tolist() == [0, 1, 1]
    assert row.layout.positions.tolist() == [[0, 1, 2, 0, 1, 2, 3]]
    dummy = packed_row([first], [], torch.device("cpu"))
    assert dummy.outputs == 0


def test_an_example_whose_first_token_is_learned_cannot_be() -> None:
    with pytest.raises(ValueError, match="nothing predicts its first one"):
        Example((1, 2), (True, True))


USER = {"role": "user", "content": "x"}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 2: it is not JSON"),
        ('{"messages": []}', "line 2: `messages`"),
        (json.dumps({"messages": [USER, USER]}), "no turn is the assistant's"),
        (json.dumps({"messages": [{"role": "assistant", "content": "x"}, USER]}), "cannot speak first"),
        (json.dumps({"messages": [USER, {"role": "robot", "content": "x"}]}), "line 2: `messages.1.role`"),
        (json.dumps({"text": "x"}), "line 2: `messages`"),
        (json.dumps({"messages": [USER, {"role": "assistant", "content": []}]}), "line 2: `messages.1.content"),
    ],
)
def test_data_that_cannot_be_used_names_its_line(tmp_path: Path, line: str, said: str) -> None:
    good = json.dumps({"messages": [USER, {"role": "assistant", "content": "y"}]})
    path = tmp_path / "data.jsonl"
    path.write_text(f"{good}\n{line}\n")
    with pytest.raises(ConfigError) as error:
        list(read_conversations(path))
    assert said in str(error.value)
    assert str(path) in str(error.value)


def test_data_that_is_no_text_or_not_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="is not UTF-8"):
        list(read_conversations(tmp_path / "data"))
    with pytest.raises(ConfigError, match="cannot read"):
        list(read_conversations(tmp_path / "none"))
