"""What TRL has too gives TRL's numbers on the same inputs: losses with their gradients, KL, normalisers, advantages."""

import random
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from protocol.config import AlgorithmConfig
from tests.trainer.formulas import OneToken, Sequences, token_batch
from tests.trainer.trl_peer import trl_advantages, trl_loss, trl_trainer
from trainer.data.advantage import ADVANTAGES, group_advantages
from trainer.loss import make_loss, token_weights

# In a process of its own: with TRL comes accelerate, whose presence changes what transformers does in other tests.
pytestmark = pytest.mark.skipif(find_spec("trl") is None, reason="make test-all runs this with TRL on the path")
SIZES: dict[str, Any] = {"per_device_train_batch_size": 8, "num_generations": 8}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("trl") / "model"


def drawn(seed: int) -> Sequences:
    """Eight sequences of 1 to 12 tokens, some of whose ratios lie beyond every bound."""
    dice = random.Random(seed)

    def token(advantage: float) -> OneToken:
        old = -dice.random() * 4
        logp, sampled, reference = (min(0.0, old + dice.gauss(0, 0.6)) for _ in range(3))
        return OneToken(logp, old, sampled, reference, advantage)

    return [
        [token(advantage) for _ in range(dice.randint(1, 12))] for advantage in (dice.gauss(0, 1) for _ in range(8))
    ]


CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "grpo by sequences": (
        {"loss": {"name": "grpo", "delta": None}, "normaliser": "sequences"},
        {"loss_type": "grpo", "epsilon": 0.2},
    ),
    "two-sided grpo by tokens": (
        {"loss": {"name": "grpo", "delta": 1.5, "epsilon_high": 0.28}},
        {"loss_type": "dapo", "epsilon": 0.2, "epsilon_high": 0.28, "delta": 1.5},
    ),
    "dr_grpo": (
        {"loss": {"name": "grpo"}, "normaliser": "constant", "constant_length": 16},
        {"loss_type": "dr_grpo", "delta": 4.0, "max_completion_length": 16},
    ),
    "gspo": (
        {"loss": {"name": "gspo", "epsilon_low": 0.03, "epsilon_high": 0.04}, "normaliser": "sequences"},
        {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 0.03, "epsilon_high": 0.04},
    ),
    "cispo": ({"loss": {"name": "cispo", "ratio_max": 1.7}}, {"loss_type": "cispo", "epsilon_high": 1.7}),
    "k3": (
        {"loss": {"name": "grpo", "delta": None}, "kl": {"coefficient": 0.3, "estimator": "k3"}},
        {"loss_type": "dapo", "beta": 0.3, "use_bias_correction_kl": False},
    ),
    "unbiased kl": (
        {"loss": {"name": "grpo", "delta": None}, "kl": {"coefficient": 0.3}},
        {"loss_type": "dapo", "beta": 0.3, "use_bias_correction_kl": True},
    ),
    "entropy": (
        {"loss": {"name": "grpo", "delta": None}, "entropy_coefficient": 0.1},
        {"loss_type": "dapo", "entropy_coef": 0.1},
    ),
}


@pytest.mark.parametrize("case", sorted(CASES))
def test_loss_and_gradient_are_trls(case: str, folder: Path) -> None:
    ours, theirs = CASES[case]
    compare(AlgorithmConfig.model_validate({**ours, "importance_cap": 0}), trl_trainer(folder, SIZES | theirs), None)


def test_truncated_importance_weights_are_trls(folder: Path) -> None:
    config = AlgorithmConfig.model_validate({"loss": {"name": "grpo", "delta": None}, "importance_cap": 1.4})
    compare(config, trl_trainer(folder, SIZES | {"loss_type": "dapo"}), truncated_at=1.4)


def compare(config: AlgorithmConfig, trainer: Any, truncated_at: float | None) -> None:
    for seed in range(20):
        batch = token_batch(drawn(seed))
        weights = token_weights(config, batch.sequence, len(batch.logp), sequences=8)
        loss = (weights * make_loss(config)(batch).loss).sum()
        peer = trl_loss(trainer, batch, truncated_at)
        assert loss.item() == pytest.approx(peer.item(), rel=1e-6, abs=1e-6)
        leaves = [batch.logp, batch.entropy] if config.entropy_coefficient else [batch.logp]
        gradients = zip(torch.autograd.grad(loss, leaves), torch.autograd.grad(peer, leaves), strict=True)
        assert all(torch.allclose(one, other, rtol=1e-6, atol=1e-7) for one, other in gradients)


@pytest.mark.parametrize(
    ("name", "rloo", "settings"),
    [
        ("mean", False, {"scale_rewards": "none"}),
        ("normalised", False, {"scale_rewards": "group"}),
        ("leave_one_out", True, {}),
    ],
)
def test_advantages_are_trls(name: Any, rloo: bool, settings: dict[str, Any], folder: Path) -> None:
    trainer = trl_trainer(folder, SIZES | settings, rloo)
    dice = random.Random(3)
    for rewards in ([dice.random() for _ in range(8)], [1.0] + [0.0] * 7, [0.5] * 8):
        made = group_advantages(np.array(rewards), ADVANTAGES[name])
        assert trl_advantages(trainer, rewards) == pytest.approx(made.tolist(), rel=1e-5, abs=1e-6)
