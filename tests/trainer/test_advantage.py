"""Advantages against their papers' formulas, and which groups have none."""

import statistics

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from protocol.config import AdvantageName, AlgorithmConfig, KlConfig, OverlongConfig
from trainer.data.advantage import ADVANTAGES, group_advantages, overlong_penalty, select
from trainer.data.batch import Group, TrainRollout

REWARDS = st.lists(st.floats(0, 2, width=32), min_size=2, max_size=16)


def slow(name: AdvantageName, rewards: list[float]) -> list[float]:
    mean = statistics.fmean(rewards)
    if name == "mean":
        return [reward - mean for reward in rewards]
    if name == "normalised":
        return [(reward - mean) / (statistics.stdev(rewards) + 1e-4) for reward in rewards]
    if name == "none":
        return [0.0] * len(rewards)
    if name == "maxrl":
        return [(reward - mean) / mean for reward in rewards]
    others = [statistics.fmean(rewards[:place] + rewards[place + 1 :]) for place in range(len(rewards))]
    return [reward - other for reward, other in zip(rewards, others, strict=True)]


@pytest.mark.parametrize("name", sorted(ADVANTAGES))
@given(rewards=REWARDS)
def test_an_advantage_is_its_papers_formula(name: AdvantageName, rewards: list[float]) -> None:
    assume(max(rewards) - min(rewards) > 1e-6 and statistics.fmean(rewards) > 1e-3)
    made = group_advantages(np.array(rewards), ADVANTAGES[name])
    assert made.tolist() == pytest.approx(slow(name, rewards), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("name", sorted(ADVANTAGES))
@pytest.mark.parametrize("rewards", [[], [0.3], [0.1, 0.1, 0.1], [0.0, 0.0]])
def test_a_group_of_equal_rewards_has_no_advantage(name: AdvantageName, rewards: list[float]) -> None:
    assert group_advantages(np.array(rewards, dtype=np.float64), ADVANTAGES[name]).tolist() == [0.0] * len(rewards)


def test_maxrl_weights_a_rarely_solved_problem_up_and_a_mean_that_is_not_positive_not_at_all() -> None:
    rare, easy = np.array([1.0] + [0.0] * 7), np.array([1.0] * 7 + [0.0])
    assert group_advantages(rare, ADVANTAGES["maxrl"])[0] == 7.0
    assert group_advantages(easy, ADVANTAGES["maxrl"])[0] == pytest.approx(1 / 7)
    assert group_advantages(np.array([-1.0, 1.0]), ADVANTAGES["maxrl"]).tolist() == [0.0, 0.0]


def test_groups_without_signal_are_dropped() -> None:
    def group(*rewards: float) -> Group:
        return tuple(TrainRollout((1,), (2, 3), reward) for reward in rewards)

    groups = [group(1, 1, 1), group(0, 1, 0, 1), group(0.1, 0.1), group()]
    chosen = select(groups, AlgorithmConfig())
    assert (chosen.used, chosen.dropped) == (1, 3)
    assert [one.advantage for one in chosen.samples] == [-0.5, 0.5, -0.5, 0.5]
    taught = select(groups, AlgorithmConfig(kl=KlConfig(coefficient=1.0, teacher="teacher")))
    assert (taught.used, taught.dropped) == (3, 1)
    assert [one.advantage for one in taught.samples] == [0.0] * 3 + [-0.5, 0.5, -0.5, 0.5] + [0.0] * 2


def test_an_answer_loses_reward_only_over_the_last_tokens_of_the_longest() -> None:
    """The paper's soft punishment: 0 up to longest − buffer, then linear, 1 at the longest."""
    config = OverlongConfig(buffer=4, penalty=0.5)
    lost = [overlong_penalty(tokens, 16, config) for tokens in (1, 12, 13, 14, 15, 16)]
    assert lost == [0.0, 0.0, 0.125, 0.25, 0.375, 0.5]
    assert overlong_penalty(16, 16, None) == 0.0
