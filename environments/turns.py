"""Several turns: their parameters, what a transcript is, replies as tokens, and calls of tools."""

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import pairwise
from typing import Any, Literal

from pydantic import Field

from environments.base import Params, Turns
from environments.prompts import rendered
from protocol.config import ModelConfig
from protocol.errors import ConfigError
from protocol.models import Tokenizer
from protocol.rollout_file.rows import Tokens, Transcript

MOST_TURNS, MOST_TOOLS, TOOLS_CHARS = 64, 64, 1 << 16


class TurnParams(Params):
    """What a pool may set of an environment that replies."""

    turns: int = Field(1, ge=1, le=MOST_TURNS)
    reply_tokens: int = Field(256, ge=1, le=1 << 16)
    reply_role: Literal["tool", "user"] = "user"

    def with_tools(self, tools: Sequence[dict[str, Any]]) -> Turns:
        return Turns(self.turns, self.reply_tokens, self.reply_role, tuple(tools))


def checked_tools(tools: Any) -> list[dict[str, Any]]:
    """Return JSON schemas of functions. Raise ValueError for what no chat template may be told of."""
    is_list = isinstance(tools, list) and len(tools) <= MOST_TOOLS and all(isinstance(tool, dict) for tool in tools)
    if not is_list or len(json.dumps(tools)) > TOOLS_CHARS:
        raise ValueError(f"use a list of at most {MOST_TOOLS} JSON schemas, {TOOLS_CHARS} characters together")
    return list(tools)


# What is put after the turns so far; None where they are the end. A function of them and the problem alone.
Reply = Callable[[Sequence[Tokens]], Tokens | None]


def turns_of(sampled: Sequence[int], eos_ids: Collection[int]) -> list[Tokens]:
    """Return what was sampled (at least one token), cut after each EOS."""
    cuts = [index + 1 for index, token in enumerate(sampled[:-1]) if token in eos_ids]
    return [tuple(sampled[first:last]) for first, last in pairwise((0, *cuts, len(sampled)))]


def replay(sampled: Tokens, eos_ids: Collection[int], most: int, reply: Reply) -> Transcript:
    """Take apart what was sampled, `most` turns at most: an EOS ends a turn, and the environment says what follows."""
    turns: list[Tokens] = []
    replies: list[Tokens] = []
    remaining = turns_of(sampled, eos_ids)
    while True:
        turns.append(remaining.pop(0))
        next_reply = reply(turns) if turns[-1][-1] in eos_ids and len(turns) < most else None
        if next_reply is None or not remaining:
            return Transcript(tuple(turns), tuple(replies), next_reply, sum(map(len, remaining)))
        replies.append(next_reply)


# Replies as tokens: what the model's own chat template puts between the end of a turn and the beginning of the next.
# Sampled tokens are never tokenised again; only the text after them is, and that follows from the reply alone.


_ANSWER, _PROBE = "muster-turn", "muster-reply"
_CALL = "muster000"  # what a tool's reply says it answers; some templates (Mistral's) want nine letters or digits


class ReplyFrame:
    """Of a pool's model, for replies of one role of its chat template, "tool" or "user"; without a chat template a
    reply is put between turns as it is. Raises ConfigError where the template has no place for such a reply."""

    def __init__(self, tokenizer: Tokenizer, model: ModelConfig, role: str, eos_ids: Sequence[int]) -> None:
        self._tokenizer, self._model, self._role = tokenizer, model, role
        added = {number: token.content for number, token in tokenizer.added_tokens_decoder.items() if token.special}
        self._control, self._spellings = frozenset(added), sorted({text for text in added.values() if text})
        ends = {tokenizer.decode([end], skip_special_tokens=False, clean_up_tokenization_spaces=False)
                for end in eos_ids if end < len(tokenizer)}  # fmt: skip
        self._ends = sorted(ends, key=len, reverse=True)
        hint = 'set `reply_role` to "user", or ' if role == "tool" else ""
        hint += "choose a model whose template has a place for it"
        try:
            self._before, probe, self._behind = self._after(_PROBE).partition(_PROBE)
        except ConfigError as error:
            raise ConfigError(error.what, hint) from None
        if not probe:
            raise ConfigError(f"the model's chat template leaves out what the role `{role}` says", hint)
        whole = tokenizer.encode(self._before + _PROBE + self._behind, add_special_tokens=False)
        self._own = self._controlling(whole)

    def tokens(self, text: str, most: int) -> tuple[int, ...] | None:
        """Return what is put after a turn's EOS. None where that is more than `most` tokens, or the template has no
        place for this text: it raises, frames it otherwise than others, or makes control tokens of it."""
        try:
            after = self._after(text)
        except ConfigError:
            return None
        first, last = len(self._before), len(after) - len(self._behind)
        if not (after.startswith(self._before) and after.endswith(self._behind)) or last < first:
            return None
        tokens: list[int] = []
        for piece in self._apart(after, first, last):
            tokens += self._tokenizer.encode(piece, add_special_tokens=False)
            if len(tokens) > most:
                return None
        return tuple(tokens) if self._controlling(tokens) == self._own else None

    def _apart(self, text: str, first: int, last: int) -> Iterator[str]:
        """Yield the text, cut so that no control token begins or ends within the reply: it may quote what a stranger's
        model wrote, and spelling a role's header must not count as speaking in that role."""
        cuts = set[int]()
        for name in self._spellings:
            position = text.find(name)
            while position >= 0:  # overlapping ones too
                if position + len(name) > first and position < last:
                    cuts.add(position + 1)
                position = text.find(name, position + 1)
        for start, cut in pairwise((0, *sorted(cuts), len(text))):
            yield text[start:cut]

    def _controlling(self, tokens: Sequence[int]) -> list[int]:
        return [token for token in tokens if token in self._control]

    def _after(self, text: str) -> str:
        """Return what the template puts after an answer and its EOS when `text` follows, up to the assistant's turn."""
        if not self._model.chat_template:
            return text
        messages = [turn.model_dump() for turn in self._model.turns] + [{"role": "user", "content": "."}]
        messages += [{"role": "assistant", "content": _ANSWER}, {"role": self._role, "content": text}]
        if self._role == "tool":
            messages[-1]["tool_call_id"] = _CALL
        _, answer, after = rendered(self._tokenizer, messages).partition(_ANSWER)
        if not answer:
            raise ConfigError("the model's chat template leaves answers out", "choose a model whose template has turns")
        # Which of several stop tokens a turn was ended by makes no difference: one of them stands there already.
        return next((after.removeprefix(end) for end in self._ends if end and after.startswith(end)), after)


_LONGEST, _MOST = 4096, 16
_BRACKETS = 200  # more are no call: how deep this machine's parser can go depends on who called it


def tool_call(text: str) -> tuple[str, dict[str, Any]] | None:
    """Return name and arguments of the last call in a turn's last 4,096 characters, None without one, in the form of
    Hermes and Qwen (`<tool_call>{"name": …, "arguments": {…}}</tool_call>`), Llama (`parameters`) or Mistral (a
    list)."""
    text, call, start = text[-_LONGEST:], None, 0
    if text.count("{") + text.count("[") > _BRACKETS:
        return None
    for _ in range(_MOST):
        if (start := text.find("{", start)) < 0:
            break
        try:
            value, start = json.JSONDecoder().raw_decode(text, start)
        except ValueError:
            start += 1
            continue
        if isinstance(value, dict) and isinstance(value.get("name"), str):
            arguments = [value.get(name) for name in ("arguments", "parameters")]
            call = next(((value["name"], given) for given in arguments if isinstance(given, dict)), call)
    return call
