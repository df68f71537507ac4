"""Is an answer equal to the reference, as mathematics: decided by math-verify inside the sandbox.

What cannot be decided within the fuel is not equal, on every machine alike: nothing here depends on time. Most answers
are plain numbers and never get that far: they are compared as exact fractions.
"""

import re
from fractions import Fraction
from functools import lru_cache

from protocol.errors import ConfigError
from sandbox.pool import shared_pool
from sandbox.wasi import MIB, Ending, SandboxLimits, SandboxProgram

MAX_ANSWER_CHARS = 1_000
MAX_DEPTH = 24
LIMITS = SandboxLimits(fuel=8_000_000_000, memory=256 * MIB, output=64 << 10, calls=2_000)
_BOXED = "\\boxed{"
_NUMBER = re.compile(r"([+-]?[0-9]{1,18}(?:\.[0-9]{1,18})?)(?:/([0-9]{1,18}))?")
_FRACTION = re.compile(r"([+-]?)\\[dt]?frac\{([+-]?[0-9]{1,18})\}\{([0-9]{1,18})\}")
_KEPT = 8192
"""Decisions, of two texts of at most 1,000 characters: 64 MiB at most."""
_NEAR = Fraction(1, 1000)
_PROGRAM = "from muster_mathematics import score"


def score(answer_text: str, reference: str) -> float:
    """1.0 if the answer equals the reference, else 0.0.

    The answer is what stands in the last \\boxed{…}; without one, whatever math-verify finds in the last 1,000
    characters. Longer and deeper ones are wrong. Raises ConfigError for a reference that says nothing,
    ScoringUnavailable where this machine cannot decide.
    """
    answer, wanted = final_answer(answer_text), reference.strip()
    if not _bare(_content(wanted)):
        raise ConfigError("the reference says nothing", "drop the problem")
    if not answer or len(wanted) > MAX_ANSWER_CHARS or _depth(answer) > MAX_DEPTH:
        return 0.0
    return _compare(answer, wanted if _BOXED in wanted else _BOXED + _bare(wanted) + "}")


def final_answer(text: str) -> str:
    """The last \\boxed{…} as it stands there; without one, the text's end; empty if it is too long or not closed. In
    time proportional to the text."""
    start = text.rfind(_BOXED)
    if start < 0:
        return text[-MAX_ANSWER_CHARS:].strip()
    depth = 0
    for at in range(start, min(len(text), start + MAX_ANSWER_CHARS)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if text[at] == "}" and depth == 0:
            return text[start : at + 1]
    return ""


@lru_cache(_KEPT)
def _compare(answer: str, reference: str) -> float:
    plain = _content(answer), _content(reference)
    if plain[0] == plain[1]:
        return 1.0
    left, right = map(_number, plain)
    if left is not None and right is not None:
        if left == right:
            return 1.0
        # nearer ones may be roundings of one another, about which math-verify has rules
        if abs(left - right) > _NEAR * max(Fraction(1), abs(right)):
            return 0.0
    program = SandboxProgram(_PROGRAM, function="score", arguments=[reference, answer])
    outcome = shared_pool("mathematics").run(program, LIMITS)
    return float(outcome.ending is Ending.EXITED and outcome.succeeded and outcome.stdout == b"1.0")


def _number(text: str) -> Fraction | None:
    """The value of a plain whole number, decimal or fraction; None for anything else."""
    if found := _FRACTION.fullmatch(text):
        sign, above, below = found.groups()
        above = above if not sign else str(int(sign + "1") * int(above))
    elif found := _NUMBER.fullmatch(text):
        above, below = found[1], found[2] or "1"
    else:
        return None
    return Fraction(above) / int(below) if int(below) else None


def _content(boxed: str) -> str:
    """What is in the box, if the text is nothing else; otherwise the text."""
    is_box = boxed.startswith(_BOXED) and boxed.endswith("}")
    return _bare(boxed[len(_BOXED) : -1]) if is_box else boxed


def _bare(text: str) -> str:
    """Without the dollars around it."""
    return text.strip().strip("$").strip()


def _depth(text: str) -> int:
    """How deep brackets of any kind are nested, closing ones not believed."""
    deepest = depth = 0
    for character in text:
        if character in "{([":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "})]":
            depth = max(0, depth - 1)
    return deepest
