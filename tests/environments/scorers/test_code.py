"""Programs that answer: right ones pass, and none passes by what it prints, patches or leaves behind."""

from types import SimpleNamespace
from typing import Any

import pytest

from attacks.hostile import DECEITS, hostile
from environments.scorers import code
from environments.scorers.code import last_program, read_tests, same_output, same_value, score
from protocol.errors import ConfigError

STDIN = {
    "language": "python",
    "test_cases": [
        {"type": "stdin_stdout", "fn_name": None, "input": "1 2\n", "output": "3\n"},
        {"type": "stdin_stdout", "fn_name": None, "input": "20 22\n", "output": "42\n"},
    ],
}
FUNCTION = {
    "language": "python",
    "test_cases": [
        {"type": "function_call", "fn_name": "add", "input": [1, 2], "output": [3]},
        {"type": "function_call", "fn_name": "add", "input": "[20, 22]", "output": 42},
    ],
}
GOOD_STDIN = "print(sum(map(int, input().split())))"
GOOD_FUNCTION = "def add(a, b): return a + b"
GUARDED_RUN = "if __name__ == '__main__':\n    print(add(*map(int, input().split())))"
BUFFERED_PRINT = """
import os, sys
class Buffered:
    closed = False
    def __init__(self, file):
        self.descriptor, self.parts = file.fileno(), []
        self.write = self.parts.append if "r" not in file.mode else None
    def flush(self):
        os.write(self.descriptor, "".join(self.parts).encode())
        self.parts.clear()
sys.stdout = Buffered(sys.stdout)
"""


def fenced(source: str) -> str:
    return f"Here it is:\n```python\n{source}\n```\nDone."


def test_programs_that_pass_every_test() -> None:
    assert score(fenced(GOOD_STDIN), STDIN) == 1.0
    assert score(fenced(GOOD_FUNCTION), FUNCTION) == 1.0
    assert score(fenced(f"class Solution:\n    @staticmethod\n    {GOOD_FUNCTION}"), FUNCTION) == 1.0
    assert score(fenced(f"{GOOD_FUNCTION}\n{GUARDED_RUN}"), FUNCTION) == 1.0
    assert score(fenced(f"{BUFFERED_PRINT}{GOOD_STDIN}"), STDIN) == 1.0


@pytest.mark.parametrize(
    "source", ["print(3)", "print('3\\n42')", "raise SystemExit(0)", "1 +", "", "\0", "print(3)\nexit(1)"]
)
def test_programs_that_fail_one(source: str) -> None:
    assert score(fenced(source), STDIN) == 0.0


def test_only_the_last_block_of_python_is_run() -> None:
    text = f"```python\nprint(0)\n```\n```py\n{GOOD_STDIN}\n```\n```\nprint(0)\n```\n```json\n{{}}\n```"
    assert last_program(text).strip() == GOOD_STDIN
    assert score(text, STDIN) == 1.0
    assert last_program("```\nx = 1\n```\nprints\n```\n1\n```") == "x = 1\n"
    assert last_program("```python\nprint(1)") == ""
    assert last_program(GOOD_STDIN) == ""
    assert last_program("``` Python3 \nx\n```\n```python\nnever closed") == "x\n"
    assert score("```" * 3_000_000, STDIN) == 0.0


@pytest.mark.parametrize("name", DECEITS)
@pytest.mark.parametrize("verification", [STDIN, FUNCTION], ids=["stdin", "function"])
def test_no_deceit_wins(name: str, verification: dict[str, Any]) -> None:
    assert score(fenced(DECEITS[name]), verification) == 0.0


@pytest.mark.parametrize("bad", [one for one in hostile("/etc/x") if one.ends], ids=lambda one: one.name)
def test_hostile_programs_score_nothing(bad: Any) -> None:
    assert score(fenced(bad.source), STDIN) == 0.0


def test_what_is_expected_never_enters_the_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def run(program: Any, limits: Any) -> Any:
        seen.append(program)
        raise KeyboardInterrupt

    monkeypatch.setattr(code, "shared_pool", lambda _: SimpleNamespace(run=run))
    for verification in (STDIN, FUNCTION):
        with pytest.raises(KeyboardInterrupt):
            score(fenced(GOOD_STDIN), verification)
    assert [(one.stdin, one.arguments) for one in seen] == [(b"1 2\n", []), (b"", [1, 2])]


def test_programs_and_tests_are_bounded() -> None:
    assert score(fenced("#" * code.MAX_PROGRAM_CHARS + "\n" + GOOD_STDIN), STDIN) == 0.0
    many = {"test_cases": STDIN["test_cases"] * 1000}  # type: ignore[operator]
    assert len(read_tests(many)) == code.MAX_TESTS


@pytest.mark.parametrize(
    ("verification", "what"),
    [
        ({"language": "rust", "test_cases": []}, "language"),
        ({"test_cases": []}, "no list of tests"),
        ({"test_cases": [{"input": "1"}]}, r"test_cases\.0` lacks"),
        ({"test_cases": [{"type": "judged", "input": "1", "output": "1"}]}, "not known"),
        ({"test_cases": [{"type": "function_call", "input": "1", "output": "1"}]}, "no `fn_name`"),
        ({"test_cases": [{"testtype": "functional", "input": "1", "output": "1"}]}, "no `fn_name`"),
        ({"test_cases": [{"input": "1", "output": " \n"}]}, "expects anything"),
        ({"test_cases": [{"fn_name": "f", "input": [1], "output": None}] * 2}, "expects anything"),
        ({"test_cases": [{"input": "\ud800", "output": "1"}]}, "no text"),
        ({"test_cases": [{"type": "function_call", "fn_name": "a b", "input": "1", "output": "1"}]}, "no name"),
    ],
)
def test_a_wrong_verification_is_named(verification: dict[str, Any], what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        score(fenced(GOOD_STDIN), verification)


OUTPUTS = {
    True: [
        *(("1 2\n3\n", "1 2 3"), ("a  b", "a b"), ("1", "1.0"), ("3.0", "3"), ("0.3333333", "0.33333333"), ("", "")),
        ("2432902008176640000.0", "2432902008176640000"),
    ],
    False: [
        *(("a", "A"), ("3.0000001", "3"), ("2432902008176640001.0", "2432902008176640000"), ("1.e999", "2.e999")),
        *(("243290.2e13", "2432902008176640000"), ("0.333", "0.334"), ("1", "2"), ("10", "10 10"), ("nan", "nan.0")),
        *(("inf", "1.0"), ("1e999", "1.5"), ("٣", "3.0"), ("1." + "0" * 400, "1.0")),
    ],
}
VALUES: dict[bool, list[tuple[Any, Any]]] = {
    True: [([1, [2.0000000001]], [1, [2.0]]), ({"a": [1]}, {"a": [1]}), (1, 1.0), (1.0, 1), (None, None)],
    False: [
        *(({"a": 1}, {"b": 1}), (True, 1), (1.0000001, 1), (2432902008176640512.0, 2432902008176640000), (True, 1.0)),
        *((float("inf"), float("inf")), ("1", 1), ([1], [1, 1]), (10**400, 1.0), (None, False)),
    ],
}


@pytest.mark.parametrize("same", [True, False])
def test_same_output_and_same_value(same: bool) -> None:
    assert [pair for pair in OUTPUTS[same] if same_output(*pair) is not same] == []
    assert [pair for pair in VALUES[same] if same_value(*pair) is not same] == []
