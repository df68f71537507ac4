"""Compares an answer with a reference by math-verify: it runs inside the sandbox only, as `muster_mathematics`."""

import logging
import math
import re
import sys
from typing import Any

from math_verify import parse, verify

logging.disable(logging.CRITICAL)
sys.setrecursionlimit(1000)
if hasattr(sys, "set_int_max_str_digits"):
    sys.set_int_max_str_digits(4300)


_DECIMALS, _DIGITS = 6, 15
"""As math-verify has them: to how many decimals floats are rounded, and how many digits are computed."""


def score(reference: str, answer: str) -> float:
    """1.0 if they are equal, else 0.0."""
    gold, given = parse(reference, parsing_timeout=None), parse(answer, parsing_timeout=None)
    more = _more_decimals(gold[0]) if gold else 0
    same = verify(gold, given, float_rounding=_DECIMALS + more, numeric_precision=_DIGITS + more, timeout_seconds=None)
    return float(bool(same) and _same_letters(gold, given))


def _more_decimals(gold: Any) -> int:
    """For three digits of the smallest number, where after six decimals it would be equal to zero."""
    try:
        size = abs(float(gold))
    except (TypeError, ValueError, OverflowError, AttributeError):  # no number: a set, an equation, a formula
        return max(map(_more_decimals, getattr(gold, "args", ())), default=0)
    return max(0, -math.floor(math.log10(size)) - 4) if 0 < size < 1 else 0


def _same_letters(gold: list[Any], given: list[Any]) -> bool:
    """In the same order, where the reference is nothing but letters: math-verify reads `BCA` as a product, which is
    `ABC`."""
    wanted = gold[-1]
    if not isinstance(wanted, str) or not re.fullmatch("[A-Za-z]{2,}", wanted):
        return True
    return any(isinstance(one, str) and _letters(one) == wanted.lower() for one in given)


def _letters(text: str) -> str:
    return re.sub(r"\\(text|math)[a-z]*|\\cdot|\\times|[^A-Za-z]", "", text).lower()


def warm() -> None:
    """The first answers of each kind build parsers and caches."""
    for reference, answer in WARM:
        score(reference, answer)


WARM = (
    (r"\boxed{\frac{1}{2}}", r"Therefore the answer is $0.5$."),
    (r"\boxed{12}", "The answer is 12."),
    (r"\boxed{x^2+2x+1}", r"\boxed{(x+1)^2}"),
    (r"\boxed{\{1,2,3\}}", r"\boxed{\{3,2,1\}}"),
    (r"\boxed{2\sqrt{2}}", r"$\sqrt{8}$"),
    (r"\boxed{10\%}", "0.1"),
    (r"\boxed{(1, 2)}", r"\boxed{(1,2)}"),
    (r"\boxed{[0, 1)}", r"\boxed{[0,1)}"),
    (r"\boxed{x < 3}", r"\boxed{x<3}"),
    (r"\boxed{\frac{\pi}{4}}", r"\boxed{\dfrac{\pi}{4}}"),
    (
        r"\boxed{\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}}",
        r"\boxed{\begin{bmatrix} 1 & 2 \\ 3 & 4 \end{bmatrix}}",
    ),
    (r"\boxed{\sin^2(x)}", r"\boxed{1-\cos^2(x)}"),
    (r"\boxed{e^{i\pi}}", r"\boxed{-1}"),
    (r"\boxed{3+4i}", r"\boxed{3+4i}"),
    (r"\boxed{\int_0^1 x \, dx}", r"\boxed{\frac{1}{2}}"),
    (r"\boxed{\binom{5}{2}}", r"\boxed{10}"),
    (r"\boxed{\log_2 8}", r"\boxed{3}"),
    (r"\boxed{|x-1|}", r"\boxed{\left|1-x\right|}"),
    (r"\boxed{\sum_{k=1}^{3} k}", r"\boxed{6}"),
    (r"\boxed{5!}", r"\boxed{120}"),
    (r"\boxed{x=2}", r"\boxed{x = 2 \text{ cm}}"),
    (r"\boxed{7}", r"17 minutes, so \boxed{8}"),
)
