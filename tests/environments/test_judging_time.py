"""What a pool's programs may take of a core, at worst, and whether judges have that long."""

from typing import Any

import pytest

from environments.judging_time import slowest_program, too_slow
from protocol.config import ModelConfig, PoolConfig, WorkConfig
from protocol.environments import EnvironmentConfig
from protocol.errors import ConfigError
from protocol.verdict import LANE


def program(label: str, **params: Any) -> EnvironmentConfig:
    return EnvironmentConfig(name="program", label=label, content="cd" * 32, params=params)


def pool(*environments: EnvironmentConfig) -> PoolConfig:
    """Files of 4 problems, 12 rows."""
    work = WorkConfig(problems_per_file=4, samples_per_problem=3)
    return PoolConfig(name="time", model=ModelConfig(source="m"), environments=environments, work=work)


def test_each_problem_is_made_and_each_turn_of_each_row_is_answered_or_scored() -> None:
    time = slowest_program(pool(program("one", seconds=2)))
    assert time is not None
    assert (time.calls, time.file) == (4 + 12, 32.0)
    time = slowest_program(pool(program("three", turns=3)))
    assert time is not None
    assert (time.calls, time.seconds) == (4 + 12 * 3, 0.5)


def test_the_slowest_of_several_counts() -> None:
    time = slowest_program(
        pool(program("quick", seconds=0.1), program("slow", seconds=0.2), program("usual", seconds=0.1))
    )
    assert time is not None
    assert time.environment == "slow"


def test_musters_own_scorers_have_no_such_limit() -> None:
    config = pool(EnvironmentConfig(name="reasoning_gym/chain_sum"), EnvironmentConfig(name="lookup"))
    assert slowest_program(config) is None
    assert too_slow(config, 1, 1) is None


def test_half_of_each_window_is_for_scoring() -> None:
    config = pool(program("own", seconds=1))
    lane, file = 2 * LANE * 16, 2 * 16
    assert too_slow(config, lane, file) is None
    for windows, name in (((lane - 1, file), "`commit_window`"), ((lane, file - 1), "`jury_commit_window`")):
        slow = too_slow(config, *windows)
        assert slow is not None
        assert name in slow.what
        assert name in slow.hint
        assert "\n" not in slow.what


def test_what_the_hint_says_is_taken() -> None:
    slow = too_slow(pool(program("own")), 100, 100)
    assert slow is not None
    seconds = float(slow.hint.removeprefix("set `params.seconds` to ").split()[0])
    assert too_slow(pool(program("own", seconds=seconds)), 100, 100) is None


def test_a_wrong_parameter_is_an_error() -> None:
    with pytest.raises(ConfigError, match="seconds"):
        too_slow(pool(program("own", seconds="long")), 100, 100)
