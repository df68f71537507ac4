"""Curricula: which difficulty a problem has, and what a configuration may not say."""

from random import Random
from typing import Any

import pytest
from pydantic import ValidationError

from protocol.config import PoolConfig
from protocol.curriculum import Curriculum, Difficulty, ProblemTries, SolveRate, total_rates

FILE = {"name": "genesys", "content": "0" * 64, "rows": 40}


@pytest.mark.parametrize(
    ("count", "solved", "found"),
    [
        (0, 0, Difficulty.FRESH),
        (7, 7, Difficulty.FRESH),
        (8, 0, Difficulty.HARD),
        (8, 1, Difficulty.FITTING),
        (8, 6, Difficulty.FITTING),
        (8, 7, Difficulty.EASY),
        (3000, 374, Difficulty.HARD),
        (3000, 375, Difficulty.FITTING),
        (3000, 2250, Difficulty.FITTING),
        (3000, 2251, Difficulty.EASY),
    ],
)
def test_thresholds_are_exact_and_belong_to_what_fits(count: int, solved: int, found: Difficulty) -> None:
    assert SolveRate(count, solved).difficulty(Curriculum(highest=750)) is found


def test_tries_are_added_in_any_order() -> None:
    tries = [
        ProblemTries(place, number, SolveRate(4, number % 5)) for place in (0, 1) for number in range(50) for _ in "ab"
    ]
    rates = total_rates(tries)
    Random(3).shuffle(tries)
    assert total_rates(tries) == rates
    assert rates[1, 7] == SolveRate(8, 4)
    assert len(rates) == 100


@pytest.mark.parametrize(
    ("environments", "more", "said"),
    [
        ([FILE | {"curriculum": {"lowest": 900}}], {}, "`lowest` is 900, above `highest`, 875"),
        ([FILE | {"curriculum": {"lowest": 0, "highest": 1000}}], {}, "leave `curriculum` out"),
        ([FILE | {"curriculum": {"lowest": 0.25}}], {}, "valid integer"),
        ([FILE | {"curriculum": {"easy": 3}}], {}, "Extra inputs are not permitted"),
        ([FILE | {"curriculum": {"most": 1000}}], {}, "less than or equal to 900"),
        ([FILE | {"curriculum": {"window": 0}}], {}, "greater than or equal to 1"),
        ([FILE | {"curriculum": {"solved": float("nan")}}], {}, "finite number"),
        ([{"name": "reasoning_gym/chain_sum", "curriculum": {}}], {}, "name a data file's `rows`, or `problems`"),
        ([FILE | {"curriculum": {}}], {"data": {"rollouts": 5}}, "a data pool draws from all problems"),
        ([FILE | {"curriculum": {}}, {"name": "lookup", "weight": 64}], {}, "`weight` is 1 of 65"),
        (
            [FILE | {"curriculum": {}, "rows": 1 << 22}, FILE | {"curriculum": {}, "label": "b"}],
            {},
            "4194344 problems; 4194304 fit",
        ),
        (
            [FILE],
            {"evaluation": {"sets": [{"name": "e", "environment": FILE | {"curriculum": {}}}]}},
            "leave its `curriculum` out",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(environments: list[dict[str, Any]], more: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        PoolConfig.model_validate({"name": "p", "model": {"source": "m"}, "environments": environments, **more})
