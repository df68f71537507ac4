"""Answers of mathematics: right ones count, hostile ones neither win nor last."""

import contextlib
import dataclasses
import json
import math
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attacks.hostile import ANSWERS
from environments.scorers.latex import Unreadable, read
from environments.scorers.mathematics import LIMITS, check_reference, final_answer, score
from protocol.encoding import parse_json
from protocol.errors import ConfigError, ScoringUnavailable
from sandbox.pool import shared_pool
from sandbox.wasi import SandboxProgram

RIGHT = [
    (r"$\frac{1}{2}$", "The answer is $1/2$."),
    ("12", r"\boxed{12}"),
    ("012", r"first \boxed{7}, no: \boxed{12}"),
    ("x^2+3x+1", r"\boxed{(x+1)^2+x}"),
    (r"\{1,2\}", r"\boxed{2, 1}"),
    (r"[0,1)", r"\boxed{[0, 1)}"),
    (r"10\%", r"\boxed{0.1}"),
    ("blue", r"\boxed{blue}"),
    ("BCA", r"\boxed{\text{B C A}}"),
    ("ab", r"\boxed{a \cdot b}"),
    (r"1.6\times 10^{-19}", r"\boxed{0.00000000000000000016}"),
    (r"\frac{1}{3000}", r"\boxed{0.000333}"),
    (r"\boxed{3}", r"\boxed{3.0}"),
    ("5", "**Answer: 5**"),
    ("B", r"\boxed{\textbf{(B)}\ 12}"),
    ("5", r"\boxed{5\ }"),
    (r"\cos 60^\circ", r"\boxed{1/2}"),
    ("1", r"\boxed{\sin(30°) + \cos 60^{\circ}}"),
    ("B", r"\boxed{\textbf{(B)}~\pi}"),
    ("B", r"\boxed{(B) [0,1)}"),
    ("B", r"\boxed{(B) \left(1,2\right)}"),
    ("A-5", r"\boxed{(A) - 5}"),
    ("1011_2", r"\boxed{(B) 1011_2}"),
    ("A: 3, B: 4", r"\boxed{A: 3, B: 4}"),
    (r"6:30 \text{ p.m.}", r"\boxed{6:30 \text{ PM}}"),
    ("42", "Итак, 6 на 7.\nОтвет: 42"),
]
WRONG = [
    ("12", r"\boxed{12} or \boxed{13}"),
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
    (r"\cos 60^\circ", r"\boxed{\cos 60}"),
    ("A", r"\boxed{(A) or (B)}"),
    ("A", r"\boxed{(A) (B)}"),
    ("(B) x", r"\boxed{(B) y}"),
    ("(A) 1011_2", r"\boxed{(A) 1011_3}"),
    ("(A) - B", r"\boxed{A}"),
    ("-5", r"\boxed{(A) - 5}"),
    ("A: 3, B: 4", r"\boxed{A}"),
    ("(A) 3, (B) 4", r"\boxed{A}"),
    ("250", r"\boxed{2€50}"),
    ("1250", r"\boxed{1,€250}"),
    ("1250", r"\boxed{1 £250}"),
    ("12", r"\boxed{3\underline{4}}"),
    (r"n^{\underline{k}}", r"\boxed{n^k}"),
    (r"\text{June 11 2}", r"\boxed{June 1 12}"),
    (r"6:30 \text{ p.m.}", r"\boxed{6:30}"),
    ("42", "Это не 42"),
    ("42", "Ответ: 42 тысячи"),
]


@pytest.mark.parametrize(("answers", "worth"), [(RIGHT, 1.0), (WRONG, 0.0)], ids=["right", "wrong"])
def test_answers(answers: list[tuple[str, str]], worth: float) -> None:
    assert [one for one in answers if score(one[1], one[0]) != worth] == []


@pytest.mark.parametrize(("name", "answer"), ANSWERS, ids=[name for name, _ in ANSWERS])
def test_hostile_answers_never_win_and_end_by_count(name: str, answer: Callable[[], str]) -> None:
    assert score(answer(), "12") == 0.0


