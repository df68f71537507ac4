"""A reply as tokens: what the model's own chat template puts between the end of a turn and the beginning of the next.

What was sampled is never tokenised again: only the text after it is, and that follows from the reply alone.
"""

from collections.abc import Iterator, Sequence

from environments.prompts import rendered
from protocol.config import ModelConfig
from protocol.errors import ConfigError
from protocol.models import Tokenizer

_ANSWER = "muster-turn"
_PROBE = "muster-reply"
_CALL = "muster000"
"""What a tool's reply says it answers; some templates (Mistral's) want nine letters or digits there."""


class ReplyFrame:
    """Of a pool's model, for replies of one role of its chat template, "tool" or "user"; without a chat template a
    reply is put between turns as it is. Raises ConfigError where the template has no place for such a reply."""

    def __init__(self, tokenizer: Tokenizer, model: ModelConfig, role: str, eos_ids: Sequence[int]) -> None:
        self._tokenizer, self._model, self._role = tokenizer, model, role
        added = {number: token.content for number, token in tokenizer.added_tokens_decoder.items() if token.special}
        self._control, self._spellings = frozenset(added), sorted({text for text in added.values() if text})
        ends = {self._tokenizer.decode([end], skip_special_tokens=False, clean_up_tokenization_spaces=False)
                for end in eos_ids if end < len(tokenizer)}  # fmt: skip
        self._ends = sorted(ends, key=len, reverse=True)
        self._before, found, self._behind = self._probed().partition(_PROBE)
        if not found:
            raise ConfigError(f"the model's chat template leaves out what the role `{role}` says", self._hint)
        whole = tokenizer.encode(self._before + _PROBE + self._behind, add_special_tokens=False)
        self._own = self._controlling(whole)

    def tokens(self, text: str, most: int) -> tuple[int, ...] | None:
        """What is put after a turn's EOS. None where that is more than `most` tokens, and where the template has no
        place for this very text: it raises, puts something else around it than around other texts, or makes control
        tokens of it."""
        try:
            after = self._after(text)
        except ConfigError:
            return None
        framed = after.startswith(self._before) and after.endswith(self._behind)
        first, last = len(self._before), len(after) - len(self._behind)
        if not framed or last < first:
            return None
        tokens: list[int] = []
        for piece in self._apart(after, first, last):
            tokens += self._tokenizer.encode(piece, add_special_tokens=False)
            if len(tokens) > most:
                return None
        return tuple(tokens) if self._controlling(tokens) == self._own else None

    def _apart(self, after: str, first: int, last: int) -> Iterator[str]:
        """The text, cut so that no control token begins or ends within the reply: it may quote what a stranger's model
        wrote, and whoever spells a role's header must not have spoken in that role."""
        cuts = {found + 1 for name in self._spellings for found in _places(after, name) if found + len(name) > first}
        start = 0
        for cut in sorted(cut for cut in cuts if cut <= last):
            yield after[start:cut]
            start = cut
        yield after[start:]

    def _controlling(self, tokens: Sequence[int]) -> list[int]:
        return [token for token in tokens if token in self._control]

    def _probed(self) -> str:
        try:
            return self._after(_PROBE)
        except ConfigError as error:
            raise ConfigError(error.what, self._hint) from None

    @property
    def _hint(self) -> str:
        other = 'set `reply_role` to "user", or ' if self._role == "tool" else ""
        return f"{other}choose a model whose template has a place for it"

    def _after(self, text: str) -> str:
        """What the template puts after an answer and its EOS when `text` follows and the assistant speaks next."""
        if not self._model.chat_template:
            return text
        said = [{"role": "user", "content": "."}, {"role": "assistant", "content": _ANSWER}]
        said.append({"role": self._role, "content": text})
        if self._role == "tool":
            said[-1]["tool_call_id"] = _CALL
        turns = [turn.model_dump() for turn in self._model.turns]
        _, found, after = rendered(self._tokenizer, turns + said).partition(_ANSWER)
        if not found:
            raise ConfigError("the model's chat template leaves answers out", "choose a model whose template has turns")
        # Which of several stop tokens a turn was ended by makes no difference: one of them stands there already.
        return next((after.removeprefix(end) for end in self._ends if end and after.startswith(end)), after)


def _places(text: str, part: str) -> Iterator[int]:
    """Wherever a part of a text begins, overlapping ones too."""
    place = text.find(part)
    while place >= 0:
        yield place
        place = text.find(part, place + 1)
