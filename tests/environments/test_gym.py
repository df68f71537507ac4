"""The adapter for reasoning_gym: determinism across processes, strictness, clear errors, hostile answers."""

import ast
import itertools
import json
import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from environments import gym
from environments.base import Environment, Problem
from environments.gym import NEEDS_OWN_PROCESS, REBUILT_PER_SEED, REFUSED, GymGenerator, offered
from environments.registry import load_environment
from environments.scorers.gym_answers import ANSWER_FORMS, may_be_scored
from protocol.config import EnvironmentConfig
from protocol.errors import ConfigError, ScoringUnavailable

SUMS = EnvironmentConfig(
    name="reasoning_gym/chain_sum", params={"min_terms": 3, "max_terms": 4, "min_digits": 1, "max_digits": 1}
)
HOSTILE = [
    "", "\0", "nan", "inf", "1e999999999", "-1e999999999", "9" * 4096, "9" * 100_000, "[" * 4000, "((" * 2000,
    "__import__('os')._exit(9)", "10**10**10", "\ud800", "٣", " " * 4000, "null", "{}", "1/0", "x" * 4096,
]  # fmt: skip


def gym_task(dataset: str, **params: Any) -> Environment:
    return load_environment(EnvironmentConfig(name=f"reasoning_gym/{dataset}", params=params))


def test_different_seeds_give_different_problems_sixty_four_in_less_than_a_tenth_of_a_second() -> None:
    task = load_environment(SUMS)
    start = time.process_time()
    questions = {task.problem(seed).question for seed in range(64)}
    assert time.process_time() - start < 0.1
    assert len(questions | {task.problem(seed).question for seed in range(64, 200)}) > 150
    for seed in (-1, 2**64):
        with pytest.raises(ValueError, match="64-bit"):
            task.problem(seed)


def test_the_default_is_right_or_nothing_and_partial_credit_is_given_on_demand() -> None:
    task = load_environment(SUMS)
    problem = task.problem(3)
    assert task.score(problem, problem.answer) == 1.0
    assert task.score(problem, f"the answer is {problem.answer}") == 0.0
    assert task.score(problem, str(int(problem.answer) + 1)) == 0.0
    partial = gym_task("chain_sum", **SUMS.params, score_threshold=0)
    assert 0.0 < partial.score(problem, f"the answer is {problem.answer}") < 1.0