NUMBERS = ["7", "-7", "+7", "007", "70", "0", "-0", "0.5", "1/2", r"\frac{1}{2}", r"-\dfrac{1}{2}"]
NUMBERS += ["0.3333", r"\frac{1}{3}"]


def test_plain_numbers_are_compared_as_the_sandbox_compares_them() -> None:
    source = "from muster_mathematics import equal\ndef f(ns): return [equal(a, b) for a in ns for b in ns]"
    trees = [read(number) for number in NUMBERS]
    limits = dataclasses.replace(LIMITS, fuel=50 * LIMITS.fuel)
    outcome = shared_pool("mathematics").run(SandboxProgram(source, function="f", arguments=[trees]), limits)
    decided = json.loads(outcome.stdout)
    assert decided == [bool(score(rf"\boxed{{{b}}}", a)) for a in NUMBERS for b in NUMBERS]
    assert 0 < sum(decided) < len(decided)


DENIED = [
    *("it is not 42", "It is certainly not $42$.", "It is less than 42.", "It is negative 42.", "It is twice 42"),
    *("The wrong answer is 42", "It can't be $42$", "Minus 42", "It is about 42 thousand.", "42 is wrong."),
    *("The answer is not 42", "The answer is 42 or 43", "The answer is 42 million", "Either 42 or 43", "42 43"),
    *("The answer is -42", "The answer is 42%", "The answer is: 42, 43", "The answer is 42 squared", "= -42"),
    "is it 42?",
]  # fmt: skip
ASSERTED = [
    *("so it is 42", "We get $42$.", "**42**", "Answer: 42", "= 42", "There are 42 apples.", "x = 42", "#### 42", "42"),
    *("Therefore, the sum equals 42", r"The final answer is \(42\)", r"Thus, it is $\frac{84}{2}$.", "答案是42。"),
    *("<answer>42</answer>", "The answer is: **42**", "The correct answer is $$42$$", r"\boxed{42}", r"\boxed 42"),
]


@pytest.mark.parametrize(("answer", "worth"), [(a, 0.0) for a in DENIED] + [(a, 1.0) for a in ASSERTED])
def test_prose_around_a_number_may_say_it_or_deny_it(answer: str, worth: float) -> None:
    assert score(answer, "42") == worth


@pytest.mark.parametrize("reference", ["", " ", "$$", r"\boxed{}"])
def test_a_reference_that_says_nothing_is_no_reference(reference: str) -> None:
    with pytest.raises(ConfigError, match="reference"):
        check_reference(reference)
    assert score(r"\boxed{}", reference) == 0.0


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"a \boxed{1} b \boxed{x^{2}} c", "x^{2}"),
        (r"\boxed {5}", "5"),
        (r"\fbox{5}", "5"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{12", ""),
        (r"\boxed{" + "1" * 2000 + "}", ""),
        ("The answer is (A).", "(A)"),
        ("The answer is 13, not 12", "13, not 12"),
        ("We get $x = 3$, hence $$x^2 = 9$$.", "x^2 = 9"),
        ("<think>7</think><answer>12</answer>", "12"),
        ("so it is 42", "42"),
        ("13, not 12", ""),
        ("a" * 3000 + " b", ""),
    ],
)
def test_the_final_answer(text: str, answer: str) -> None:
    assert final_answer(text) == answer


def test_a_machine_that_cannot_decide_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ScoringUnavailable("no process")

    monkeypatch.setattr(shared_pool("mathematics"), "run", fail)
    with pytest.raises(ScoringUnavailable):
        score(r"\boxed{x+76}", "76+x")


# Twenty spellings of right answers, and answers that are wrong in the ways that a scorer overlooks


