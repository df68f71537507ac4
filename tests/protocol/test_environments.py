"""Which environment and problem a seed stands for: shares by weight, rows, held-out rows, settings that contradict."""

from collections import Counter
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from protocol.config import PoolConfig
from protocol.encoding import tagged_hash
from protocol.environments import Drawn, EnvironmentConfig, chosen_environment, drawn
from protocol.identity import PoolId, WorkId
from protocol.problems import ProblemFilter, candidate_seed
from protocol.seeds import Work, assignments
from tests.validator.world import CONFIG

SUMS = EnvironmentConfig(name="reasoning_gym/chain_sum", weight=3)
WORDS = EnvironmentConfig(name="reasoning_gym/letter_counting", weight=1, targets=(), length_alpha=0.0)
ROWS = EnvironmentConfig(name="genesys", weight=4, rows=10, held_out=3)
SEEDS = st.integers(0, 2**64 - 1)


def reference(weights: list[int], seed: int) -> int:
    """The same choice by fractions of the hash's range of remainders."""
    share = Fraction(int.from_bytes(tagged_hash("muster/environment/1", seed)[:8], "big") % sum(weights), sum(weights))
    place, reached = 0, Fraction(weights[0], sum(weights))
    while share >= reached:
        place += 1
        reached += Fraction(weights[place], sum(weights))
    return place


@given(st.lists(st.integers(1, 1 << 16), min_size=2, max_size=64), SEEDS)
def test_the_choice_is_that_of_exact_fractions(weights: list[int], seed: int) -> None:
    assert chosen_environment(weights, seed) == reference(weights, seed)


def test_each_environment_gets_its_share() -> None:
    """χ² of 40,000 seeds against the weights, three degrees of freedom: above 21.1 once in 10,000 choices of seeds."""
    weights, count = [1, 2, 5, 92], 40_000
    found = Counter(chosen_environment(weights, seed * 0x9E3779B97F4A7C15 % 2**64) for seed in range(count))
    expected = [count * weight / sum(weights) for weight in weights]
    assert sum((found[place] - wanted) ** 2 / wanted for place, wanted in enumerate(expected)) < 21.1


@given(SEEDS)
def test_one_environment_takes_every_seed_as_it_is(seed: int) -> None:
    assert drawn((SUMS,), seed) == Drawn(0, seed)


def test_rows_for_work_and_for_evaluation_are_apart() -> None:
    work = {drawn((ROWS,), seed).seed for seed in range(1000)}
    assert (work, {drawn((ROWS,), seed, held_out=True).seed for seed in range(1000)}) == (set(range(7)), {7, 8, 9})


def test_a_filter_keeps_rows_of_a_file_and_hashes_of_a_generator() -> None:
    kept = ProblemFilter.of(7, (2, 5))
    filtered = ROWS.model_copy(update={"problems": kept})
    assert {drawn((filtered,), seed).seed for seed in range(100)} == {2, 5}
    generator = SUMS.model_copy(update={"problems": kept})
    assert {drawn((generator,), seed).seed for seed in range(100)} == {candidate_seed(2), candidate_seed(5)}
    assert drawn((generator,), 77, held_out=True) == Drawn(0, 77)


def test_work_takes_the_targets_of_the_environment_its_problem_is_of() -> None:
    config = CONFIG.model_copy(update={"environments": (SUMS, WORDS)})
    targets: dict[int, set[int]] = {0: set(), 1: set()}
    for counter in range(40):
        work = Work(WorkId(PoolId(1, "0x" + "22" * 20, 1), "0x" + "11" * 20, 3, counter), bytes(32), bytes(32))
        for slot in assignments(work, config):
            targets[drawn(config.environments, slot.problem_seed).environment].add(slot.target_length)
    assert targets == {0: {16, 24}, 1: {0}}


@pytest.mark.parametrize(
    ("environments", "said"),
    [
        ([], "at least 1 item"),
        ([{"name": "a"}, {"name": "a"}], "two environments have one name"),
        ([{"name": "a", "weight": 0}], "greater than or equal to 1"),
        ([{"name": "a", "weight": 2.5}], "valid integer"),
        ([{"name": "a", "rows": 5, "held_out": 5}], "nothing is left to work on"),
        ([{"name": "a", "held_out": 5}], "nothing is left to work on"),
        ([{"name": "a", "targets": [65]}], "beyond work.max_new_tokens"),
        ([{"name": "a", "advantage": "maxrl", "length_alpha": 0.1}], "makes rewards negative"),
        ([{"name": "a", "content": "ab"}], "match pattern"),
        ([{"name": "a\n"}], "match pattern"),
        (
            [{"name": "a", "rows": 9, "held_out": 2, "problems": {"candidates": 8, "kept": "gA=="}}],
            "`problems.candidates` are 8, of 7 rows",
        ),
    ],
)
def test_contradictions_are_refused(environments: list[dict[str, Any]], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        PoolConfig.model_validate({"name": "p", "model": {"source": "m"}, "environments": environments})


def test_labels_tell_two_environments_of_one_name_apart() -> None:
    both = (SUMS, SUMS.model_copy(update={"label": "long-sums"}))
    config = PoolConfig(name="p", model=CONFIG.model, environments=both)
    assert config.environment_names == "reasoning_gym/chain_sum, long-sums"
