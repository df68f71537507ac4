"""Score an answer to a mathematical problem: 1 if it equals the reference, else 0, the same on every machine.

Both texts are read whole (latex.py). Plain numbers, which most answers are, are compared here as exact fractions; the
sandbox decides the rest with sympy. What it cannot decide within its fuel is not equal: nothing depends on time.
"""

import re
from fractions import Fraction
from functools import lru_cache

from environments.base import tagged_answer
from environments.scorers.latex import MAX_CHARS, Tree, Unreadable, read
from protocol.encoding import canonical_json, parse_json
from protocol.errors import ConfigError
from sandbox.pool import shared_pool
from sandbox.wasi import MIB, Ending, SandboxLimits, SandboxProgram

LIMITS = SandboxLimits(fuel=8_000_000_000, memory=256 * MIB, output=64 << 10, calls=2_000)
_BOX = re.compile(r"\\(?:boxed|fbox|framebox)\s*(?=\{)")
_SAID = re.compile(
    r"\b(?:answer|result|option|choice)\**\s*(?:is\b|[:=])\**\s*:?|####|答案\s*[是为為：:]|答[：:]", re.IGNORECASE
)
_BARE_BOX = re.compile(r"\\(?:boxed|fbox)\s*(\d+|[A-Za-z])(?![\w{])")
_TEXT = re.compile(r"\\text\{([^{}]*)\}")
_ONE_WORD = re.compile(r"(?:(?:option|choice) )?\(?[A-Za-z]+\)?\.?", re.IGNORECASE)
_CHOICE = re.compile(r"\(?([A-Z])[).:]\s")
_SENTENCE_END = re.compile(r"\.(?=\s|$)|[。?\n]")
_SPAN = re.compile(r"(?:\$\$?([^$]+)\$\$?|\\\((.+?)\\\)|\\\[(.+?)\\\])\s*[.。]?\s*$", re.S)
_NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?:/\d+)?%?(?![\w/])")
_LEAST_DECIMALS, _LEAST_DIGITS = 6, 3
"""Of a decimal that may be a rounding of an exact value."""
_MAX_EXPONENT = 64
_PROGRAM = "from muster_mathematics import equal"


def score(answer_text: str, reference: str) -> float:
    r"""Return 1.0 if the answer equals the reference, else 0.0.

    The answer is what stands in the last \boxed{…}; without one, what follows `the answer is`, the formula at the
    text's end, or the only number of its last sentence. Raise ConfigError for a reference that cannot be read whole,
    ScoringUnavailable where this machine cannot decide.
    """
    wanted, answer = check_reference(reference), final_answer(answer_text)
    if wanted[0] == "sym" and (choice := _CHOICE.match(_TEXT.sub(r"\1 ", answer).strip())):  # `(A) 5` chooses A
        return float(wanted[1] == choice[1])
    try:
        given = _read(answer)
    except Unreadable:
        return 0.0
    return _compare(canonical_json(wanted), canonical_json(given))


def check_reference(reference: str) -> Tree:
    """Return the tree of a reference. Raise ConfigError where it cannot be read whole: a part of it would make wrong
    answers right."""
    try:
        return _read(_unboxed(reference.strip()))
    except Unreadable as error:
        raise ConfigError(
            f"the reference `{reference[:60]}` cannot be read whole: {error}", "drop the problem"
        ) from None


def final_answer(text: str) -> str:
    """Return what a text answers, without a box around it; empty where it answers nothing. In linear time."""
    boxes = [found.end() for found in _BOX.finditer(text)]
    if boxes:
        return _braced(text, boxes[-1])
    text = tagged_answer(text)[-MAX_CHARS:].strip()
    if bare := _BARE_BOX.findall(text):
        return str(bare[-1])
    said = [found.end() for found in _SAID.finditer(text)]
    if said:
        rest = text[said[-1] :].strip()
        return rest[: choice.end()] if (choice := _CHOICE.match(rest)) else _SENTENCE_END.split(rest, maxsplit=1)[0]
    if found := _SPAN.search(text):
        return next(one for one in found.groups() if one is not None)
    if "\n" not in text and (_ONE_WORD.fullmatch(text) or not re.search(r"(?<!\\)\b[A-Za-z]{2,}", text)):
        return text
    sentences = [one for one in _SENTENCE_END.split(text) if one.strip()]
    numbers = _NUMBER.findall(sentences[-1]) if sentences else []
    return numbers[0] if len(numbers) == 1 else ""


def _braced(text: str, start: int) -> str:
    """Return what stands between the brace at `start` and the one that closes it; empty if that is too long or open."""
    depth = 0
    for at in range(start, min(len(text), start + MAX_CHARS)):
        depth += {"{": 1, "}": -1}.get(text[at], 0) if text[at - 1] != "\\" else 0
        if text[at] == "}" and depth == 0:
            return text[start + 1 : at]
    return ""


def _unboxed(reference: str) -> str:
    """Return a reference without the box around it, if it has one."""
    found = _BOX.search(reference)
    return final_answer(reference) if found else reference


@lru_cache(8192)
def _read(text: str) -> Tree:
    return read(text)


@lru_cache(8192)
def _compare(reference: bytes, answer: bytes) -> float:
    """Compare two trees, given as canonical JSON."""
    if reference == answer:
        return 1.0
    wanted, given = parse_json(reference), parse_json(answer)
    left, right = _fraction(wanted), _fraction(given)
    if left is not None and right is not None:
        return float(left == right or _is_rounded(given, right, left) or _is_rounded(wanted, left, right))
    program = SandboxProgram(_PROGRAM, function="equal", arguments=[wanted, given])
    outcome = shared_pool("mathematics").run(program, LIMITS)
    return float(outcome.ending is Ending.EXITED and outcome.succeeded and outcome.stdout == b"true")


def _is_rounded(tree: Tree, value: Fraction, exact: Fraction) -> bool:
    """Whether a decimal rounds an exact value that no decimal is: to six places at least, with three digits of it."""
    digits = tree[1][1] if tree[0] == "neg" and tree[1][0] == "num" else tree[1] if tree[0] == "num" else ""
    whole, point, decimals = digits.partition(".")
    if not point or len(decimals) < _LEAST_DECIMALS or len((whole + decimals).lstrip("0")) < _LEAST_DIGITS:
        return False
    return not _terminates(exact) and 2 * abs(value - exact) * 10 ** len(decimals) <= 1


def _terminates(value: Fraction) -> bool:
    below = value.denominator
    for prime in (2, 5):
        while below % prime == 0:
            below //= prime
    return below == 1


def _fraction(tree: Tree) -> Fraction | None:
    """Return the value of a tree of plain numbers; None for anything else."""
    kind = tree[0]
    if kind == "num":
        return Fraction(tree[1]) if "e" not in tree[1].lower() or abs(int(re.split("[eE]", tree[1])[1])) < 400 else None
    if kind not in ("neg", "add", "mul", "div", "pow"):
        return None
    values = [_fraction(one) for one in tree[1:]]
    if any(one is None for one in values):
        return None
    first, second = values[0] or Fraction(0), (values[-1] or Fraction(0))
    if kind == "neg":
        return -first
    if kind == "add":
        return first + second
    if kind == "mul":
        return first * second
    if kind == "div":
        return first / second if second else None
    is_small = second.denominator == 1 and abs(second) <= _MAX_EXPONENT and first.numerator.bit_length() < 256
    return Fraction(first ** int(second)) if is_small and (first or second > 0) and _short(first) else None


def _short(value: Fraction) -> bool:
    return value.denominator.bit_length() < 256