def _references(count: int) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield a reference, right answers and wrong ones; all of them follow from its number."""
    for number in range(count):
        draw = random.Random(number)
        a, b, c = draw.randint(2, 999), draw.randint(2, 97), draw.randint(2, 12)
        while math.gcd(a, b) > 1 or a % b == 0:
            a += 1
        kind = number % 10
        if kind == 0:
            right = [str(a), f"{a}.0", f"+{a}", rf"\frac{{{a * c}}}{{{c}}}", f"{a * b}/{b}", f"0{a}", f"x = {a}"]
            wrong = [str(a + 1), f"-{a}", f"{a}1", f"{a}, {b}", f"{a} {b}", f"{a}e{c}", f"{a}%", f"{a}i", f"{a}!"]
            yield str(a), right, [*wrong, str(a)[:-1], f"{b} = {a}"]
        elif kind == 1:
            right = [f"{a}/{b}", rf"\dfrac{{{a}}}{{{b}}}", rf"\tfrac{{{a}}}{{{b}}}", rf"\frac{{{a * c}}}{{{b * c}}}"]
            right += [rf"{a // b}\frac{{{a % b}}}{{{b}}}"] * (a > b)
            right += [rf"{a} \div {b}", rf"\left(\frac{{{a}}}{{{b}}}\right)"]
            yield rf"\frac{{{a}}}{{{b}}}", right, [str(a), str(b), f"{b}/{a}", f"{a}/{b + 1}", f"{a},{b}", f"-{a}/{b}"]
        elif kind == 2:
            right = [rf"\{{{b}, {a}\}}", f"{b}, {a}", f"{a} and {b}", f"{a}; {b}"]
            wrong = [str(a), str(b), f"{a}, {b}, {c + 1000}", f"({b}, {a})", f"{a}, {b + 1}", f"{a}{b}"]
            yield f"{a}, {b}", right, wrong
        elif kind == 3:
            right = [f"({a},{b})", rf"\left({a}, {b}\right)", rf"\langle {a}, {b} \rangle"]
            wrong = [f"({b}, {a})" if a != b else "0", f"({a}, {b}, {c})", f"[{a}, {b})", str(a), f"({a}{b})"]
            yield f"({a}, {b})", right, wrong
        elif kind == 4:
            right = [rf"{a} \text{{ cm}}", rf"{a}\mathrm{{cm}}", f"{a} cm", str(a), rf"{a} \text{{ centimeters}}"]
            wrong = [f"{a} mm", rf"{a} \text{{ cm}}^2", f"{a + 1} cm", f"{a} km", f"{a} cm {b} mm"]
            yield rf"{a} \text{{ cm}}", right, [*wrong, rf"{a} \text{{ hundred cm}}", rf"{a} \text{{ cm or more}}"]
        elif kind == 5:
            right = [rf"{b}+{a}i", rf"{a}i + {b}", rf"{b} + {a}\mathrm{{i}}"]
            yield f"{b} + {a}i", right, [f"{b} - {a}i", f"{a} + {b}i" if a != b else "0", str(b), f"{a}i", f"{a + b}"]
        elif kind == 6:
            right = [rf"{a} > x", rf"(-\infty, {a})", rf"x \lt {a}"]
            yield f"x < {a}", right, [rf"x \le {a}", f"x > {a}", str(a), f"x < {a + 1}", f"{a}", f"{b} < x < {a}"]
        elif kind == 7:
            groups = [f"{a},{b:03}", rf"{a}\,{b:03}", rf"{a}{{,}}{b:03}", f"{a} {b:03}", f"{a}{b:03}"]
            yield f"{a}{b:03}", groups, [str(a), str(b), f"{a}.{b:03}", f"{a},{b:03},000", f"{a}, {b:03}", f"{a}; {b}"]
        elif kind == 8:
            right = [rf"0.\overline{{{c:02}}}", f"{c}/99", rf"\frac{{{c}}}{{99}}"]
            wrong = [f"0.{c:02}", f"{c}", "99", f"0.{c:02}0", rf"0.\overline{{{c + 1:02}}}"]
            yield rf"\frac{{{c}}}{{99}}", right, wrong
        else:
            words = ("monday", "increasing", "blue", "ellipse", "isosceles")
            word = words[a % 5]
            right = [word, word.upper(), rf"\text{{{word}}}", f"{word}."]
            other = words[(a + 1) % 5]
            yield word, right, [word[:-1], word[::-1], other, f"{word} or {other}", f"not {word}"]


@pytest.mark.parametrize("count", [600, pytest.param(5_000, marks=pytest.mark.slow)])
def test_no_wrong_answer_to_many_references_scores_and_every_right_one_does(count: int) -> None:
    """All wrong answers to the first 500 references, one to each of the others."""
    texts = (r"\boxed{%s}", r"So $\boxed{ %s }$.", "The answer is %s.", r"First \boxed{7}, but it is \boxed{%s}")
    around = ["It is not $%s$.", "The answer is %s, or else %s and one.", r"\boxed{\text{not } %s}"]
    around += [r"\boxed{%s} is wrong: \boxed{?}"]

    def misjudged(case: tuple[int, tuple[str, list[str], list[str]]]) -> list[tuple[str, str]]:
        number, (reference, right, wrong) = case
        turn, text = number // 10, texts[number % len(texts)]
        prose = around[turn % len(around)]
        answers = [text % answer for answer in (wrong if number < 500 else [wrong[turn % len(wrong)]])]
        answers.append(prose % ((reference,) * prose.count("%s")))
        worth = [(text % right[turn % len(right)], 1.0), *((answer, 0.0) for answer in answers)]
        return [(reference, answer) for answer, expected in worth if score(answer, reference) != expected]

    with ThreadPoolExecutor(2) as threads:  # each waits for a sandbox
        found = threads.map(misjudged, enumerate(_references(count)))
        assert [one for case in found for one in case][:5] == []


SPELLINGS = [
    (r"\frac{1}{2}", ["1/2", "0.5", r"\frac12", "½", r"\dfrac{1}{2}", ".5", "50%", "2^{-1}", r"\frac{2}{4}", "$1/2$"]),
    (r"2\sqrt{3}", [r"\sqrt{12}", "2√3", "2*sqrt(3)", r"\sqrt{3} \cdot 2", r"\frac{6}{\sqrt{3}}", "12^{1/2}"]),
    (r"x^2 - 1", ["(x-1)(x+1)", "x²-1", "x**2 - 1", "-1 + x^2", r"x \cdot x - 1", "y = x^2 - 1"]),
    (r"\frac{\pi}{4}", [r"\pi/4", "π/4", r"\frac14 \pi", r"\arctan 1", "pi/4", r"0.25\pi"]),
    (r"x = 2 \text{ or } x = -3", ["-3, 2", r"\{2, -3\}", "x = -3, 2", "x=2, x=-3"]),
    (r"[2, \infty)", [r"[2,+\infty)", r"x \ge 2", "x ≥ 2", r"2 \leq x", r"x \in [2, \infty)", "[2,∞)"]),
    (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", [r"\begin{bmatrix}1\\2\end{bmatrix}"]),
    (r"\ln 2", [r"\log_e 2", r"\frac{\ln 4}{2}", r"-\ln \frac12"]),
    (r"x^2 + y^2 = 1", ["1 = x^2+y^2", "y^2 + x^2 - 1 = 0", "2x^2 + 2y^2 = 2"]),
    (r"\frac{1}{3}", [r"0.\overline{3}", r"0.\bar{3}", r"0.\dot3", "0.(3)"]),
    (r"1.5 \times 10^6", ["1500000", "1.5e6", r"15 \cdot 10^5", "1,500,000"]),
]


NEARLY = [
    ("x^2 - 1", ["x^2+1", "(x-1)^2", "x-1", "x^2", "1-x^2"]),
    (r"2\sqrt{3}", [r"\sqrt{3}", "3.4641", r"2\sqrt{2}", "23", r"\sqrt{13}"]),
    (r"|x|", ["x", "-x", r"\sqrt{x^3}"]),
    ("[1, 2)", ["[1, 2]", "(1, 2)", "1, 2", "[1, 3)"]),
    (r"x^2 + y^2 = 1", ["x^2 - y^2 = 1", "x + y = 1", "1", "x^2+y^2"]),
    ("2^{100}", ["2^{101}", "2^{100}+1", "1267650600228229401496703205375"]),
    (r"\frac{1}{2004!}", ["0", r"\frac{1}{2005!}", "0.0"]),
    ("e^{-800}", ["0", "e^{-801}", "0.0"]),
    ("A, C", ["A", "A, B", "A, B, C"]),
    (r"\text{odd}", [r"\text{even}", "odd or even"]),
    (r"3:4", ["4:3", "3/5", "34"]),
    ("|x - 10|", ["10 - x", "x - 10", "|x| + 10"]),
    (r"\max(x, 30)", ["30", "x"]),
    (r"\lceil x \rceil", [r"\lfloor x \rfloor + 1", "x", "x + 1"]),
    (r"\gcd(n, 6)", ["1", "6", "n"]),
    (r"\frac{\sqrt{2}}{2}", [r"\frac{\sqrt2(2^{200}-1)}{2^{201}}"]),
    (r"\sqrt{2} x", [r"(\sqrt{2} + 10^{-50}) x"]),
    ("5", [r"5 \text{ million}", r"5 \text{ or six}", r"5 \text{ or more}", r"5 \text{ percent}", r"5\%"]),
]


@pytest.mark.parametrize(("worth", "cases"), [(1.0, SPELLINGS), (0.0, NEARLY)], ids=["spelled", "nearly"])
def test_right_answers_in_other_spellings_and_nearly_right_ones(
    worth: float, cases: list[tuple[str, list[str]]]
) -> None:
    for reference, answers in cases:
        assert [one for one in answers if score(rf"\boxed{{{one}}}", reference) != worth] == [], reference
        assert score(rf"\boxed{{{reference}}}", reference) == 1.0


@pytest.mark.parametrize(
    "reference",
    [
        *(r"1, \dots, n", r"n \equiv 1 \pmod 4", r"n \in \mathbb{Z}", "3 4", "(1, 2", "x +", r"\foo{3}", "1,", "2)"),
        *(r"5 \mid n", "...", r"\int_0^1 x\,dx", r"5 \text{ million}", "3 or more"),
    ],
)
def test_a_reference_that_cannot_be_read_whole_is_refused(reference: str) -> None:
    with pytest.raises(ConfigError, match="cannot be read whole"):
        check_reference(reference)
    assert score(rf"\boxed{{{reference}}}", reference) == score(r"\boxed{3}", reference) == 0.0


@given(st.text("0123456789.,+-*/^_!%=<>()[]{}|\\ abexifrcsqtpi$", max_size=40))
def test_reading_ends_with_a_tree_or_says_that_it_cannot(text: str) -> None:
    with contextlib.suppress(Unreadable):
        assert json.loads(json.dumps(read(text))) == read(text)


DEEP = ["-" * 999 + "1", r"\frac" * 200, "+".join("1" * 500), "1" + "!" * 900, "2" + "^2" * 400, r"\sqrt" * 199]
DEEP += ["x" * 3 + "'" * 900]
DEEP += ["(" * 24 + "+".join(["1"] * 40) + ")" * 24, "1" + "+(1" * 23 + ")" * 23, "a," * 499 + "a", r"\sin" * 240 + "x"]


@pytest.mark.parametrize("text", DEEP, ids=range(len(DEEP)))
def test_deep_texts_end_before_any_limit_of_the_interpreter(text: str) -> None:
    def shallow(calls: int) -> float:
        return shallow(calls - 1) if calls else score(rf"\boxed{{{text}}}", "12")

    assert shallow(300) == score(text, "12") == 0.0
    try:
        tree = read(text)
    except Unreadable:
        return
    assert json.dumps(tree).count("[") < 4 * len(text)
    assert parse_json(json.dumps(tree)) == tree
