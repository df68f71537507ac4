"""Does a program pass its tests: each in an interpreter of its own that has never heard of what is expected."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from environments.sandbox.pool import shared_pool
from environments.sandbox.program import MIB, SandboxLimits, SandboxOutcome, SandboxProgram
from environments.scorers.comparison import same_output, same_value
from protocol.encoding import parse_json
from protocol.errors import ConfigError

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
