"""Score an answer to a mathematical problem: 1 if it equals the reference, else 0, the same on every machine.

Both texts are read whole (latex.py). Plain numbers, which most answers are, are compared here as exact fractions; the
sandbox decides the rest with sympy. What it cannot decide within its fuel is not equal: nothing depends on time.
"""

import operator
import re
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

from environments.base import tagged_answer
from environments.scorers.latex import MAX_CHARS, Tree, Unreadable, read
from protocol.encoding import canonical_json, parse_json
from protocol.errors import ConfigError
from sandbox.pool import shared_pool
from sandbox.wasi import MIB, SandboxLimits, SandboxProgram

LIMITS = SandboxLimits(fuel=8_000_000_000, memory=256 * MIB, output=64 << 10, calls=2_000)
_BOX = re.compile(r"\\(?:boxed|fbox|framebox)\s*(?=\{)")
_BARE_BOX = re.compile(r"\\(?:boxed|fbox)\s*(\d+|[A-Za-z])(?![\w{])")
_SAID = re.compile(
    r"(?<!wrong )(?<!incorrect )\b(?:answer|result|option|choice)\**\s*(?:is\b|[:=])\**\s*:?"
    r"|####|答案\s*[是為为：:]|答[：:]|(?<![^\n])ответ:",
    re.IGNORECASE,
)
_TEXT = re.compile(r"\\(?:text|textbf|textrm|mathrm|mathbf)\{([^{}]*)\}")
_ONE_WORD = re.compile(r"(?:(?:option|choice) )?\(?[A-Za-z]+\)?\.?", re.IGNORECASE)
_CHOICE = re.compile(
    r"\(?([A-Z])[).:][\s~]+(?:\\quad\s*)?(?=[\w$(\[|.√∞€£¥]|-\S"
    r"|\\(?!(?:cdot|times|div|pm|cup|leq?|geq?|neq?|lt|gt|in|approx)(?![a-z])))"
)
_SECOND = re.compile(r"(?<=[\s,;~])(?:\(?[A-Z][).:](?=[\s,;~]|$)|(?:or|and|nor|not)\s+\(?[A-Z]\b)")
_SENTENCE_END = re.compile(r"\.(?=\s|$)|[。?\n]")
_SPAN = re.compile(r"(?:\$\$?([^$]+)\$\$?|\\\((.+?)\\\)|\\\[(.+?)\\\])\s*[.。]?\s*$", re.S)
_NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?:/\d+)?%?(?![\w/])")
# A sentence that denies its number, hedges, or makes another number of it
_DENIED = re.compile(
    r"\b(?:not|cannot|never|neither|nor|no|without|except|unless|than|least|most|about|approximately|roughly|minus|plus|"
    r"negative|twice|double|triple|half|times|hundred|thousand|million|billion|dozen|squared|cubed|or|between|wrong|"
    r"incorrect|false|if)\b|n['’]t\b",
    re.IGNORECASE,
)
_LEAST_DECIMALS, _LEAST_DIGITS = 6, 3  # of a decimal that may be a rounding of an exact value
_MAX_EXPONENT, _MAX_BITS = 64, 256
_PROGRAM = "from muster_mathematics import equal"


def score(answer_text: str, reference: str) -> float:
    r"""Return 1.0 if the answer equals the reference, which has to be read whole, else 0.0. The answer is in the last
    \boxed{…}; without one, it follows `the answer is`, or is the formula at the text's end, or the only number of its
    last sentence. Raise ScoringUnavailable where this machine cannot decide."""
    try:
        (asked, wanted), (letter, answer) = _read_reference(reference), _choice(final_answer(answer_text))
        if letter and not asked and wanted[0] == "sym" and re.fullmatch("[A-Z]", wanted[1]):
            return float(letter == wanted[1])
        if letter and asked and letter != asked:
            return 0.0
        given = _read(answer)
        if asked and given == ["sym", asked]:
            return 1.0
    except Unreadable:
        return 0.0
    return _compare(canonical_json(wanted), canonical_json(given))


def check_reference(reference: str) -> None:
    """Raise ConfigError for a reference that cannot be read whole: a part of it would make wrong answers right."""
    try:
        _read_reference(reference)
    except Unreadable as error:
        what = f"the reference `{reference.strip()[:60]}` cannot be read whole: {error}"
        raise ConfigError(what, "drop the problem") from None


def _read_reference(reference: str) -> tuple[str, Tree]:
    """Return the letter of a choice before a reference, or nothing, and the rest of it as a tree."""
    letter, rest = _choice(final_answer(reference) if _BOX.search(reference) else reference.strip())
    return letter, _read(rest)


