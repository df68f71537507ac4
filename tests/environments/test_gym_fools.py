"""Answers that solve nothing and have full marks of reasoning_gym's own scorers, or keep them busy for ever: none is
paid, while what solves the problem is."""

import itertools
import json
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from environments.base import Problem
from environments.catalogue import load_environment
from environments.gym.answers import may_be_scored
from environments.gym.generator import GymGenerator
from protocol.environments import EnvironmentConfig

SEEDS = range(8)


def nothing_but_nan(problem: Problem) -> str:
    return json.dumps([float("nan")] * problem.answer.count(",") + [float("nan")])


def numbers_near_by(problem: Problem) -> str:
    return json.dumps([float(one) + 0.25 for one in json.loads(problem.answer.replace("'", '"'))])


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


def all_but_the_end(problem: Problem) -> str:
    return problem.answer[:-1] + "?"


def targets_to_boxes(problem: Problem) -> str:
    cells: dict[str, list[str]] = problem.metadata["initial_state"]
    pairs = [(thing.replace("box", "target"), thing) for thing in _boxes(cells)]
    return json.dumps([step for pair in pairs for step in _carried(*pair, cells)])


def boxes_to_targets(problem: Problem) -> str:
    cells: dict[str, list[str]] = problem.metadata["initial_state"]
    pairs = [(thing, thing.replace("box", "target")) for thing in _boxes(cells)]
    return json.dumps([step for pair in pairs for step in _carried(*pair, cells)])


def _boxes(cells: dict[str, list[str]]) -> list[str]:
    return [thing for things in cells.values() for thing in things if thing.startswith("box_")]


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


Fool = Callable[[Problem], str]


@pytest.mark.parametrize(
    ("dataset", "params", "fool"),
    [
        ("number_sorting", {}, nothing_but_nan),
        ("number_sorting", {}, numbers_near_by),
        ("puzzle24", {}, cut_off),
        ("figlet_font", {"min_word_len": 12, "max_word_len": 14}, all_but_the_end),
        ("boxnet", {}, targets_to_boxes),
    ],
)
def test_what_only_fools_the_scorer_is_not_paid(dataset: str, params: dict[str, Any], fool: Fool) -> None:
    task = load_environment(EnvironmentConfig(name=f"reasoning_gym/{dataset}", params=params))
    own = GymGenerator(dataset, params)
    answers = [(problem, fool(problem)) for problem in map(task.problem, SEEDS)]
    fooled = [one for one in answers if own.score(*one) == 1.0 and one[1] != one[0].answer]
    assert fooled, "it fools nobody: the guard has no reason"
    assert {task.score(*one) for one in fooled} == {0.0}


@pytest.mark.parametrize("dataset", ["number_sorting", "puzzle24", "polynomial_multiplication"])
def test_the_reference_in_other_words_is_paid(dataset: str) -> None:
    task = load_environment(EnvironmentConfig(name=f"reasoning_gym/{dataset}"))
    for seed in SEEDS:
        problem = task.problem(seed)
        assert task.score(problem, f" {problem.answer} ".replace("'", '"')) == 1.0


def test_a_plan_that_carries_boxes_is_paid() -> None:
    task = load_environment(EnvironmentConfig(name="reasoning_gym/boxnet"))
    assert {task.score(problem, boxes_to_targets(problem)) for problem in map(task.problem, SEEDS)} == {1.0}


@pytest.mark.parametrize(("dataset", "move"), [("rush_hour", "A+"), ("rubiks_cube", "R")])
def test_moves_that_repeat_for_ever_never_reach_a_scorer(dataset: str, move: str) -> None:
    task = load_environment(EnvironmentConfig(name=f"reasoning_gym/{dataset}"))
    problem, start = task.problem(0), time.process_time()
    for often in ("9" * 12, "٩" * 12, "9" * 4000):
        assert not may_be_scored(dataset, move + often, problem.answer)
        assert task.score(problem, move + often) == 0.0
    task.score(problem, (f"{move}9 " * 999)[:1000])
    assert time.process_time() - start < 5.0


def test_a_cube_turned_back_is_paid() -> None:
    cube = load_environment(EnvironmentConfig(name="reasoning_gym/rubiks_cube"))
    problem = cube.problem(0)
    back = [move[:-1] if move.endswith("'") else f"{move}'" for move in problem.metadata["scramble_moves"].split()]
    assert cube.score(problem, " ".join(reversed(back))) == 1.0
