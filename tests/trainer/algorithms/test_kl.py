"""The KL penalty: its value, and by exact sums over a small vocabulary whose gradient each estimator has."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from torch import Tensor

from protocol.training import KlConfig
from tests.trainer.algorithms import formulas
from tests.trainer.algorithms.formulas import Sequences, flat, sequences, token_batch
from trainer.loss import TokenBatch, k3, kl_loss

UNBIASED, PLAIN = KlConfig(coefficient=1.0), KlConfig(coefficient=1.0, estimator="k3")


@given(made=sequences())
def test_k3_is_the_formula_and_never_negative(made: Sequences) -> None:
    batch = token_batch(made)
    assert batch.reference is not None
    values = k3(batch.logp, batch.reference).tolist()
    assert values == pytest.approx([formulas.k3(token) for token in flat(made)], rel=1e-6, abs=1e-9)
    assert min(values) >= 0


def test_k3_is_zero_at_the_reference() -> None:
    logs = torch.linspace(-9, 0, 50)
    assert torch.equal(k3(logs, logs), torch.zeros(50))


def distributions() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Logits in training and ln p under the old, the sampling and the base policy, over 6 tokens."""
    generator = torch.Generator().manual_seed(4)
    logits, old, sampled, base = (torch.randn(6, generator=generator, dtype=torch.float64) for _ in range(4))
    return logits.requires_grad_(True), old.log_softmax(0), sampled.log_softmax(0), base.log_softmax(0)


def every_token(logp: Tensor, old: Tensor, sampled: Tensor, base: Tensor) -> TokenBatch:
    return TokenBatch(logp, old, sampled, torch.zeros(6), torch.zeros(6), base, torch.arange(6))


@pytest.mark.parametrize("stale", [False, True])
def test_the_unbiased_estimator_has_value_and_gradient_of_the_divergence_from_the_base(stale: bool) -> None:
    logits, old, sampled, base = distributions()
    logp = logits.log_softmax(0)
    weights = (old - sampled).exp() if stale else 1.0
    drawn_from = sampled if stale else old
    estimate = (drawn_from.exp() * kl_loss(every_token(logp, old, sampled, base), weights, UNBIASED)).sum()
    exact = (logp.exp() * (logp - base)).sum()
    assert float(estimate.detach()) == pytest.approx(float(exact.detach()), rel=1e-9)
    (ours,) = torch.autograd.grad(estimate, logits, retain_graph=True)
    (theirs,) = torch.autograd.grad(exact, logits)
    assert torch.allclose(ours, theirs, rtol=1e-9, atol=1e-12)


def test_the_plain_estimator_has_the_gradient_of_the_other_divergence() -> None:
    logits, _, _, base = distributions()
    logp = logits.log_softmax(0)
    batch = every_token(logp, logp.detach(), logp.detach(), base)
    estimate = (logp.detach().exp() * kl_loss(batch, 1.0, PLAIN)).sum()
    assert float(estimate.detach()) == pytest.approx(float((logp.exp() * (logp - base)).sum().detach()))
    (ours,) = torch.autograd.grad(estimate, logits, retain_graph=True)
    (theirs,) = torch.autograd.grad((base.exp() * (base - logp)).sum(), logits)
    assert torch.allclose(ours, theirs, rtol=1e-9, atol=1e-12)


def test_at_the_start_of_a_step_the_unbiased_gradient_is_the_log_ratio() -> None:
    logp = torch.tensor([-1.0, -2.0], dtype=torch.float64, requires_grad=True)
    base, zero = torch.tensor([-3.0, -1.5], dtype=torch.float64), torch.zeros(2)
    batch = TokenBatch(logp, logp.detach(), None, zero, zero, base, torch.arange(2))
    (gradient,) = torch.autograd.grad(kl_loss(batch, 1.0, UNBIASED).sum(), logp)
    assert torch.allclose(gradient, logp.detach() - base)


def test_a_penalty_without_the_base_models_logprobs_is_refused() -> None:
    logits, old, sampled, base = distributions()
    batch = replace(every_token(logits.log_softmax(0), old, sampled, base), reference=None)
    with pytest.raises(ValueError, match="needs the base model's log-probs"):
        kl_loss(batch, 1.0, UNBIASED)
