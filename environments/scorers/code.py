"""Score a program: each test runs it in an interpreter of its own that never learns what is expected."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

from environments.row_formats import parsed
from protocol.encoding import parse_json
from protocol.errors import ConfigError
from sandbox.pool import shared_pool
from sandbox.wasi import MIB, SandboxLimits, SandboxOutcome, SandboxProgram

_DECIMAL = re.compile(r"[+-]?[0-9]{1,300}(\.[0-9]{0,300})?([eE][+-]?[0-9]{1,3})?")
_WHOLE = re.compile(r"[+-]?[0-9]{1,300}")
_CLOSE = 1e-6


def same_output(given: str, expected: str) -> bool:
    """Whether both have the same words; where a decimal is expected within 10⁻⁶, relative or absolute."""
    left, right = given.split(), expected.split()
    return len(left) == len(right) and all(map(_same_word, left, right))


def same_value(given: Any, expected: Any) -> bool:
    """Whether two JSON values are equal; where a decimal is expected within 10⁻⁶, relative or absolute."""
    if isinstance(given, list) and isinstance(expected, list):
        return len(given) == len(expected) and all(map(same_value, given, expected))
    if isinstance(given, dict) and isinstance(expected, dict):
        return given.keys() == expected.keys() and all(same_value(given[key], expected[key]) for key in given)
    if type(expected) is float:
        return type(given) in (int, float) and _close(given, expected)
    if type(given) is float:  # counting problems have no answers that are nearly right
        return type(expected) is int and given == expected
    return type(given) is type(expected) and bool(given == expected)


def _same_word(given: str, expected: str) -> bool:
    if given == expected:
        return True
    if not set(".eE") & set(given + expected) or not (_DECIMAL.fullmatch(given) and _DECIMAL.fullmatch(expected)):
        return False
    if _WHOLE.fullmatch(expected):
        return Fraction(given) == int(expected)
    return _close(float(given), float(expected))


def _close(left: float, right: float) -> bool:
    try:
        return math.isfinite(left) and math.isclose(left, right, rel_tol=_CLOSE, abs_tol=_CLOSE)
    except OverflowError:  # an integer beyond any float
        return False


MAX_PROGRAM_CHARS = 64 << 10
MAX_TESTS = 32
# Of one test, where what is expected may be printed twice over; and of all tests of one program together
LIMITS = SandboxLimits(fuel=20_000_000_000, memory=256 * MIB, output=MIB, calls=400_000)
MAX_FUEL = 100_000_000_000
_FENCE = re.compile(r"^(?P<indent>[ \t>]*)(?P<mark>`{3,}|~{3,})(?P<info>[^`\n]*)$")
_PYTHON = re.compile(r"\{?\.?(?:c?python|pypy|py)[\d.]*(?![\w+#-])", re.IGNORECASE)
_PROGRAM_WORDS = re.compile(r"\b(?:print|input|import|def|class|return|for|while|lambda)\b|=")
_LANGUAGES = {"py", "python", "python3", "py3", "python2"}
_INVISIBLE = str.maketrans("\u00a0", " ", "\ufeff\u200b\u200c\u200d\u2060")


@dataclass(frozen=True)
class CodeTest:
    """`function` empty: `given` is what the program reads and `expected` what it prints. Else both are the readings
    that a data set may mean, of arguments (a list, or a dictionary by name) and of the result, as JSON values."""

    function: str
    given: Any
    expected: Any

    @cached_property
    def programs(self) -> list[SandboxProgram]:
        """What is run, without its source: one for each reading."""
        if self.function:
            return [SandboxProgram("", function=self.function, arguments=arguments) for arguments in self.given]
        return [SandboxProgram("", stdin=self.given.encode())]

    @property
    def says_nothing(self) -> bool:
        """Whether a program that does nothing would pass."""
        if self.function:
            return all(reading in (None, [None]) for reading in self.expected)
        return not self.expected.strip()

    def passed(self, outcome: SandboxOutcome) -> bool:
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
        return any(same_value(value, reading) or same_value([value], reading) for reading in self.expected)


def score(program_text: str, verification: Mapping[str, Any]) -> float:
    """Return 1.0 if the answer's program (`last_program`) passes every test (the first 32), else 0.0. `verification` is
    {"language": "python", "test_cases": [{"type": "stdin_stdout" or "function_call", "fn_name", "input", "output"}]}.
    Raise ConfigError for a wrong one, ScoringUnavailable where this machine cannot decide."""
    tests = read_tests(verification)
    source = last_program(program_text)
    if not source.strip() or len(source) > MAX_PROGRAM_CHARS:
        return 0.0
    left = MAX_FUEL
    for test in tests:
        printed = 0 if test.function else 2 * len(test.expected.encode())
        for program in test.programs:
            limits = replace(LIMITS, fuel=min(LIMITS.fuel, left), output=LIMITS.output + printed)
            outcome = shared_pool("python").run(replace(program, source=source), limits)
            left -= outcome.fuel
            if (passed := test.passed(outcome)) or left <= 0:
                break
        if not passed or left <= 0:
            return 0.0
    return 1.0


def last_program(text: str) -> str:
    """Return the last complete fenced block that says it is Python; else of those without a language the last that
    looks like a program, or the last. In linear time. A fence stands alone on its line, of three or more backticks or
    tildes, indented or not; its end is as long."""
    blocks, opened, lines = list[tuple[str, str]](), None, list[str]()
    for line in (line.rstrip("\r") for line in text.translate(_INVISIBLE).split("\n")):
        fence = _FENCE.match(line)
        if opened is None:
            opened, lines = fence, []
        elif fence and not fence["info"].strip() and fence["mark"].startswith(opened["mark"]):
            blocks.append((opened["info"].strip(), "\n".join(lines) + "\n"))
            opened = None
        else:  # without as much of the fence's indentation as it has
            margin = line[: len(opened["indent"])]
            lines.append(margin.lstrip(" \t>") + line[len(margin) :])
    named = [source for language, source in blocks if _PYTHON.match(language)]
    unnamed = [source for language, source in blocks if not language]
    likely = [source for source in unnamed if _PROGRAM_WORDS.search(source)]
    return next((sources[-1] for sources in (named, likely, unnamed) if sources), "")


def read_tests(verification: Mapping[str, Any]) -> list[CodeTest]:
    """Return the first 32 tests. Raise ConfigError, naming the test, where there is none or one is wrong."""
    language, cases = verification.get("language") or "python", verification.get("test_cases")
    if not isinstance(language, str) or language.lower().replace(" ", "") not in _LANGUAGES:
        raise ConfigError(f"`verification.language` is {str(language)[:40]!r}", "only Python can be verified")
    if not isinstance(cases, list) or not cases:
        raise ConfigError("`verification.test_cases` is no list of tests", "drop the problem")
    tests = [_test(number, case) for number, case in enumerate(cases[:MAX_TESTS])]
    if all(test.says_nothing for test in tests):
        raise ConfigError("`verification.test_cases` has no test that expects anything", "drop the problem")
    return tests


def _test(number: int, case: Any) -> CodeTest:
    field = f"`verification.test_cases.{number}`"
    if not isinstance(case, dict) or not {"input", "output"} <= case.keys():
        raise ConfigError(f"{field} lacks `input` or `output`", "drop the problem")
    name, kind = case.get("fn_name") or "", case.get("type")
    name = name.rpartition(".")[2] if isinstance(name, str) else name  # Solution.f
    functional = kind == "function_call" or case.get("testtype") == "functional"
    if kind not in (None, "stdin_stdout", "function_call") or case.get("testtype") not in (None, "stdin", "functional"):
        raise ConfigError(f"{field} is of a kind that is not known", "drop the problem")
    if functional and not name:
        raise ConfigError(f"{field} tests a function and has no `fn_name`", "add the function's name")
    inputs, expected = case["input"], case["output"]
    if kind == "stdin_stdout" or not name:
        return CodeTest("", _lines(inputs, field), _lines(expected, field))
    if not isinstance(name, str) or not name.isidentifier():
        raise ConfigError(f"{field}: `fn_name` is no name", "drop the problem")
    return CodeTest(name, _arguments(inputs), _readings(expected))


def _lines(value: Any, where: str) -> str:
    """Return what a program reads or prints: a list has a line for each element, whose own elements are its words."""
    rows = value if isinstance(value, list) else [value]
    text = "\n".join(" ".join(map(_word, row)) if isinstance(row, list) else _word(row) for row in rows)
    text = text.removeprefix("\ufeff")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{where} has characters that are no text", "drop the problem") from None
    return text


def _word(value: Any) -> str:
    return json.dumps(value) if isinstance(value, list | dict) else str(value)


def _arguments(given: Any) -> list[Any]:
    """Return the readings of a function's arguments: a list, a dictionary, or text with one on each line."""
    if isinstance(given, dict):
        return [given, [given]]
    if isinstance(given, list):
        texts = given and all(isinstance(item, str) for item in given)
        return [given, [_readings(item)[0] for item in given]] if texts else [given]
    if not isinstance(given, str):
        return [[given]]
    values = _readings(given)
    readings = [reading for value in values for reading in ([value, [value]] if isinstance(value, list) else [[value]])]
    lines = [_readings(line)[0] for line in given.splitlines() if line.strip()]
    return [lines, *readings] if len(lines) > 1 else readings


def _readings(value: Any) -> list[Any]:
    """Return what a value may mean: text may hold JSON or a Python literal, or be itself."""
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str):
        return [value, *_readings(value[0])]
    if not isinstance(value, str):
        return [value]
    try:
        return [parsed(value, 1 << 16, 32), value]
    except ValueError:
        return [value]
