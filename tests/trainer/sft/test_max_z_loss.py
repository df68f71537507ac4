"""Max-z-loss in imitation: its gradient against plain autograd, and what it does."""

from pathlib import Path
from typing import Any

import pytest
import torch

from engines.loading import load_model
from protocol.training import AdamWConfig, OptimizerConfig, ScheduleConfig
from tests.trainer.helpers import small_model
from trainer.model.policy import Policy
from trainer.sft import Example, SftLearner, packed_row

RATES = OptimizerConfig(
    method=AdamWConfig(learning_rate=1e-2), schedule=ScheduleConfig(warmup_updates=0, decay_share=0)
)
TEXTS = (tuple(range(3, 14)), tuple(range(40, 47)))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("model") / "base")


def examples() -> list[Example]:
    return [Example(one, (False, *(True for _ in one[1:]))) for one in TEXTS]


@pytest.mark.parametrize("weight", [0.0, 2e-4, 0.5])
def test_the_gradient_is_that_of_the_formula(base: Path, weight: float) -> None:
    model: Any = load_model(base, "float32").requires_grad_(True)
    model.train()
    logits = torch.cat([model(input_ids=torch.tensor([one])).logits[0, :-1] for one in TEXTS])
    targets = torch.tensor([token for one in TEXTS for token in one[1:]])
    plain = torch.nn.functional.cross_entropy(logits, targets)
    minimised: torch.Tensor = plain + weight * logits.max(-1).values.square().mean()
    torch.autograd.backward([minimised])
    wanted = torch.nn.utils.clip_grad_norm_(model.parameters(), 1e9)
    made = SftLearner(Policy(base), RATES, 10, weight).update(examples())
    assert made.grad_norm == pytest.approx(float(wanted), rel=1e-5)
    assert made.loss == pytest.approx(float(plain.detach()), rel=1e-5), "reported without it"


def test_it_keeps_logits_small(base: Path) -> None:
    assert largest_after(base, 0.05) < 0.7 * largest_after(base, 0.0)


def largest_after(base: Path, weight: float) -> float:
    """The mean of the largest logits once the texts are learned."""
    learner = SftLearner(Policy(base), RATES, 1000, weight)
    for _ in range(40):
        learner.update(examples())
    with torch.no_grad():
        return float(
            learner.policy.logprobs_and_largest(packed_row(examples(), [0, 1], learner.policy.device))[1].mean()
        )
