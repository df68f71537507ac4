"""Is what a program gave what was expected: outside the sandbox, by rules that a program cannot touch."""

import math
import re
from fractions import Fraction
from typing import Any

_DECIMAL = re.compile(r"[+-]?[0-9]{1,300}(\.[0-9]{0,300})?([eE][+-]?[0-9]{1,3})?")
_WHOLE = re.compile(r"[+-]?[0-9]{1,300}")
_CLOSE = 1e-6


def same_output(given: str, expected: str) -> bool:
    """The same words in the same order, whatever the white space; where a decimal is expected within 10⁻⁶, relative or
    absolute, and a whole number exactly."""
    left, right = given.split(), expected.split()
    return len(left) == len(right) and all(map(_same_word, left, right))


def same_value(given: Any, expected: Any) -> bool:
    """Equal JSON values; where a decimal is expected within 10⁻⁶, relative or absolute, and a whole number exactly.
    Neither is nested deeper than 200 levels."""
    if isinstance(given, list) and isinstance(expected, list):
        return len(given) == len(expected) and all(map(same_value, given, expected))
    if isinstance(given, dict) and isinstance(expected, dict):
        return given.keys() == expected.keys() and all(same_value(given[key], expected[key]) for key in given)
    if isinstance(expected, float):
        return _is_number(given) and _close(given, expected)
    if isinstance(given, float):  # counting problems have no answers that are nearly right
        return _is_number(expected) and given == expected
    return type(given) is type(expected) and bool(given == expected)


def _same_word(given: str, expected: str) -> bool:
    if given == expected:
        return True
    if "." not in given + expected or not (_DECIMAL.fullmatch(given) and _DECIMAL.fullmatch(expected)):
        return False
    if _WHOLE.fullmatch(expected):
        return Fraction(given) == int(expected)
    return _close(float(given), float(expected))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _close(left: float, right: float) -> bool:
    try:
        return math.isfinite(left) and math.isclose(left, right, rel_tol=_CLOSE, abs_tol=_CLOSE)
    except OverflowError:  # an integer beyond any float
        return False