@pytest.mark.parametrize("name", ["chain_sum", "letter_counting", "sudoku", "gsm_symbolic"])
def test_hostile_answers_score_nothing_quickly(name: str) -> None:
    task = gym_task(name)
    problem = task.problem(1)
    start = time.process_time()
    assert {task.score(problem, text) for text in HOSTILE} == {0.0}
    assert time.process_time() - start < 1.0


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"name": "chain_sum"}, "unknown environment"),
        ({"name": "reasoning_gym/nothing"}, "unknown dataset `nothing`"),
        ({"name": "reasoning_gym/codeio"}, "runs code snippets"),
        ({"name": "reasoning_gym/chain_sum", "params": {"terms": 3}}, "no parameter `terms`"),
        ({"name": "reasoning_gym/chain_sum", "params": {"seed": 3}}, "no parameter `seed`"),
        ({"name": "reasoning_gym/chain_sum", "params": {"min_terms": 9, "max_terms": 2}}, "max_terms must be"),
        ({"name": "reasoning_gym/chain_sum", "params": {"min_terms": "x"}}, "refuses its parameters"),
        ({"name": "reasoning_gym/chain_sum", "params": {"score_threshold": 2}}, "score_threshold"),
        ({"name": "reasoning_gym/chain_sum", "params": {"score_threshold": True}}, "score_threshold"),
        ({"name": "reasoning_gym/ransom_note", "params": {"words": 3}}, "no parameter `words`"),  # by another process
        ({"name": "reasoning_gym/chain_sum", "content": "0" * 64}, "the pool's content is 00000000"),
    ],
)
def test_wrong_configurations_name_what_to_mend(config: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load_environment(EnvironmentConfig.model_validate(config))
    load_environment(SUMS.model_copy(update={"content": load_environment(SUMS).declared.content}))


def test_every_dataset_of_the_package_was_reviewed() -> None:
    from reasoning_gym.factory import DATASETS

    assert {*REFUSED, *NEEDS_OWN_PROCESS, *REBUILT_PER_SEED, *ANSWER_FORMS} <= set(DATASETS)
    assert not offered() & set(REFUSED)
    assert offered() >= ANSWER_FORMS.keys()
    assert len(DATASETS) == 106, "review what is new: nothing else says that it may be offered"


EVIL = [
    "__import__('os')._exit(9)", "[x for x in [1]]", "oracle_answer", "[oracle_answer]", "[0]*10**9", "9**9**9**9",
    "9 ** 9 ** 9", "x**99**99", "(x**99)**99", "factorial(9)", "E(3)", "x(3)", "X(3)", "1e999999999", "[" + "'" * 999,
    "{}", "[f'{1}']", "['\\x41']", "lambda: 0", "2!", "ab", "1;2", "[1][0]()", "N(x)", "[" * 4097,
]  # fmt: skip


@pytest.mark.parametrize("name", sorted(ANSWER_FORMS))
def test_answers_that_name_anything_or_take_long_never_reach_a_scorer(name: str) -> None:
    assert [text for text in EVIL if may_be_scored(name, text, "the reference")] == []
    start = time.process_time()  # matching takes linear time
    for part in ("1", "'a", "(", "x*", "[", " ", '"', "**1", "1,"):
        for often in (2000, 60):
            may_be_scored(name, part * often + "!", "the reference")
    assert time.process_time() - start < 1.0


WRITTEN = {
    "countdown": "(3 + 4) * 12 / 2 - 1",
    "complex_arithmetic": "-15.5 + 3i",
    "polynomial_multiplication": "-417560*y**5 + 295723*y**4*z - 3*(x + 2)*z",
    "simple_integration": "-5*X**9 - 2*X**6/3 + 4*X**3 + C",
    "spiral_matrix": "[1, 2, -3]",
    "string_insertion": "['A', \"B\"]",
    "n_queens": "[['_', 'Q'], ['Q', '_']]",
    "binary_matrix": "[[0, 1],\n [1, 0]]",
    "rubiks_cube": "R U2 R' Fw2 x y'",
    "rush_hour": "F+1 K+1 M-1, C+3",
}


def test_answers_as_people_write_them_do_and_scorers_that_take_none_see_only_what_agrees() -> None:
    assert [name for name, text in WRITTEN.items() if not may_be_scored(name, text, "the reference")] == []
    for name, right, wrong, reference in (
        ("puzzle24", "4*7*1 - 4", "1*2*3*4", "1*(7*4 - 4)"),
        ("coin_flip", " 5/16 ", "0", "0.3125"),
        ("game_of_life_halting", "false", "True", "False"),
    ):
        assert may_be_scored(name, right, reference) > may_be_scored(name, wrong, reference)


NO_ANSWERS = ("nan", "inf", "nan+nanj", "{}", "[]", "None", "()", "''", "[[]]", "?", "*", "x", "-", "0/0", "[nan]")
SLOW = {"futoshiki", "knight_swap", "puzzle24", "quantum_lock", "rubiks_cube", "zebra_puzzles"}
SHARED = {"jugs", "quantum_lock", "time_intervals"}
"""Two problems may have answers in common."""


@pytest.mark.parametrize("name", sorted(offered()))
def test_what_answers_nothing_or_another_problem_is_worth_nothing(name: str) -> None:
    task = gym_task(name)
    problems = [task.problem(seed) for seed in range(2 if name in SLOW else 8)]
    for one in problems:
        paid = [text for text in NO_ANSWERS if text != one.answer and task.score(one, text) > 0.0]
        assert paid == [], one.question
    others = [(one, other.answer) for one in problems for other in problems if other.answer not in ("", one.answer)]
    if name not in SHARED:
        assert [pair for pair in others if task.score(*pair) > 0.0] == []


def test_a_seed_that_a_generator_gives_up_on_has_the_problem_of_one_that_follows_from_it() -> None:
    gives_up, stride = 3548095682027638917, 0x9E3779B97F4A7C15
    task = gym_task("maze")
    problem = task.problem(gives_up)
    assert problem == task.problem((gives_up + stride) % (1 << 64))
    assert task.score(problem, problem.answer) == 1.0


def test_a_dataset_prints_nothing_and_survives_its_process_or_has_no_score(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    gym_task("bf").problem(7)
    assert capfd.readouterr().out == ""
    assert "ransom_note" in NEEDS_OWN_PROCESS
    environment = gym_task("ransom_note")
    problem = environment.problem(5)
    process = gym.PROCESS._process
    assert process is not None
    process.kill()
    assert environment.problem(5) == problem
    assert environment.score(problem, problem.answer) == 1.0
    assert gym.PROCESS._process is not process
    monkeypatch.setattr(gym, "ANSWER_SECONDS", 0.0)
    with pytest.raises(ScoringUnavailable, match="gave no answer"):
        environment.score(problem, problem.answer)


# Answers that solve nothing and have full marks of reasoning_gym's own scorers, or keep them busy for ever: none is
# paid, while what solves the problem is.


def cut_off(problem: Problem) -> str:
    """24 and something."""
    numbers = re.findall("[0-9]+", problem.answer)
    for one, *others in itertools.permutations(numbers):
        for signs in itertools.product("+-*/", repeat=3):
            formula: str = "((" + one + "".join(f"{sign}{number})" for sign, number in zip(signs, others, strict=True))
            formula = formula.removesuffix(")")
            if "/0" not in formula and 24.01 < eval(formula) < 24.99:
                return formula
    return ""


def boxes_to_targets(problem: Problem, backwards: bool = False) -> str:
    cells: dict[str, list[str]] = problem.metadata["initial_state"]
    boxes = [thing for things in cells.values() for thing in things if thing.startswith("box_")]
    pairs = [(box, box.replace("box", "target")) for box in boxes]
    return json.dumps([step for pair in pairs for step in _carried(*(pair[::-1] if backwards else pair), cells)])


def _carried(thing: str, to: str, cells: dict[str, list[str]]) -> Iterator[dict[str, str]]:
    """A step per square, rows first, then the match."""
    (row, column), end = _where(thing, cells), _where(to, cells)
    while (row, column) != end:
        here = f"Agent[{row}, {column}]"
        if row != end[0]:
            row += 1 if row < end[0] else -1
        else:
            column += 1 if column < end[1] else -1
        yield {here: f"move({thing}, square[{row}, {column}])"}
    box, target = sorted((thing, to))
    yield {f"Agent[{row}, {column}]": f"move({box}, {target})"}


def _where(thing: str, cells: dict[str, list[str]]) -> tuple[float, float]:
    row, column = next(name for name, things in cells.items() if thing in things).split("_")
    return float(row), float(column)


@pytest.mark.parametrize(
    ("dataset", "params", "fool"),
    [
        ("number_sorting", {}, lambda problem: json.dumps([float("nan")] * (problem.answer.count(",") + 1))),
        ("number_sorting", {}, lambda problem: str([float(one) + 0.25 for one in ast.literal_eval(problem.answer)])),
        ("puzzle24", {}, cut_off),
        ("figlet_font", {"min_word_len": 12, "max_word_len": 14}, lambda problem: problem.answer[:-1] + "?"),
        ("boxnet", {}, partial(boxes_to_targets, backwards=True)),
    ],
    ids=["nothing but nan", "numbers near by", "24 and something", "all but the end", "targets to boxes"],
)
def test_what_fools_the_scorer_is_not_paid(
    dataset: str, params: dict[str, Any], fool: Callable[[Problem], str]
) -> None:
    task = gym_task(dataset, **params)
    own = GymGenerator(dataset, params)
    answers = [(problem, fool(problem)) for problem in map(task.problem, range(8))]
    fooled = [one for one in answers if own.score(*one) == 1.0 and one[1] != one[0].answer]
    assert fooled, "it fools nobody: the guard has no reason"
    assert {task.score(*one) for one in fooled} == {0.0}


@pytest.mark.parametrize(
    ("dataset", "answers"),
    [
        ("advanced_geometry", ("{}e0", "{} or not", "({}, {})")),
        ("fraction_simplification", ("{}%", "{} or 1/2", "{}+0")),
        ("gsm_symbolic", ("-{}", "{}%", "It is not {}", "{} or 7", "{} cm")),
        ("kakurasu", ("-{}", "not {}", "{}%")),
        ("letter_jumble", ("{} or not", "{}\n{}")),
        ("polynomial_equations", ("{}x", "{}, {}", "{}\nor {}")),
        ("sokoban", ("not {}", "{}!")),
        ("spell_backward", ("{}s", "{} or not", "{}{}")),
        ("survo", ("{} cm", "not {}")),
        ("time_intervals", ("-{}", "{} or not", "{}%", "{} {}")),
        ("word_sorting", ("{}, {}", "{}, zebra")),
    ],
)
def test_what_a_scorer_overlooks_is_not_paid(dataset: str, answers: tuple[str, ...]) -> None:
    task = gym_task(dataset)
    for problem in map(task.problem, range(2 if dataset == "sokoban" else 6)):
        assert task.score(problem, problem.answer) == 1.0
        wrong = [answer.replace("{}", problem.answer) for answer in answers if problem.answer]
        assert [answer for answer in wrong if task.score(problem, answer) > 0.0] == []


def turned_back(problem: Problem) -> str:
    moves = problem.metadata["scramble_moves"].split()
    return " ".join(move[:-1] if move.endswith("'") else f"{move}'" for move in reversed(moves))


def in_other_words(problem: Problem) -> str:
    return f" {problem.answer} ".replace("'", '"')


@pytest.mark.parametrize(
    ("dataset", "solve"),
    [
        *((name, in_other_words) for name in ("number_sorting", "puzzle24", "polynomial_multiplication")),
        *(("boxnet", boxes_to_targets), ("rubiks_cube", turned_back)),
    ],
)
def test_what_solves_a_problem_in_other_words_is_paid(dataset: str, solve: Callable[[Problem], str]) -> None:
    task = gym_task(dataset)
    problems = map(task.problem, range(1 if dataset in SLOW else 8))
    assert {task.score(problem, solve(problem)) for problem in problems} == {1.0}


@pytest.mark.parametrize(("dataset", "move"), [("rush_hour", "A+"), ("rubiks_cube", "R")])
def test_moves_that_repeat_for_ever_never_reach_a_scorer(dataset: str, move: str) -> None:
    task = gym_task(dataset)
    problem, start = task.problem(0), time.process_time()
    for often in ("9" * 12, "٩" * 12, "9" * 4000):
        assert not may_be_scored(dataset, move + often, problem.answer)
        assert task.score(problem, move + often) == 0.0
    task.score(problem, (f"{move}9 " * 999)[:1000])
    assert time.process_time() - start < 5.0


@pytest.mark.parametrize("failure", [MemoryError, OSError])
def test_a_failure_of_this_machine_is_not_a_score_of_zero(
    failure: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> float:
        raise failure("out of something")

    generator = GymGenerator("chain_sum", {})
    problem = generator.problem(1)
    monkeypatch.setattr(generator._dataset, "score_answer", fail)
    with pytest.raises(ScoringUnavailable, match="out of something"):
        generator.score(problem, problem.answer)
