"""The adapter for reasoning_gym: determinism across processes, strictness, clear errors, hostile answers."""

import json
import os
import subprocess
import sys
import time

import pytest

from environments.catalogue import load_environment
from environments.reviewed import REBUILD, REFUSED, REUSE
from protocol.config import TaskConfig
from protocol.errors import ConfigError

SUMS = TaskConfig(
    name="reasoning_gym/chain_sum", params={"min_terms": 3, "max_terms": 4, "min_digits": 1, "max_digits": 1}
)
SEEDS = [0, 1, 2**32, 2**63 + 5, 2**64 - 1]
HOSTILE = [
    "", "\0", "nan", "inf", "1e999999999", "-1e999999999", "9" * 4096, "9" * 100_000, "[" * 4000, "((" * 2000,
    "__import__('os')._exit(9)", "10**10**10", "\ud800", "٣", " " * 4000, "null", "{}", "1/0", "x" * 4096,
]  # fmt: skip

PROBE = """
import json, random, sys
from protocol.config import TaskConfig
from environments.catalogue import load_environment
random.seed(int(sys.argv[1]))
out = {}
for name in sys.argv[3:]:
    task = load_environment(TaskConfig(name=f"reasoning_gym/{name}"))
    out[name] = [[p.question, p.answer] for p in (task.problem(int(s)) for s in sys.argv[2].split(","))]
print(json.dumps(out))
"""


def probe(hash_seed: str, order: list[int], names: list[str]) -> dict[str, dict[int, list[str]]]:
    """Problems by seed as another process makes them, in the given order of seeds."""
    env = dict(os.environ) | {"PYTHONHASHSEED": hash_seed}
    arguments = [hash_seed, ",".join(map(str, order)), *names]
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *arguments], env=env, capture_output=True, text=True, timeout=240, check=True
    )
    answer = json.loads(done.stdout.splitlines()[-1])
    return {name: dict(zip(order, made, strict=True)) for name, made in answer.items()}


def test_another_process_makes_the_same_problems_in_any_order() -> None:
    names = ["chain_sum", "basic_arithmetic", "gsm_symbolic", "acre", "letter_counting"]
    assert probe("1", SEEDS, names) == probe("2", SEEDS[::-1], names)


@pytest.mark.slow
def test_every_offered_dataset_is_deterministic() -> None:
    names = sorted(REUSE | REBUILD)
    seeds = [7, 2**64 - 3]
    assert probe("1", seeds, names) == probe("2", seeds[::-1], names)


def test_different_seeds_give_different_problems() -> None:
    task = load_environment(SUMS)
    assert len({task.problem(seed).question for seed in range(200)}) > 150


def test_sixty_four_problems_take_less_than_a_tenth_of_a_second() -> None:
    task = load_environment(SUMS)
    start = time.process_time()
    for seed in range(64):
        task.problem(seed)
    assert time.process_time() - start < 0.1


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_seeds_outside_64_bits_are_refused(seed: int) -> None:
    with pytest.raises(ValueError, match="64-bit"):
        load_environment(SUMS).problem(seed)


def test_the_default_is_right_or_nothing() -> None:
    task = load_environment(SUMS)
    problem = task.problem(3)
    assert task.score(problem, problem.answer) == 1.0
    assert task.score(problem, f"the answer is {problem.answer}") == 0.0
    assert task.score(problem, str(int(problem.answer) + 1)) == 0.0


def test_partial_credit_on_demand() -> None:
    config = TaskConfig(name=SUMS.name, params=SUMS.params | {"score_threshold": 0})
    task = load_environment(config)
    problem = task.problem(3)
    assert 0.0 < task.score(problem, f"the answer is {problem.answer}") < 1.0


@pytest.mark.parametrize("name", ["chain_sum", "letter_counting", "sudoku", "gsm_symbolic"])
def test_hostile_answers_score_nothing_quickly(name: str) -> None:
    task = load_environment(TaskConfig(name=f"reasoning_gym/{name}"))
    problem = task.problem(1)
    start = time.process_time()
    assert {task.score(problem, text) for text in HOSTILE} == {0.0}
    assert time.process_time() - start < 1.0


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"name": "chain_sum"}, "unknown environment"),
        ({"name": "reasoning_gym/nothing"}, "unknown dataset `nothing`"),
        ({"name": "reasoning_gym/countdown"}, "evaluates the answer as code"),
        ({"name": "reasoning_gym/chain_sum", "params": {"terms": 3}}, "no parameter `terms`"),
        ({"name": "reasoning_gym/chain_sum", "params": {"seed": 3}}, "no parameter `seed`"),
        ({"name": "reasoning_gym/chain_sum", "params": {"min_terms": 9, "max_terms": 2}}, "max_terms must be"),
        ({"name": "reasoning_gym/chain_sum", "params": {"min_terms": "x"}}, "refuses its parameters"),
        ({"name": "reasoning_gym/chain_sum", "params": {"score_threshold": 2}}, "score_threshold"),
        ({"name": "reasoning_gym/chain_sum", "params": {"score_threshold": True}}, "score_threshold"),
    ],
)
def test_wrong_configurations_name_what_to_mend(config: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load_environment(TaskConfig.model_validate(config))


def test_no_dataset_is_both_offered_and_refused() -> None:
    assert not (REUSE | REBUILD) & set(REFUSED)
    assert not REUSE & REBUILD
