"""Every loss against its paper's formula in slow float64 sums, its gradient against finite differences, its edges."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import torch
from hypothesis import assume, given

from protocol.training import CispoConfig, DppoConfig, GrpoConfig, GspoConfig
from tests.trainer.algorithms import formulas
from tests.trainer.algorithms.formulas import SIGNED, OneToken, Sequences, flat, sequences, token_batch, with_logp
from trainer.loss import Loss, cispo_loss, dppo_loss, grpo_loss, gspo_loss

GRPO = GrpoConfig(epsilon_low=0.2, epsilon_high=0.28, delta=4.0)
OPEN = GrpoConfig(delta=None)
GSPO = GspoConfig(epsilon_low=0.1, epsilon_high=0.2)
CISPO, DPPO, CAP = CispoConfig(ratio_max=3.0), DppoConfig(mask_low=0.15), 2.0
LOSSES: dict[str, Loss] = {
    "grpo": partial(grpo_loss, config=GRPO),
    "grpo, one-sided": partial(grpo_loss, config=OPEN),
    "gspo": partial(gspo_loss, config=GSPO),
    "cispo": partial(cispo_loss, config=CISPO),
    "dppo": partial(dppo_loss, config=DPPO, cap=CAP),
}
BY_TOKEN: dict[str, Callable[[OneToken], float]] = {
    "grpo": lambda token: formulas.grpo(token, 0.2, 0.28, 4.0),
    "grpo, one-sided": lambda token: formulas.grpo(token, 0.2, 0.2, None),
    "cispo": lambda token: formulas.cispo(token, 3.0),
    "dppo": lambda token: formulas.dppo(token, 0.15, 0.2, 1e-3, CAP),
}


@pytest.mark.parametrize("name", sorted(BY_TOKEN))
@given(made=sequences())
def test_a_token_loss_is_its_papers_formula(name: str, made: Sequences) -> None:
    loss = LOSSES[name](token_batch(made)).loss
    assert loss.tolist() == pytest.approx([BY_TOKEN[name](token) for token in flat(made)], rel=1e-6, abs=1e-6)


@given(made=sequences())
def test_gspo_is_one_clipped_ratio_for_every_token_of_a_sequence(made: Sequences) -> None:
    expected = [formulas.gspo(sequence, 0.1, 0.2) for sequence in made for _ in sequence]
    assert LOSSES["gspo"](token_batch(made)).loss.tolist() == pytest.approx(expected, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("name", sorted(LOSSES))
@given(made=sequences())
def test_float32_agrees_with_float64(name: str, made: Sequences) -> None:
    exact = LOSSES[name](token_batch(made)).loss.tolist()
    assert LOSSES[name](token_batch(made, torch.float32)).loss.tolist() == pytest.approx(exact, rel=1e-3, abs=1e-3)


def far_from_edges(made: Sequences) -> bool:
    """Whether a step of finite differences crosses no bound, where the loss has a kink or a jump."""
    for token in flat(made):
        ratio, behaviour = math.exp(token.logp - token.old), max(token.sampled, token.old - math.log(CAP))
        moved = math.exp(token.logp) - math.exp(behaviour)
        edges = [ratio - edge for edge in (0.8, 1.2, 1.28, 4.0)] + [moved - 0.2, moved + 0.15]
        if min(abs(edge) for edge in edges) < 1e-3:
            return False
    ratios = [formulas.sequence_ratio(sequence) for sequence in made]
    return all(abs(ratio - edge) > 1e-3 for ratio in ratios for edge in (0.9, 1.2))


@pytest.mark.parametrize("name", ["grpo", "grpo, one-sided", "gspo", "dppo"])
@given(made=sequences())
def test_the_gradient_is_that_of_finite_differences(name: str, made: Sequences) -> None:
    assume(far_from_edges(made))
    batch = token_batch(made)
    weights = torch.linspace(0.5, 1.5, len(batch.logp), dtype=torch.float64)

    def total(logp: torch.Tensor) -> torch.Tensor:
        return (weights * LOSSES[name](with_logp(batch, logp)).loss).sum()

    assert torch.autograd.gradcheck(total, (batch.logp,), eps=1e-7, atol=1e-4, rtol=1e-4)


@given(made=sequences())
def test_cispos_weight_is_a_constant_for_the_gradient(made: Sequences) -> None:
    batch = token_batch(made)
    weights = torch.exp(batch.logp - batch.old).clamp(max=3.0).detach()

    def total(logp: torch.Tensor) -> torch.Tensor:
        return (-weights * batch.advantage * logp).sum()

    assert torch.autograd.gradcheck(total, (batch.logp,))
    (ours,) = torch.autograd.grad(LOSSES["cispo"](batch).loss.sum(), batch.logp)
    (plain,) = torch.autograd.grad(total(batch.logp), batch.logp)
    assert torch.allclose(ours, plain, rtol=1e-9)


@pytest.mark.parametrize("name", ["grpo", "gspo", "dppo"])
@given(made=sequences(SIGNED))
def test_what_counts_as_clipped_has_no_policy_gradient_and_the_rest_has(name: str, made: Sequences) -> None:
    assume(far_from_edges(made))
    batch = token_batch(made)
    loss = LOSSES[name] if name != "dppo" else partial(dppo_loss, config=DppoConfig(squared_log_ratio=0), cap=CAP)
    one = loss(batch)
    (gradient,) = torch.autograd.grad(one.loss.sum(), batch.logp)
    if name != "dppo":
        assert not bool((one.clipped_low & one.clipped_high).any())
    assert torch.equal(gradient == 0, one.clipped_low | one.clipped_high)


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_at_ratio_one_every_loss_is_the_policy_gradient(name: str) -> None:
    made = [[OneToken(-1.0, -1.0, -1.0, -1.0, 0.7)] * 3, [OneToken(-0.3, -0.3, -0.3, -0.3, -1.1)] * 2]
    batch = token_batch(made)
    one = LOSSES[name](batch)
    (gradient,) = torch.autograd.grad(one.loss.sum(), batch.logp)
    assert torch.allclose(gradient, -batch.advantage)
    assert not bool((one.clipped_low | one.clipped_high).any())


@pytest.mark.parametrize("name", sorted(LOSSES))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_ratio_however_extreme_gives_a_loss_or_gradient_that_is_not_finite(name: str, dtype: torch.dtype) -> None:
    extremes = [(0.0, -300.0, -300.0), (-300.0, 0.0, 0.0), (0.0, 0.0, -math.inf), (-1.0, -1.0, math.inf)]
    made = [[OneToken(*logs, 0.0, advantage)] for logs in extremes for advantage in (-1.0, 0.0, 1.0)]
    batch = token_batch(made, dtype)
    loss = LOSSES[name](batch).loss
    (gradient,) = torch.autograd.grad(loss.sum(), batch.logp)
    assert bool(torch.isfinite(loss).all())
    assert bool(torch.isfinite(gradient).all())


def test_two_sided_clipping_bounds_what_one_sided_clipping_does_not() -> None:
    batch = token_batch([[OneToken(0.0, -9.0, -9.0, 0.0, -1.0)]])
    assert LOSSES["grpo"](batch).loss.item() == 4.0
    assert LOSSES["grpo, one-sided"](batch).loss.item() == pytest.approx(math.exp(9))


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_a_batch_without_tokens_has_no_loss(name: str) -> None:
    assert LOSSES[name](token_batch([])).loss.shape == (0,)


def test_dppo_masks_by_probability_and_not_by_ratio() -> None:
    rare, common = OneToken(math.log(1e-4), math.log(1e-6), math.log(1e-6), 0, 1.0), OneToken(-0.1, -0.5, -0.5, 0, 1.0)
    one = dppo_loss(token_batch([[rare], [common]]), DppoConfig(), 1e9)
    assert one.clipped_high.tolist() == [False, True]


def test_dppo_skips_a_token_whose_sampling_logprob_is_no_number() -> None:
    batch = token_batch([[OneToken(-1.0, -1.5, math.nan, 0.0, 1.0), OneToken(-1.0, -1.5, -1.5, 0.0, 1.0)]])
    one = LOSSES["dppo"](batch)
    (gradient,) = torch.autograd.grad(one.loss.sum(), batch.logp)
    assert (one.loss[0].item(), gradient[0].item()) == (0.0, 0.0)
    assert float(gradient[1]) < 0


def test_dppo_without_the_files_logprobs_compares_with_the_policy_before_the_step() -> None:
    batch = token_batch([[OneToken(-1.0, -1.5, -1.5, 0.0, 1.0)]])
    assert torch.equal(LOSSES["dppo"](replace(batch, sampled=None)).loss, LOSSES["dppo"](batch).loss)


def test_tensors_of_different_lengths_are_refused() -> None:
    batch = token_batch([[OneToken(-1.0, -1.0, -1.0, -1.0, 1.0)]])
    with pytest.raises(ValueError, match=r"old has shape \(2,\)"):
        replace(batch, old=torch.zeros(2))
