"""Is what a program gave what was expected: outside the sandbox, by rules that a program cannot touch."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

from protocol.encoding import parse_json
from protocol.errors import ConfigError
from sandbox.pool import shared_pool
from sandbox.wasi import MIB, SandboxLimits, SandboxOutcome, SandboxProgram

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


# Scoring programs


MAX_PROGRAM_CHARS = 64 << 10
MAX_TESTS = 32
LIMITS = SandboxLimits(fuel=20_000_000_000, memory=256 * MIB, output=MIB, calls=20_000)
MAX_FUEL = 100_000_000_000
"""For all tests of one program together."""
_FENCE = "```"
_LANGUAGES = {"", "py", "python", "python3"}


@dataclass(frozen=True)
class CodeTest:
    """`function` empty: `given` is what the program reads and `expected` what it prints; otherwise arguments and
    result as JSON values."""

    function: str
    given: Any
    expected: Any

    @cached_property
    def program(self) -> SandboxProgram:
        """What is run, without its source."""
        if self.function:
            return SandboxProgram("", function=self.function, arguments=self.given)
        return SandboxProgram("", stdin=self.given.encode())

    def passed(self, outcome: SandboxOutcome) -> bool:
        """Whether a run gave what was expected."""
        if not outcome.succeeded:
            return False
        text = outcome.stdout.decode(errors="replace")
        if not self.function:
            return same_output(text, self.expected)
        try:
            value = parse_json(text)
        except ValueError:
            return False
        # the older sets wrap a result in a list
        return same_value(value, self.expected) or same_value([value], self.expected)


def score(program_text: str, verification: Mapping[str, Any]) -> float:
    """1.0 if the last fenced block of Python passes every test (the first 32), else 0.0.

    `verification`: {"language": "python", "test_cases": [{"type": "stdin_stdout" or "function_call", "fn_name",
    "input", "output"}]}. Raises ConfigError for a wrong
    `verification`, ScoringUnavailable where this machine cannot decide.
    """
    tests = read_tests(verification)
    source = last_program(program_text)
    if not source.strip() or len(source) > MAX_PROGRAM_CHARS:
        return 0.0
    run, left = shared_pool("python").run, MAX_FUEL
    for test in tests:
        limits = replace(LIMITS, fuel=min(LIMITS.fuel, left))
        outcome = run(replace(test.program, source=source), limits)
        if not test.passed(outcome):
            return 0.0
        left -= outcome.fuel
        if left <= 0:
            return 0.0
    return 1.0


def last_program(text: str) -> str:
    """The last fenced block whose language is Python or not said; empty without one. In time proportional to the
    text."""
    parts = text.split(_FENCE)
    for number in range(len(parts) - 2 if len(parts) % 2 else len(parts) - 3, 0, -2):
        language, _, source = parts[number].partition("\n")
        if language.strip().lower() in _LANGUAGES:
            return source
    return ""


def read_tests(verification: Mapping[str, Any]) -> list[CodeTest]:
    """The first 32 tests. Raises ConfigError, naming the test, where there is none or one is wrong."""
    language, cases = verification.get("language", "python"), verification.get("test_cases")
    if language not in _LANGUAGES - {""}:
        raise ConfigError(f"`verification.language` is {str(language)[:40]!r}", "only Python can be verified")
    if not isinstance(cases, list) or not cases:
        raise ConfigError("`verification.test_cases` is no list of tests", "drop the problem")
    tests = [_test(number, case) for number, case in enumerate(cases[:MAX_TESTS])]
    if all(_says_nothing(test.expected) for test in tests):
        raise ConfigError("`verification.test_cases` has no test that expects anything", "drop the problem")
    return tests


def _says_nothing(expected: Any) -> bool:
    """A program that does nothing would pass."""
    return expected in (None, [None]) or (isinstance(expected, str) and not expected.strip())


def _test(number: int, case: Any) -> CodeTest:
    where = f"`verification.test_cases.{number}`"
    if not isinstance(case, dict) or not {"input", "output"} <= case.keys():
        raise ConfigError(f"{where} lacks `input` or `output`", "drop the problem")
    name, kind = case.get("fn_name") or "", case.get("type")
    if kind not in (None, "stdin_stdout", "function_call") or (kind == "function_call") > bool(name):
        raise ConfigError(f"{where} is of a kind that is not known", "drop the problem")
    given, expected = case["input"], case["output"]
    if kind == "stdin_stdout" or not name:
        return CodeTest("", _lines(given, where), _lines(expected, where))
    if not isinstance(name, str) or not name.isidentifier():
        raise ConfigError(f"{where}: `fn_name` is no name", "drop the problem")
    given, expected = _value(given), _value(expected)
    return CodeTest(name, given if isinstance(given, list) else [given], expected)


def _lines(value: Any, where: str) -> str:
    if isinstance(value, list):
        text = "\n".join(map(str, value))
    else:
        text = value if isinstance(value, str) else json.dumps(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{where} has characters that are no text", "drop the problem") from None
    return text


def _value(value: Any) -> Any:
    """Itself, or what it means: some sets write lists as text."""
    if not isinstance(value, str) or not value.lstrip().startswith(("[", "{")):
        return value
    try:
        return parse_json(value)
    except ValueError:
        return value
