"""Sums of numbers in boxes that only a tool can open: two calls, then an answer. Small enough for a tiny model."""

import random
import re
from collections.abc import Sequence
from typing import Any

from environments.base import THRESHOLD, Declaration, Problem, Turns, content_hash, credited, take_threshold
from environments.turns import tool_call
from protocol.errors import ConfigError

TURNS, REPLY_TOKENS = 3, 64
UNKNOWN = "?"
MAX_ANSWER_CHARS, MAX_SECONDS = 4096, 1.0
OPENED = 0.2
"""What each of the two boxes is worth where a pool keeps partial credit; the sum is worth the rest."""
TOOL = {
    "type": "function",
    "function": {
        "name": "open",
        "description": "Opens a box and says which number is in it.",
        "parameters": {"type": "object", "properties": {"box": {"type": "string"}}, "required": ["box"]},
    },
}
_BOXES = "abcdefghijklmnopqrstuvwxyz"
_SHORT_CALL = re.compile(r"\[([a-z])\]")
_NUMBER = re.compile(r"[0-9]{1,9}")


class LookupEnvironment:
    """Parameters: `boxes` (2 to 26), `largest` number in them, `reply_role`, `score_threshold`. A turn opens a box as
    `[b]` or by a call of the tool `open`; one with neither that has a digit is the answer; any other is told "?"."""

    def __init__(self, params: dict[str, Any]) -> None:
        own = dict(params)
        self._threshold = take_threshold(own)
        self._boxes, self._largest = _whole(own, "boxes", 6, 2, 26), _whole(own, "largest", 9, 1, 999_999)
        role = own.pop("reply_role", "tool")
        if own or role not in ("tool", "user"):
            wrong = next(iter(own), "reply_role")
            raise ConfigError(
                f"lookup has no such parameter: `{wrong}`", f"it has boxes, largest, reply_role, {THRESHOLD}"
            )
        turns = Turns(TURNS, REPLY_TOKENS, role, (TOOL,))
        content = content_hash("environments.lookup")
        self.declared = Declaration("lookup", "1", content, "MIT", MAX_ANSWER_CHARS, MAX_SECONDS, turns)

    @property
    def rows(self) -> int:
        return 0

    def problem(self, seed: int) -> Problem:
        if not 0 <= seed < 1 << 64:
            raise ValueError(f"a problem seed is an unsigned 64-bit number, not {seed}")
        draw = random.Random(seed)
        inside = {box: draw.randint(0, self._largest) for box in _BOXES[: self._boxes]}
        one, other = sorted(draw.sample(sorted(inside), 2))
        question = f"Sum of boxes {one} and {other}? Open one: [{one}]"
        return Problem(question, str(inside[one] + inside[other]), {"inside": inside, "asked": [one, other]})

    def reply(self, problem: Problem, said: Sequence[str]) -> str | None:
        box = _opened(said[-1])
        if box is None:
            return None if _NUMBER.search(said[-1][-MAX_ANSWER_CHARS:]) else UNKNOWN
        return str(problem.metadata["inside"].get(box, UNKNOWN))

    def score(self, problem: Problem, answer_text: str) -> float:
        return self.score_turns(problem, [answer_text])

    def score_turns(self, problem: Problem, said: Sequence[str]) -> float:
        opened = {_opened(text) for text in said[:-1]}
        found = sum(box in opened for box in problem.metadata["asked"])
        answers = _NUMBER.findall(said[-1]) if len(said[-1]) <= MAX_ANSWER_CHARS and _opened(said[-1]) is None else []
        right = bool(answers) and int(answers[-1]) == int(problem.answer)
        return credited(OPENED * found + (1 - 2 * OPENED) * right, self._threshold)


def _opened(text: str) -> str | None:
    """Return the box that a turn opens, the last one it names; None where it opens none."""
    text = text[-MAX_ANSWER_CHARS:]
    call = tool_call(text)
    if call is not None and call[0] == "open":
        return str(call[1].get("box", ""))[:64]
    short = _SHORT_CALL.findall(text)
    return short[-1] if short else None


def _whole(params: dict[str, Any], name: str, usual: int, low: int, high: int) -> int:
    """Return a whole number, taken out of the parameters."""
    value = params.pop(name, usual)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ConfigError(f"`params.{name}` is {value!r}", f"use a whole number from {low} to {high}")
    return value
