"""What TRL has too gives TRL's numbers on the same inputs: losses with their gradients, KL, normalisers, advantages."""

import random
from collections import defaultdict
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from protocol.config import AlgorithmConfig
from tests.trainer.formulas import OneToken, Sequences, token_batch
from tests.trainer.helpers import small_model
from trainer.data.advantage import ADVANTAGES, group_advantages
from trainer.loss import TokenBatch, make_loss, token_weights

# In a process of its own: with TRL comes accelerate, whose presence changes what transformers does in other tests.
pytestmark = pytest.mark.skipif(find_spec("trl") is None, reason="make test-all runs this with TRL on the path")
SIZES: dict[str, Any] = {"per_device_train_batch_size": 8, "num_generations": 8}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("trl") / "model"


# TRL's own trainers, given log-probs and rewards instead of a model that computes and a sampler that generates


def trl_trainer(folder: Path, settings: dict[str, Any], rloo: bool = False) -> Any:
    """A GRPOTrainer or RLOOTrainer with `settings` whose batches are given by hand."""
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer

    if not (folder / "config.json").is_file():
        small_model(folder)
    common = {"output_dir": str(folder / "out"), "use_cpu": True, "bf16": False, "report_to": "none"}
    common |= {"save_strategy": "no"}
    config = (RLOOConfig if rloo else GRPOConfig)(**common, **settings)
    return (RLOOTrainer if rloo else GRPOTrainer)(
        model=AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32),
        args=config,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        train_dataset=Dataset.from_list([{"prompt": "?"}] * 8),
        processing_class=AutoTokenizer.from_pretrained(folder),
    )


def padded(values: Tensor, sequence: Tensor) -> Tensor:
    """Flat values [N] as rows [S, T], padded on the right with zeros."""
    return pad_sequence(list(torch.split(values, torch.bincount(sequence).tolist())), batch_first=True)


def trl_loss(trainer: Any, batch: TokenBatch, truncated_at: float) -> Tensor:
    """TRL's loss of the batch, differentiable in `batch.logp`; with importance weights unless `truncated_at` is 0."""
    logp, entropy = padded(batch.logp, batch.sequence), padded(batch.entropy, batch.sequence)
    mask = padded(torch.ones_like(batch.old, dtype=torch.int64), batch.sequence)
    first = torch.cat([torch.zeros(1, dtype=torch.int64), torch.bincount(batch.sequence).cumsum(0)[:-1]])
    inputs = {
        "prompt_ids": torch.ones(len(mask), 1, dtype=torch.int64),
        "prompt_mask": torch.ones(len(mask), 1, dtype=torch.int64),
        "completion_ids": mask,
        "completion_mask": mask,
        "advantages": batch.advantage[first],
        "old_per_token_logps": padded(batch.old, batch.sequence),
        "num_items_in_batch": mask.sum(),
    }
    if batch.reference is not None:
        inputs["ref_per_token_logps"] = padded(batch.reference, batch.sequence)
    trainer.use_vllm = truncated_at > 0
    if truncated_at and batch.sampled is not None:
        # What TRL computes where it generates, with vllm_importance_sampling_mode="token_truncate".
        ratio = torch.exp(batch.old - batch.sampled).clamp(max=truncated_at)
        inputs["importance_sampling_ratio"] = padded(ratio, batch.sequence)
    trainer._get_per_token_logps_and_entropies = lambda *_, **__: (logp, entropy, None)
    trainer.current_gradient_accumulation_steps = 1
    loss: Tensor = trainer._compute_loss(trainer.model, inputs)
    return loss


def trl_advantages(trainer: Any, rewards: Sequence[float]) -> list[float]:
    """TRL's advantages of one group's rewards."""
    count = len(rewards)
    tokens, texts = [[5]] * count, ["x"] * count
    rloo = type(trainer).__name__ == "RLOOTrainer"
    made: tuple[Any, ...] = (tokens, tokens, texts) if rloo else (tokens, tokens, None, texts, None, {}, None, None)
    trainer._generate = lambda _: made
    trainer._calculate_rewards = lambda *_: torch.tensor(rewards, dtype=torch.float32).unsqueeze(1)
    return [float(one) for one in trainer._generate_and_score_completions([{"prompt": "?"}] * count)["advantages"]]


# The comparison


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
    "truncated importance weights": (
        {"loss": {"name": "grpo", "delta": None}, "importance_cap": 1.4},
        {"loss_type": "dapo"},
    ),
}


@pytest.mark.parametrize("case", sorted(CASES))
def test_loss_and_gradient_are_trls(case: str, folder: Path) -> None:
    ours, theirs = CASES[case]
    config, trainer = AlgorithmConfig.model_validate({"importance_cap": 0} | ours), trl_trainer(folder, SIZES | theirs)
    for seed in range(20):
        batch = token_batch(drawn(seed))
        weights = token_weights(config, batch.sequence, len(batch.logp), sequences=8)
        loss = (weights * make_loss(config)(batch).loss).sum()
        peer = trl_loss(trainer, batch, config.importance_cap)
        assert loss.item() == pytest.approx(peer.item(), rel=1e-6, abs=1e-6)
        leaves = [batch.logp, batch.entropy] if config.entropy_coefficient else [batch.logp]
        gradients = zip(torch.autograd.grad(loss, leaves), torch.autograd.grad(peer, leaves), strict=True)
        assert all(torch.allclose(one, other, rtol=1e-6, atol=1e-7) for one, other in gradients)


def test_distillation_has_the_gradient_of_trls() -> None:
    """Its importance-weighted on-policy distillation, at weights of 1; the losses themselves have other values."""
    from trl.experimental.iw_opd import IWOPDTrainer

    torch.manual_seed(0)
    logits, teacher, tokens = torch.randn(3, 7, 11), torch.randn(3, 7, 11).log_softmax(-1), torch.randint(11, (3, 7))
    logits.requires_grad_(True)
    chosen = (values.gather(-1, tokens[..., None])[..., 0] for values in (logits.log_softmax(-1), teacher))
    logp, reference = (values.flatten() for values in chosen)
    none, sequence = torch.zeros(21), torch.arange(3).repeat_interleave(7)
    config = AlgorithmConfig.model_validate({"advantage": "none", "kl": {"coefficient": 1.0, "teacher": "t"}})
    batch = TokenBatch(logp, logp.detach(), None, none, none, reference, sequence)
    loss = (token_weights(config, sequence, 21, 3) * make_loss(config)(batch).loss).sum()
    settings = {"temperature": 1.0, "iw_opd_gamma": 0.0, "iw_opd_epsilon": 1e-8}
    metrics: Any = defaultdict(lambda: defaultdict(list))
    trainer: Any = SimpleNamespace(**settings, model=SimpleNamespace(training=True), _metrics=metrics)
    compute: Any = IWOPDTrainer._compute_iw_opd_loss
    peer = compute(trainer, logits, tokens, tokens, reference.detach().view(3, 7))
    ours, theirs = (torch.autograd.grad(value, logits, retain_graph=True)[0] for value in (loss, peer))
    assert torch.allclose(ours, theirs, rtol=1e-5, atol=1e-8)


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
