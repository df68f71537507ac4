"""Answers of mathematics: right ones count, hostile ones neither win nor last."""

import dataclasses
import json
from collections.abc import Callable

import pytest

from attacks.hostile import ANSWERS
from environments.scorers.mathematics import LIMITS, final_answer, score
from protocol.errors import ConfigError, ScoringUnavailable
from sandbox.pool import shared_pool
from sandbox.wasi import SandboxProgram

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
    ("BCA", r"\boxed{\text{B C A}}"),
    ("ab", r"\boxed{a \cdot b}"),
    (r"1.6\times 10^{-19}", r"\boxed{0.00000000000000000016}"),
    (r"\frac{1}{3000}", r"\boxed{0.000333}"),
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
    ("BCA", r"\boxed{ABC}"),
    ("BCA", "The order is $CAB$."),
    ("BCA", r"\boxed{C \cdot B A}"),
    ("listen", r"\boxed{silent}"),
    (r"1.6\times 10^{-19}", r"\boxed{0.0}"),
    (r"\{10^{-19}, 1\}", r"\boxed{\{0.0, 1\}}"),
    (r"\pi \cdot 10^{-20}", r"\boxed{\sqrt{2} \cdot 10^{-20}}"),
    ("0.0000001", r"\boxed{0.0000002}"),
]


@pytest.mark.parametrize(("reference", "answer"), RIGHT)
def test_right_answers(reference: str, answer: str) -> None:
    assert score(answer, reference) == 1.0


@pytest.mark.parametrize(("reference", "answer"), WRONG)
def test_wrong_answers(reference: str, answer: str) -> None:
    assert score(answer, reference) == 0.0


@pytest.mark.parametrize(("name", "answer"), ANSWERS, ids=[name for name, _ in ANSWERS])
def test_hostile_answers_never_win_and_end_by_count(name: str, answer: Callable[[], str]) -> None:
    assert score(answer(), "12") == 0.0


NUMBERS = [
    "7",
    "-7",
    "+7",
    "007",
    "70",
    "0",
    "-0",
    "0.5",
    "1/2",
    r"\frac{1}{2}",
    r"-\dfrac{1}{2}",
    "0.3333",
    r"\frac{1}{3}",
]


def test_the_short_way_for_plain_numbers_says_what_math_verify_says() -> None:
    source = "from muster_mathematics import score\ndef f(ns): return [score(a, b) for a in ns for b in ns]"
    boxed = [rf"\boxed{{{number}}}" for number in NUMBERS]
    limits = dataclasses.replace(LIMITS, fuel=50 * LIMITS.fuel)
    outcome = shared_pool("mathematics").run(SandboxProgram(source, function="f", arguments=[boxed]), limits)
    decided = json.loads(outcome.stdout)
    assert decided == [score(answer, reference) for reference in boxed for answer in boxed]
    assert 0 < sum(decided) < len(decided)


@pytest.mark.parametrize("reference", ["", " ", "$$", r"\boxed{}"])
def test_a_reference_that_says_nothing_is_no_reference(reference: str) -> None:
    with pytest.raises(ConfigError, match="reference"):
        score(r"\boxed{}", reference)


def test_the_final_answer_is_the_last_box_or_the_end() -> None:
    assert final_answer(r"a \boxed{1} b \boxed{x^{2}} c") == r"\boxed{x^{2}}"
    assert final_answer("a" * 3000 + " b") == "a" * 998 + " b"
    assert final_answer(r"\boxed{" + "1" * 2000 + "}") == ""


def test_a_machine_that_cannot_decide_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ScoringUnavailable("no process")

    monkeypatch.setattr(shared_pool("mathematics"), "run", fail)
    with pytest.raises(ScoringUnavailable):
        score(r"\boxed{x+76}", "76+x")
