"""From a problem to prompt tokens, and from output tokens to the text that is scored."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from environments.base import Problem
from protocol.config import ModelConfig
from protocol.errors import ConfigError, first_line
from protocol.models import Tokenizer

QUESTION = "{question}"
TEMPLATE_DAY = datetime(2024, 7, 26)
"""Today, to every chat template that asks (Llama 3's and SmolLM3's do): a prompt is the same whenever it is made."""


def budget_phrase(target_length: int) -> str:
    """Return what a thinking budget appends to the question; nothing where there is none."""
    return f" Think for {target_length} tokens before giving a response." if target_length > 0 else ""


def prompt_text(model: ModelConfig, problem: Problem, target_length: int) -> str:
    """Return the prompt before any chat template. Raise ConfigError if the pool's template has no `{question}`."""
    if QUESTION not in model.prompt_template:
        raise ConfigError("`model.prompt_template` lacks {question}", "put {question} where the problem's text goes")
    # Not str.format: braces and attribute look-ups in an owner's template must stay plain text.
    return model.prompt_template.replace(QUESTION, problem.question + budget_phrase(target_length))


def prompt_tokens(
    tokenizer: Tokenizer,
    model: ModelConfig,
    problem: Problem,
    target_length: int,
    tools: Sequence[dict[str, Any]] = (),
) -> tuple[int, ...]:
    """Return token ids of a problem's prompt. A chat template, where configured, brings its own special tokens and is
    told of the `tools`; other text gets those that the tokenizer puts before every text. Raise ConfigError where the
    chat template fails."""
    text = prompt_text(model, problem, target_length)
    if model.chat_template:
        turns = [turn.model_dump() for turn in model.turns] + [{"role": "user", "content": text}]
        return tuple(tokenizer.encode(rendered(tokenizer, turns, tools), add_special_tokens=False))
    return tuple(tokenizer.encode(text))


def rendered(tokenizer: Tokenizer, turns: list[dict[str, str]], tools: Sequence[dict[str, Any]] = ()) -> str:
    """Return a conversation by the model's chat template, up to where the assistant speaks next. `tools`: JSON schemas
    of functions. Raise ConfigError where the template fails."""
    try:
        return tokenizer.apply_chat_template(
            turns,
            tools=list(tools) or None,
            add_generation_prompt=True,
            tokenize=False,
            strftime_now=TEMPLATE_DAY.strftime,
        )
    except Exception as error:  # a template is a program of the model's author: it can raise anything
        raise ConfigError(
            f"the model's chat template cannot be used: {first_line(error)}",
            "set `model.chat_template` to false, or choose a model whose template has what the pool needs",
        ) from None


def completion_text(tokenizer: Tokenizer, tokens: Sequence[int], eos_ids: Sequence[int], answer_after: str = "") -> str:
    """Return the text that is scored: the completion without its final EOS, after the last `answer_after`.

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
