"""From a problem to prompt tokens, and from output tokens to the text that is scored."""

import logging
import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from environments.base import Problem
from protocol.config import ModelConfig
from protocol.errors import ConfigError, first_line
from protocol.models import Tokenizer

log = logging.getLogger("muster.environments")
QUESTION = "{question}"
# Today, to every chat template that asks (Llama 3's and SmolLM3's do): a prompt is the same whenever it is made
TEMPLATE_DAY = datetime(2024, 7, 26)
_CHANCE = re.compile(r"(?:\||\bfilter\b)\s*(?=random\b)|\b(?=lipsum\b)")  # jinja's filter and function that draw
_ADDRESS = re.compile(r" at 0x[0-9a-f]{6,}>")


def prompt_text(model: ModelConfig, problem: Problem, target_length: int) -> str:
    """Return the prompt before any chat template. Raise ConfigError if the pool's template has no `{question}`."""
    if QUESTION not in model.prompt_template:
        raise ConfigError("`model.prompt_template` lacks {question}", "put {question} where the problem's text goes")
    # Not str.format: braces and attribute look-ups in an owner's template must stay plain text.
    budget = f" Think for {target_length} tokens before giving a response." if target_length > 0 else ""
    return model.prompt_template.replace(QUESTION, problem.question + budget)


def prompt_tokens(
    tokenizer: Tokenizer,
    model: ModelConfig,
    problem: Problem,
    target_length: int,
    tools: Sequence[dict[str, Any]] = (),
) -> tuple[int, ...]:
    """Return token ids of a problem's prompt, by the chat template where one is configured, which is told of the
    `tools`, else with the tokenizer's own special tokens. Raise ConfigError where the template fails."""
    text = prompt_text(model, problem, target_length)
    if model.chat_template:
        turns = [turn.model_dump() for turn in model.turns] + [{"role": "user", "content": text}]
        return tuple(tokenizer.encode(rendered(tokenizer, turns, tools), add_special_tokens=False))
    return tuple(tokenizer.encode(text))


def warn_without_stop(tokenizer: Tokenizer, eos_ids: Sequence[int]) -> None:
    """Log a warning if no stop token ends the chat template's turn: what follows an answer would be scored."""
    marker = "answer"
    messages = [{"role": "user", "content": "question"}, {"role": "assistant", "content": marker}]
    try:
        render: Any = tokenizer.apply_chat_template
        text = render(messages, add_generation_prompt=False, tokenize=False, strftime_now=TEMPLATE_DAY.strftime)
    except Exception:  # the caller that makes a prompt reports what fails here
        return
    _, marked, end = text.rpartition(marker)
    if marked and not set(tokenizer.encode(end, add_special_tokens=False)) & set(eos_ids):
        log.warning(
            "no stop token of the model ends its chat template's turn, which ends with %r: add that token's id to "
            "`eos_token_id` in generation_config.json", end[:40],
        )  # fmt: skip


def rendered(tokenizer: Tokenizer, messages: list[dict[str, str]], tools: Sequence[dict[str, Any]] = ()) -> str:
    """Return a conversation by the model's chat template, up to where the assistant speaks next. `tools`: JSON schemas
    of functions. Raise ConfigError where the template fails, or could render another text another time."""
    given: Any = getattr(tokenizer, "chat_template", None)
    for template in given.values() if isinstance(given, dict) else [given]:
        if isinstance(template, str) and (chance := _CHANCE.search(template)):
            raise ConfigError(
                f"the model's chat template is not deterministic: it uses `{template[chance.end() :][:6]}`",
                "workers and validators must render the same prompt: mend the template, or choose another model",
            )
    settings: dict[str, Any] = {"add_generation_prompt": True, "strftime_now": TEMPLATE_DAY.strftime}
    try:
        text = tokenizer.apply_chat_template(messages, tools=list(tools) or None, tokenize=False, **settings)
    except Exception as error:  # a template is a program of the model's author: it can raise anything
        raise ConfigError(
            f"the model's chat template cannot be used: {first_line(error)}",
            "set `model.chat_template` to false, or choose a model whose template has what the pool needs",
        ) from None
    if _ADDRESS.search(text):
        what = "the model's chat template prints the address of an object, which differs in every process"
        raise ConfigError(what, "mend the template, or choose another model")
    return text


def completion_text(tokenizer: Tokenizer, tokens: Sequence[int], eos_ids: Sequence[int], answer_after: str = "") -> str:
    """Return the text that is scored: after the last `answer_after`, without its final EOS and unknown ids."""
    kept = tokens[:-1] if tokens and tokens[-1] in eos_ids else tokens
    ids = [token for token in kept if 0 <= token < len(tokenizer)]
    text = tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    return answer_of(text, answer_after)


def answer_of(text: str, answer_after: str) -> str:
    """Return what follows the last `answer_after`, if that is set; empty where it is absent: there is no answer."""
    if not answer_after:
        return text
    _, mark, answer = text.rpartition(answer_after)
    return answer if mark else ""
