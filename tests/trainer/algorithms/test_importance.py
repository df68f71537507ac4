"""Weights of stale rollouts, bounded whatever a file says; effective sample size and the learning rate it allows."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainer.algorithms.formulas import OneToken, Sequences, flat, importance, sequences, token_batch
from trainer.loss import effective_share, importance_weights, rate_scale, sequence_weights, weight_sums

NO_CAP = math.exp(20)


@given(made=sequences(), cap=st.floats(1, 10))
def test_importance_weights_are_the_truncated_ratio(made: Sequences, cap: float) -> None:
    batch = token_batch(made)
    assert batch.sampled is not None
    weights = importance_weights(batch.old, batch.sampled, cap)
    assert weights.tolist() == pytest.approx([importance(token, cap) for token in flat(made)], rel=1e-9)


def test_importance_weights_are_capped_whatever_the_file_says() -> None:
    old = torch.tensor([-1.0, -5.0, -1.0, -1.0, -1.0, -1.0, -1.0])
    file = torch.tensor([-1.0, -1.0, -3e38, 3e38, math.nan, math.inf, -math.inf])
    expected = [1.0, math.exp(-4), 2.0, 0.0, 0.0, 0.0, 2.0]
    assert importance_weights(old, file, 2.0).tolist() == pytest.approx(expected)


@given(made=sequences(), cap=st.floats(1, 10))
def test_sequence_weights_are_the_truncated_geometric_mean(made: Sequences, cap: float) -> None:
    batch = token_batch(made)
    assert batch.sampled is not None
    expected = [
        min(math.exp(sum(token.old - token.sampled for token in one) / len(one)), cap) for one in made for _ in one
    ]
    assert sequence_weights(batch.old, batch.sampled, batch.sequence, cap).tolist() == pytest.approx(expected, rel=1e-9)


def test_a_sequence_with_a_token_that_is_no_number_weighs_nothing() -> None:
    batch = token_batch([[OneToken(-1, -1, math.nan, 0, 1), OneToken(-1, -1, -1, 0, 1)], [OneToken(-1, -1, -1, 0, 1)]])
    assert batch.sampled is not None
    assert sequence_weights(batch.old, batch.sampled, batch.sequence, 2.0).tolist() == [0.0, 0.0, 1.0]
    assert weight_sums(batch.old, batch.sampled, batch.sequence, NO_CAP).tolist() == [1.0, 1.0, 2.0]


@given(made=sequences())
def test_the_effective_share_is_that_of_the_sequences_weights(made: Sequences) -> None:
    batch = token_batch(made)
    assert batch.sampled is not None
    logs = [sum(token.old - token.sampled for token in one) for one in made]
    weights = [math.exp(max(-20.0, min(20.0, value))) for value in logs]
    expected = sum(weights) ** 2 / (len(weights) * sum(weight**2 for weight in weights))
    assert effective_share(weight_sums(batch.old, batch.sampled, batch.sequence, NO_CAP)) == pytest.approx(
        expected, rel=1e-6
    )


def test_weight_sums_add_up_over_micro_batches() -> None:
    parts = [[[OneToken(0, -1, -2, 0, 1)]], [[OneToken(0, -3, -2.5, 0, 1)], [OneToken(0, -1, -1, 0, 1)]]]
    sums = []
    for made in (*parts, parts[0] + parts[1]):
        batch = token_batch(made)
        assert batch.sampled is not None
        sums.append(weight_sums(batch.old, batch.sampled, batch.sequence, NO_CAP))
    assert torch.allclose(sums[0] + sums[1], sums[2])


def test_fresh_rollouts_keep_the_whole_learning_rate_and_one_dominant_one_takes_it() -> None:
    assert rate_scale(1.0, 1.0) == 1.0
    assert rate_scale(0.25, 1.0) == 0.5
    assert rate_scale(0.25, 0.25) == 1.0
    assert rate_scale(0.0, 0.5) == 0.0
    assert effective_share(torch.zeros(3, dtype=torch.float64)) == 1.0
    assert effective_share(torch.tensor([0.0, 0.0, 4.0])) == 0.0


def test_one_row_of_a_strangers_file_does_not_take_the_learning_rate_from_all_others() -> None:
    """Its log-probs may be any finite number: a row that is not among the audited ones is not looked at."""
    honest = [[OneToken(-1, -1, -1, 0, 1)] for _ in range(511)]
    for claimed in (-3e38, 3e38):
        batch = token_batch([*honest, [OneToken(-1, -1, claimed, 0, 1)]])
        assert batch.sampled is not None
        assert effective_share(weight_sums(batch.old, batch.sampled, batch.sequence, 2.0)) > 0.99
