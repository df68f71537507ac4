"""Rewards are exact float32 values, whoever computes them."""

import struct

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from environments.rewards import float32, length_penalty, reward

LENGTHS = st.integers(0, 131072)


def through_a_file(value: float) -> float:
    return float(struct.unpack(">f", struct.pack(">f", value))[0])


@given(st.floats(0, 1), st.floats(0, 1), LENGTHS, LENGTHS)
def test_every_reward_survives_a_float32_column(score: float, alpha: float, target: int, length: int) -> None:
    task = float32(score)
    penalty = length_penalty(alpha, target, length)
    total = reward(task, penalty)
    assert [through_a_file(value) for value in (task, penalty, total)] == [task, penalty, total]


@given(st.floats(0, 1), st.floats(0, 1), LENGTHS, LENGTHS)
def test_a_vectorised_computation_agrees_bit_for_bit(score: float, alpha: float, target: int, length: int) -> None:
    penalties = np.float32(alpha) * np.abs(np.array([target - length])).astype(np.float32)
    expected = np.array([score], dtype=np.float32) - (penalties if target > 0 else np.float32(0))
    assert reward(float32(score), length_penalty(alpha, target, length)) == float(expected[0])


def test_no_target_no_penalty() -> None:
    assert length_penalty(0.02, 0, 500) == 0.0
    assert length_penalty(0.0, 100, 500) == 0.0
    assert length_penalty(0.5, 10, 14) == 2.0
