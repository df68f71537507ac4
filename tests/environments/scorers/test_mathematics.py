"""Answers of mathematics: right ones count, hostile ones neither win nor last."""

from collections.abc import Callable

import pytest

from environments.errors import ScoringUnavailable
from environments.sandbox.pool import shared_pool
from environments.sandbox.program import SandboxProgram
from environments.scorers import mathematics
from environments.scorers.mathematics import LIMITS, final_answer, score

RIGHT = [
    (r"\frac{1}{2}", r"so \boxed{0.5}"),
    (r"$\frac{1}{2}$", "The answer is $1/2$."),
    ("12", r"\boxed{12}"),
    ("012", r"first \boxed{7}, no: \boxed{12}"),
    ("42", "so it is 42"),
    ("x^2+3x+1", r"\boxed{(x+1)^2+x}"),
    (r"\sqrt{8}", r"\boxed{2\sqrt{2}}"),
    (r"\{1,2\}", r"\boxed{2, 1}"),
    (r"(1, 2)", r"\boxed{(1,2)}"),
    (r"[0,1)", r"\boxed{[0, 1)}"),
    (r"10\%", r"\boxed{0.1}"),
    ("blue", r"\boxed{blue}"),
    (r"\int_0^1 x\,dx", "$1/2$"),
    (r"\boxed{3}", r"\boxed{3.0}"),
]
WRONG = [
    ("12", "it is 13"),
    ("12", r"\boxed{13}"),
    ("12", r"\boxed{12} or \boxed{13}"),
    (r"\frac{1}{2}", r"\boxed{\frac{1}{3}}"),
    ("(1, 2)", r"\boxed{(2,1)}"),
    ("12", ""),
    ("12", r"\boxed{12"),
    ("x+1", r"\boxed{x-1}"),
]
HOSTILE: list[tuple[str, Callable[[], str]]] = [
    ("ten megabytes", lambda: r"\boxed{" + "1" * 10_000_000 + "}"),
    ("ten megabytes of boxes", lambda: r"\boxed{" * 1_400_000),
    ("a power tower", lambda: "9^9^9^9^9^9"),
    ("a boxed power tower", lambda: r"\boxed{9^{9^{9^{9^9}}}}"),
    ("a huge exponent", lambda: r"\boxed{1e999999999}"),
    ("a huge factorial", lambda: r"\boxed{(10^9)!}"),
    ("factorials of factorials", lambda: r"\boxed{9!!!!!!!!!!}"),
    ("a huge binomial", lambda: r"\boxed{\binom{10^9}{10^8}}"),
    ("a long sum", lambda: r"\boxed{\sum_{k=1}^{10^9} \frac{1}{k}}"),
    ("a long product", lambda: r"\boxed{\prod_{k=1}^{10^9} k}"),
    ("a high derivative", lambda: r"\boxed{\frac{d^{100}}{dx^{100}} e^{x^2}}"),
    ("a high power of a sum", lambda: r"\boxed{(x+y+z)^{99999}}"),
    ("deep parentheses", lambda: "(" * 50_000 + "1" + ")" * 50_000),
    ("deep braces", lambda: r"\boxed{" + "{" * 300 + "2" + "}" * 300 + "}"),
    ("deep fractions", lambda: r"\boxed{" + r"\frac{1}{" * 20 + "2" + "}" * 20 + "}"),
    ("deep roots", lambda: r"\boxed{" + r"\sqrt{" * 22 + "2" + "}" * 22 + "}"),
    ("many digits", lambda: r"\boxed{" + "7" * 900 + "}"),
    ("many terms", lambda: r"\boxed{" + "+".join(f"x_{{{k}}}" for k in range(100)) + "}"),
    ("a set of many", lambda: r"\boxed{\{" + ",".join(map(str, range(220))) + r"\}}"),
    ("Python", lambda: r"\boxed{__import__('os').write(1, b'1.0') or exit()}"),
    ("Python as plain text", lambda: "__import__('os')._exit(0) (1).__class__ 1.0"),
    ("macros", lambda: r"\def\a{\a\a}\a \boxed{\a}"),
    ("no text at all", lambda: "\0\ud800\x1b[2J" * 100),
    ("infinity", lambda: r"\boxed{\infty}"),
    ("everything", lambda: r"\boxed{x=x}"),
    ("not a number", lambda: r"\boxed{nan}"),
    ("a range of everything", lambda: r"\boxed{(-\infty,\infty)}"),
]


@pytest.mark.parametrize(("reference", "answer"), RIGHT)
def test_right_answers(reference: str, answer: str) -> None:
    assert score(answer, reference) == 1.0


@pytest.mark.parametrize(("reference", "answer"), WRONG)
def test_wrong_answers(reference: str, answer: str) -> None:
    assert score(answer, reference) == 0.0


@pytest.mark.parametrize(("name", "answer"), HOSTILE, ids=[name for name, _ in HOSTILE])
def test_hostile_answers_never_win_and_end_by_count(name: str, answer: Callable[[], str]) -> None:
    assert score(answer(), "12") == 0.0


def test_the_short_way_for_whole_numbers_says_what_math_verify_says() -> None:
    pairs = [("7", "7"), ("7", "8"), ("-7", "7"), ("+7", "7"), ("007", "7"), ("10", "100"), ("0", "-0")]
    for answer, reference in pairs:
        program = SandboxProgram(
            mathematics._PROGRAM, function="score", arguments=[rf"\boxed{{{reference}}}", rf"\boxed{{{answer}}}"]
        )
        decided = float(shared_pool("mathematics").run(program, LIMITS).stdout)
        assert decided == score(rf"\boxed{{{answer}}}", reference), (answer, reference)


def test_the_final_answer_is_the_last_box_or_the_end() -> None:
    assert final_answer(r"a \boxed{1} b \boxed{x^{2}} c") == r"\boxed{x^{2}}"
    assert final_answer("a" * 3000 + " b") == "a" * 998 + " b"
    assert final_answer(r"\boxed{" + "1" * 2000 + "}") == ""


def test_a_machine_that_cannot_decide_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ScoringUnavailable("no process")

    monkeypatch.setattr(shared_pool("mathematics"), "run", fail)
    with pytest.raises(ScoringUnavailable):
        score(r"\boxed{\frac{3}{4}}", "0.76")
