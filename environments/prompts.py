"""From a problem to prompt tokens, and from output tokens to the text that is scored."""

import logging
import re
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from jinja2 import Environment, TemplateError, nodes

from environments.base import Problem
from protocol.config import ModelConfig
from protocol.errors import ConfigError, first_line
from protocol.models import Tokenizer

log = logging.getLogger("muster.environments")
QUESTION = "{question}"
TEMPLATE_DAY = datetime(2024, 7, 26)
"""Today, to every chat template that asks (Llama 3's and SmolLM3's do): a prompt is the same whenever it is made."""
_CHANCE = re.compile(r"(?:\|\s*(?=random\b)|\b(?=lipsum\b))(random|lipsum)")
_ADDRESS = re.compile(r" at 0x[0-9a-f]{6,}>")


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


def warn_without_stop(tokenizer: Tokenizer, eos_ids: Sequence[int]) -> None:
    """Log a warning if no stop token ends the assistant's turn of the chat template: answers would then run to the
    length limit, and what follows the turn would be scored."""
    marker = "answer"
    turns = [{"role": "user", "content": "question"}, {"role": "assistant", "content": marker}]
    try:
        render: Any = tokenizer.apply_chat_template
        text = render(turns, add_generation_prompt=False, tokenize=False, strftime_now=TEMPLATE_DAY.strftime)
    except Exception:  # what fails here is told where a prompt is made
        return
    _, found, end = text.rpartition(marker)
    if found and not set(tokenizer.encode(end, add_special_tokens=False)) & set(eos_ids):
        log.warning(
            "no stop token of the model ends its chat template's turn, which ends with %r: add that token's id to "
            "`eos_token_id` in generation_config.json", end[:40],
        )  # fmt: skip


def rendered(tokenizer: Tokenizer, turns: list[dict[str, str]], tools: Sequence[dict[str, Any]] = ()) -> str:
    """Return a conversation by the model's chat template, up to where the assistant speaks next. `tools`: JSON schemas
    of functions. Raise ConfigError where the template fails, or could render another text another time."""
    given: Any = getattr(tokenizer, "chat_template", None)
    for template in given.values() if isinstance(given, dict) else [given]:
        chance = isinstance(template, str) and _chance(template)
        if chance:
            raise ConfigError(
                f"the model's chat template is not deterministic: it uses `{chance}`",
                "workers and validators must render the same prompt: mend the template, or choose another model",
            )
    try:
        text = tokenizer.apply_chat_template(
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
    if _ADDRESS.search(text):
        raise ConfigError(
            "the model's chat template prints the address of an object, which differs in every process",
            "mend the template, or choose another model",
        )
    return text


@lru_cache(maxsize=64)
def _chance(template: str) -> str:
    """What makes a template's text a matter of chance, or an empty string."""
    try:
        tree = Environment(extensions=["jinja2.ext.loopcontrols"]).parse(template)
    except TemplateError:  # transformers knows tags that this parser does not
        found = _CHANCE.search(template)
        return found[1] if found else ""
    if any(one.name == "random" for one in tree.find_all(nodes.Filter)):
        return "random"
    return next((one.name for one in tree.find_all(nodes.Name) if one.name == "lipsum"), "")


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
