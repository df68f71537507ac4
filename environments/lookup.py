"""Sums of numbers in boxes that only a tool can open: two calls, then an answer. Small enough for a tiny model."""

import random
import re
import string
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field

from environments.base import Declaration, Params, Problem, Turns, check_seed, content_hash, credited, read_params
from environments.turns import tool_call

TURNS, REPLY_TOKENS = 3, 64
UNKNOWN = "?"
MAX_ANSWER_CHARS, MAX_SECONDS = 4096, 1.0
OPENED = 0.2  # what each of the two boxes is worth where a pool keeps partial credit; the sum is worth the rest
TOOL = {
    "type": "function",
    "function": {
        "name": "open",
        "description": "Opens a box and says which number is in it.",
        "parameters": {"type": "object", "properties": {"box": {"type": "string"}}, "required": ["box"]},
    },
}
_SHORT_CALL = re.compile(r"\[([a-z])\]")
_NUMBER = re.compile(r"[0-9]{1,9}")


class LookupParams(Params):
    """How many boxes, and the largest number in them."""

    boxes: int = Field(6, ge=2, le=26)
    largest: int = Field(9, ge=1, le=999_999)
    reply_role: Literal["tool", "user"] = "tool"


class LookupEnvironment:
    """A turn opens a box as `[b]` or by a call of `open`; else one with a digit is the answer, any other gets "?"
    back."""

    rows = 0

    def __init__(self, params: dict[str, Any]) -> None:
        self._params = read_params(LookupParams, "lookup", params)
        turns = Turns(TURNS, REPLY_TOKENS, self._params.reply_role, (TOOL,))
        self.declared = Declaration("1", content_hash("environments.lookup"), "MIT", MAX_SECONDS, turns)

    def problem(self, seed: int) -> Problem:
        check_seed(seed)
        draw = random.Random(seed)
        boxes = string.ascii_lowercase[: self._params.boxes]
        inside = {box: draw.randint(0, self._params.largest) for box in boxes}
        first, second = sorted(draw.sample(sorted(inside), 2))
        question = f"Sum of boxes {first} and {second}? Open one: [{first}]"
        return Problem(question, str(inside[first] + inside[second]), {"inside": inside, "asked": [first, second]})

    def reply(self, problem: Problem, turns: Sequence[str]) -> str | None:
        box = _opened(turns[-1])
        if box is None:
            return None if _NUMBER.search(turns[-1][-MAX_ANSWER_CHARS:]) else UNKNOWN
        return str(problem.metadata["inside"].get(box, UNKNOWN))

    def score(self, problem: Problem, answer_text: str) -> float:
        return self.score_turns(problem, [answer_text])

    def score_turns(self, problem: Problem, turns: Sequence[str]) -> float:
        opened, last = {_opened(text) for text in turns[:-1]}, turns[-1]
        answers = _NUMBER.findall(last) if len(last) <= MAX_ANSWER_CHARS and _opened(last) is None else []
        is_right = bool(answers) and int(answers[-1]) == int(problem.answer)
        boxes = sum(box in opened for box in problem.metadata["asked"])
        return credited(OPENED * boxes + (1 - 2 * OPENED) * is_right, self._params.score_threshold)


def _opened(text: str) -> str | None:
    """Return the box that a turn opens, the last one it names; None where it opens none."""
    text = text[-MAX_ANSWER_CHARS:]
    call = tool_call(text)
    if call is not None and call[0] == "open":
        return str(call[1].get("box", ""))[:64]
    short = _SHORT_CALL.findall(text)
    return short[-1] if short else None