def _choice(answer: str) -> tuple[str, str]:
    """Return the letter of `(A) 5` and what follows it; no letter where the text begins otherwise, or has two."""
    text = _TEXT.sub(r"\1 ", answer).strip()
    match = _CHOICE.match(text)
    return (match[1], text[match.end() :]) if match and not _SECOND.search(text, match.end()) else ("", answer)


def final_answer(text: str) -> str:
    """Return what a text answers, without a box around it; empty where it answers nothing. In linear time."""
    boxes = [match.end() for match in _BOX.finditer(text)]
    if boxes:
        return _braced(text, boxes[-1])
    text = tagged_answer(text)[-MAX_CHARS:].strip()
    if bare := _BARE_BOX.findall(text):
        return str(bare[-1])
    ends = [match.end() for match in _SAID.finditer(text)]
    if ends:
        rest = text[ends[-1] :].strip()
        rest = rest.removesuffix("**").strip() if rest.count("**") == 1 else rest  # **Answer: 5**
        return _SENTENCE_END.split(rest, maxsplit=1)[0]
    if match := _SPAN.search(text):
        *_, before = _SENTENCE_END.split(text[: match.start()])
        return "" if _DENIED.search(before) else next(span for span in match.groups() if span is not None)
    if text.endswith("?"):
        return ""
    if "\n" not in text and (_ONE_WORD.fullmatch(text) or not re.search(r"(?<!\\)\b[A-Za-z]{2,}", text)):
        return text
    sentences = [sentence for sentence in _SENTENCE_END.split(text) if sentence.strip()]
    numbers = _NUMBER.findall(sentences[-1]) if sentences and not _DENIED.search(sentences[-1]) else []
    return numbers[0] if len(numbers) == 1 else ""


def _braced(text: str, start: int) -> str:
    """Return what stands between the brace at `start` and the one that closes it; empty if that is too long or open."""
    depth = 0
    for at in range(start, min(len(text), start + MAX_CHARS)):
        depth += {"{": 1, "}": -1}.get(text[at], 0) if text[at - 1] != "\\" else 0
        if text[at] == "}" and depth == 0:
            return text[start + 1 : at]
    return ""


_read = lru_cache(8192)(read)


@lru_cache(8192)
def _compare(reference: bytes, answer: bytes) -> float:
    if reference == answer:
        return 1.0
    wanted, given = parse_json(reference), parse_json(answer)
    left, right = _fraction(wanted), _fraction(given)
    if left is not None and right is not None:
        return float(left == right or _is_rounded(given, right, left) or _is_rounded(wanted, left, right))
    program = SandboxProgram(_PROGRAM, function="equal", arguments=[wanted, given])
    outcome = shared_pool("mathematics").run(program, LIMITS)
    return float(outcome.succeeded and outcome.stdout == b"true")


def _is_rounded(tree: Tree, value: Fraction, exact: Fraction) -> bool:
    """Whether a decimal rounds an exact value that no decimal is: to six places at least, with three digits of it."""
    tree = tree[1] if tree[0] == "neg" else tree
    whole, point, decimals = (tree[1] if tree[0] == "num" else "").partition(".")
    if not point or len(decimals) < _LEAST_DECIMALS or len((whole + decimals).lstrip("0")) < _LEAST_DIGITS:
        return False
    is_decimal = pow(10, exact.denominator.bit_length(), exact.denominator) == 0
    return not is_decimal and 2 * abs(value - exact) * 10 ** len(decimals) <= 1


_OPERATIONS: dict[str, Callable[..., Fraction]] = {
    "neg": operator.neg,
    "add": operator.add,
    "mul": operator.mul,
    "div": operator.truediv,
}


def _fraction(tree: Tree) -> Fraction | None:
    """Return the value of a tree of plain numbers; None for anything else."""
    kind = tree[0]
    if kind == "num":
        return Fraction(tree[1]) if "e" not in tree[1].lower() or abs(int(re.split("[eE]", tree[1])[1])) < 400 else None
    if kind != "pow" and kind not in _OPERATIONS:
        return None
    values = [value for value in map(_fraction, tree[1:]) if value is not None]
    if len(values) < len(tree) - 1 or (kind == "div" and not values[1]):
        return None
    if kind != "pow":
        return _OPERATIONS[kind](*values)
    base, exponent = values
    is_small = exponent.denominator == 1 and abs(exponent) <= _MAX_EXPONENT
    is_short = max(base.numerator.bit_length(), base.denominator.bit_length()) < _MAX_BITS
    return Fraction(base ** int(exponent)) if is_small and is_short and (base or exponent > 0) else None
