"""From a problem to prompt tokens, and from output tokens to the text that is scored."""

from collections.abc import Sequence
from typing import Protocol

from protocol.config import ModelConfig
from protocol.errors import ConfigError
from protocol.tasks.base import Problem

QUESTION = "{question}"


class Tokenizer(Protocol):
    """The part of a Hugging Face tokenizer that the protocol uses."""

    def __len__(self) -> int: ...
    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]: ...
    def decode(self, token_ids: list[int], *, skip_special_tokens: bool, clean_up_tokenization_spaces: bool) -> str: ...
    def apply_chat_template(
        self, conversation: list[dict[str, str]], *, add_generation_prompt: bool, tokenize: bool
    ) -> str: ...


def budget_phrase(target_length: int) -> str:
    """What a thinking budget appends to the question; nothing where there is none."""
    return f" Think for {target_length} tokens before giving a response." if target_length > 0 else ""


def prompt_text(model: ModelConfig, problem: Problem, target_length: int) -> str:
    """The prompt before any chat template. Raises ConfigError if the pool's template has no `{question}`."""
    if QUESTION not in model.prompt_template:
        raise ConfigError("`model.prompt_template` lacks {question}", "put {question} where the problem's text goes")
    # Not str.format: braces and attribute look-ups in an owner's template must stay plain text.
    return model.prompt_template.replace(QUESTION, problem.question + budget_phrase(target_length))


def prompt_tokens(tokenizer: Tokenizer, model: ModelConfig, problem: Problem, target_length: int) -> tuple[int, ...]:
    """Token ids of a problem's prompt. A chat template, where configured, brings its own special tokens."""
    text = prompt_text(model, problem, target_length)
    if model.chat_template:
        turns = [{"role": "user", "content": text}]
        text = tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
        return tuple(tokenizer.encode(text, add_special_tokens=False))
    return tuple(tokenizer.encode(text))


def completion_text(tokenizer: Tokenizer, tokens: Sequence[int], eos_ids: Sequence[int], answer_after: str = "") -> str:
    """The text that is scored: the completion without its final EOS, after the last `answer_after`.

    Where `answer_after` is set but absent there is no answer: the result is empty. Ids beyond the tokenizer (padded
    vocabularies have some) carry no text.
    """
    kept = tokens[:-1] if tokens and tokens[-1] in eos_ids else tokens
    size = len(tokenizer)
    ids = [token for token in kept if 0 <= token < size]
    text = tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    if not answer_after:
        return text
    _, found, answer = text.rpartition(answer_after)
    return answer if found else ""
