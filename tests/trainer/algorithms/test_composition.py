"""The learner's one loss: policy loss, importance weights, KL and entropy added up; and the normalisers."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given

from protocol.training import AlgorithmConfig, CispoConfig, DppoConfig, GrpoConfig, GspoConfig, KlConfig
from tests.trainer.algorithms import formulas
from tests.trainer.algorithms.formulas import OneToken, Sequences, flat, sequences, token_batch
from trainer.loss import MinibatchSize, make_loss, make_normaliser

FULL = AlgorithmConfig(
    loss=GrpoConfig(), importance_cap=1.5, entropy_coefficient=0.01, kl=KlConfig(coefficient=0.1, estimator="unbiased")
)


@given(made=sequences())
def test_the_whole_loss_is_the_sum_of_its_parts(made: Sequences) -> None:
    expected = []
    for token in flat(made):
        weight = formulas.importance(token, 1.5)
        divergence = weight * math.exp(token.logp - token.old) * formulas.k3(token)
        expected.append(weight * formulas.grpo(token, 0.2, 0.2, 4.0) + 0.1 * divergence - 0.01 * 0.5)
    assert make_loss(FULL)(token_batch(made)).loss.tolist() == pytest.approx(expected, rel=1e-6, abs=1e-6)


@given(made=sequences())
def test_gspo_weighs_a_stale_sequence_as_a_whole(made: Sequences) -> None:
    config = AlgorithmConfig(loss=GspoConfig(), normaliser="sequences", importance_cap=1.5)
    expected = []
    for one in made:
        weight = min(math.exp(sum(token.old - token.sampled for token in one) / len(one)), 1.5)
        expected += [weight * formulas.gspo(one, 3e-4, 4e-4)] * len(one)
    assert make_loss(config)(token_batch(made)).loss.tolist() == pytest.approx(expected, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("loss", [GrpoConfig(), CispoConfig()])
def test_without_a_cap_or_the_files_logprobs_every_rollout_counts_alike(loss: GrpoConfig | CispoConfig) -> None:
    batch = token_batch([[OneToken(-1, -1.1, -3, 0, 1), OneToken(-2, -2, -0.5, 0, 1)]])
    free = make_loss(AlgorithmConfig(loss=loss, importance_cap=0))(batch).loss
    unknown = make_loss(AlgorithmConfig(loss=loss))(replace(batch, sampled=None)).loss
    assert torch.equal(free, unknown)
    assert not torch.equal(free, make_loss(AlgorithmConfig(loss=loss))(batch).loss)


def test_dppo_takes_no_importance_weights_besides_its_own_ratio() -> None:
    made = [[OneToken(-1.0, -1.1, -1.3, 0, 1)]]
    composed = make_loss(AlgorithmConfig(loss=DppoConfig(), importance_cap=4.0))(token_batch(made)).loss
    assert float(composed.detach()) == pytest.approx(formulas.dppo(made[0][0], 0.2, 0.2, 1e-3, 4.0))


def test_the_entropy_bonus_raises_entropy() -> None:
    batch = token_batch([[OneToken(-1, -1, -1, 0, 1)]])
    make_loss(AlgorithmConfig(entropy_coefficient=0.3))(batch).loss.sum().backward()  # type: ignore[no-untyped-call]
    assert batch.entropy.grad is not None
    assert float(batch.entropy.grad) == pytest.approx(-0.3)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (AlgorithmConfig(), [1 / 40] * 5),
        (AlgorithmConfig(normaliser="sequences"), [1 / 8, 1 / 8, 1 / 12, 1 / 12, 1 / 12]),
        (AlgorithmConfig(normaliser="constant", constant_length=16), [1 / 64] * 5),
    ],
    ids=["tokens", "sequences", "constant"],
)
def test_a_normaliser_divides_by_what_its_name_says(config: AlgorithmConfig, expected: list[float]) -> None:
    weights = make_normaliser(config)(torch.tensor([0, 0, 1, 1, 1]), MinibatchSize(tokens=40, sequences=4))
    assert weights.tolist() == pytest.approx(expected)


@given(made=sequences())
def test_gspo_by_sequences_is_the_papers_mean_over_sequences(made: Sequences) -> None:
    config = AlgorithmConfig(loss=GspoConfig(), normaliser="sequences", importance_cap=0)
    batch, size = token_batch(made), MinibatchSize(tokens=1, sequences=len(made))
    total = (make_normaliser(config)(batch.sequence, size) * make_loss(config)(batch).loss).sum()
    expected = sum(formulas.gspo(one, 3e-4, 4e-4) for one in made) / len(made)
    assert float(total.detach()) == pytest.approx(expected, rel=1e-6, abs=1e-6)
