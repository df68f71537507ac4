"""A transcript in the model's place: it gives its turns in order, and looks whether what it is asked only ever grows.

What an environment asks next follows from its row and from what the model has said. So the environment's own rollout,
run on the turns so far, asks once more than they are: what is new in that request is its reply.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from .refusal import NoScore, Refused
from .rows import field, plain_message

MODEL = "muster"
MAX_REPLY_CHARS = 1 << 16
_REPLIES = ("tool", "user")
_SHAPING = ("stop", "response_format", "logit_bias", "functions", "function_call", "prompt_logprobs", "guided_json")
"""Settings that would make other turns than the pool samples."""
_Said = tuple[str, str, tuple[tuple[str, str, str], ...]]
"""Role, text, and calls with id, name and arguments."""


class Script:
    """`turns`: {"text", "call": [name, arguments as JSON] or None} each. `tools`: the schemas that every request has to
    offer. `opening`: role and text of the messages that the first one has to be.

    `asked`: turns that were given; `over`: whether one more was asked for, and `due`: the texts that were new in it.
    `trouble`: why there can be neither reply nor score, whatever the package makes of it."""

    def __init__(self, turns: Sequence[Mapping[str, Any]], tools: Sequence[Any], opening: Sequence[Any]) -> None:
        self._turns, self._tools = turns, list(tools)
        self._so_far: list[_Said] = [(role, text, ()) for role, text in opening]
        self.asked, self.over, self.trouble = 0, False, ""
        self.due: list[str] = []

    @property
    def whole(self) -> bool:
        """Whether all its turns were asked for."""
        return self.asked == len(self._turns)

    def next(
        self, messages: Any, model: Any, tools: Sequence[Any], settings: Mapping[str, Any]
    ) -> Mapping[str, Any] | None:
        """The next turn, its `calls` as [id, name, arguments]; None after the last. Raises NoScore for a request that
        no worker would have sampled an answer to."""
        try:
            return self._next(messages, model, tools, settings)
        except (NoScore, Refused) as error:
            raise self.refused(str(error)) from None

    def refused(self, why: str) -> NoScore:
        """To be raised; whatever catches it, there is no score."""
        self.trouble = self.trouble or why
        return NoScore(self.trouble)

    def _next(
        self, messages: Any, model: Any, tools: Sequence[Any], settings: Mapping[str, Any]
    ) -> Mapping[str, Any] | None:
        if self.over:
            raise NoScore("the environment asks on after its model's context is full")
        self._check(model, tools, settings)
        new = self._added([_said(self.asked, one) for one in _listed(messages)])
        if self.whole:
            self.over, self.due = True, [text for _, text, _ in new]
            return None
        self.asked += 1
        turn = self._turns[self.asked - 1]
        calls = [[f"call{self.asked:05}", *turn["call"]]] if turn["call"] else []
        self._so_far += [*new, ("assistant", turn["text"], tuple((one[0], one[1], one[2]) for one in calls))]
        return {"text": turn["text"], "calls": calls}

    def _check(self, model: Any, tools: Sequence[Any], settings: Mapping[str, Any]) -> None:
        if model != MODEL:
            raise NoScore(f"the environment asks another model: {str(model)[:60]}")
        if settings.get("n") not in (None, 1):
            raise NoScore(f"the environment asks for {str(settings['n'])[:20]} answers at once")
        shaping = next((name for name in _SHAPING if settings.get(name)), "")
        if shaping or settings.get("tool_choice") not in (None, "auto"):
            raise NoScore(f"the environment sets `{shaping or 'tool_choice'}`, which the pool's sampling does not have")
        if list(tools) != self._tools:
            raise NoScore("the environment offers other tools than before")

    def _added(self, said: list[_Said]) -> list[_Said]:
        """What a request has more than the one before it and its answer."""
        before = len(self._so_far)
        if said[:before] != self._so_far or (self.asked == 0 and len(said) > before):
            what = "changes what was said before" if self.asked else "asks something else than its row says"
            raise NoScore(f"the environment {what}")
        new = said[before:]
        wrong = next((role for role, _, _ in new if role not in _REPLIES), "")
        if wrong:
            raise NoScore(f"the environment speaks as `{wrong[:20]}` between turns")
        return new


def reply_of(script: Script) -> str | None:
    """What the environment says after the last turn; None where that is the end, or nothing, or too long."""
    text = "\n\n".join(script.due).encode(errors="replace").decode()
    return text if script.over and script.due and len(text) <= MAX_REPLY_CHARS else None


def _listed(messages: Any) -> Sequence[Any]:
    return [{"role": "user", "content": messages}] if isinstance(messages, str) else list(messages)


def _said(turn: int, message: Any) -> _Said:
    where = f"turn {turn}" if turn else "the row"
    role, text = plain_message(where, message)
    return role, text, tuple(_call(one) for one in field(message, "tool_calls") or ())


def _call(one: Any) -> tuple[str, str, str]:
    about = field(one, "function") or one
    return str(field(one, "id")), str(field(about, "name")), str(field(about, "arguments"))
