"""Every loss against its paper's formula in slow float64 sums, its gradient against finite differences, its edges."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import assume, given
from torch import Tensor

from protocol.config import AlgorithmConfig, CispoConfig, DppoConfig, GrpoConfig, GspoConfig, KlConfig, MaskConfig
from tests.trainer import formulas
from tests.trainer.formulas import SIGNED, OneToken, Sequences, flat, sequences, token_batch
from trainer.loss import (
    Loss,
    TokenBatch,
    cispo_loss,
    dppo_loss,
    grpo_loss,
    gspo_loss,
    importance_weights,
    k3,
    kl_loss,
    make_loss,
    masked_tokens,
    token_weights,
)

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
FORMULAS: dict[str, Callable[[OneToken, list[OneToken]], float]] = {
    "grpo": lambda token, _: formulas.grpo(token, 0.2, 0.28, 4.0),
    "grpo, one-sided": lambda token, _: formulas.grpo(token, 0.2, 0.2, None),
    "gspo": lambda _, sequence: formulas.gspo(sequence, 0.1, 0.2),
    "cispo": lambda token, _: formulas.cispo(token, 3.0),
    "dppo": lambda token, _: formulas.dppo(token, 0.15, 0.2, 1e-3, CAP),
}


@pytest.mark.parametrize("name", sorted(LOSSES))
@given(made=sequences())
def test_a_token_loss_is_its_papers_formula(name: str, made: Sequences) -> None:
    expected = [FORMULAS[name](token, sequence) for sequence in made for token in sequence]
    assert LOSSES[name](token_batch(made)).loss.tolist() == pytest.approx(expected, rel=1e-6, abs=1e-6)


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
        return (weights * LOSSES[name](replace(batch, logp=logp)).loss).sum()

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
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_ratio_however_extreme_and_no_empty_batch_gives_a_loss_that_is_not_finite(
    name: str, dtype: torch.dtype
) -> None:
    extremes = [(0.0, -300.0, -300.0), (-300.0, 0.0, 0.0), (0.0, 0.0, -math.inf), (-1.0, -1.0, math.inf)]
    made = [[OneToken(*logs, 0.0, advantage)] for logs in extremes for advantage in (-1.0, 0.0, 1.0)]
    batch = token_batch(made, dtype)
    loss = LOSSES[name](batch).loss
    (gradient,) = torch.autograd.grad(loss.sum(), batch.logp)
    assert bool(torch.isfinite(loss).all())
    assert bool(torch.isfinite(gradient).all())
    assert LOSSES[name](token_batch([], dtype)).loss.shape == (0,)


def test_dppo_skips_a_token_whose_sampling_logprob_is_no_number() -> None:
    batch = token_batch([[OneToken(-1.0, -1.5, math.nan, 0.0, 1.0), OneToken(-1.0, -1.5, -1.5, 0.0, 1.0)]])
    one = LOSSES["dppo"](batch)
    (gradient,) = torch.autograd.grad(one.loss.sum(), batch.logp)
    assert (one.loss[0].item(), gradient[0].item()) == (0.0, 0.0)
    assert float(gradient[1]) < 0
    # Without the files' log-probabilities it compares with the policy before the step.
    batch = token_batch([[OneToken(-1.0, -1.5, -1.5, 0.0, 1.0)]])
    assert torch.equal(LOSSES["dppo"](replace(batch, sampled=None)).loss, LOSSES["dppo"](batch).loss)


def test_tensors_of_different_lengths_are_refused() -> None:
    batch = token_batch([[OneToken(-1.0, -1.0, -1.0, -1.0, 1.0)]])
    with pytest.raises(ValueError, match=r"old has shape \(2,\)"):
        replace(batch, old=torch.zeros(2))


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


MASKS = {
    "icepop": (MaskConfig(by="token", low=0.5, high=5.0),),
    "seq-mask-tis": (MaskConfig(by="sequence", low=0.8, high=1.3),),
    "rollouts": (MaskConfig(by="rollout", high=3.0),),
    "two": (MaskConfig(by="token", low=0.2, high=9.0), MaskConfig(by="rollout", high=5.0)),
}


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("loss", [GrpoConfig(), CispoConfig(), DppoConfig()])
@given(made=sequences(SIGNED))
def test_a_mask_leaves_out_loss_and_gradient_of_what_its_formula_names_and_nothing_else(
    name: str, loss: Any, made: Sequences
) -> None:
    """Importance weights go on to correct what is kept."""
    masks, batch = MASKS[name], token_batch(made)
    bounds = [(mask.by, mask.low, mask.high) for mask in masks]
    gone = [
        any(formulas.masked(*bound, token, sequence) for bound in bounds) for sequence in made for token in sequence
    ]
    plain = AlgorithmConfig(loss=loss, kl=KlConfig(coefficient=0.1), entropy_coefficient=0.01)
    full = make_loss(plain)(batch)
    kept = make_loss(plain.model_copy(update={"masks": masks}))(batch)
    assert kept.masked is not None
    assert kept.masked.tolist() == gone
    assert torch.equal(kept.loss, torch.where(torch.tensor(gone), 0.0, full.loss))
    (gradient,) = torch.autograd.grad(kept.loss.sum(), batch.logp)
    (whole,) = torch.autograd.grad(full.loss.sum(), batch.logp)
    assert torch.equal(gradient, torch.where(torch.tensor(gone), 0.0, whole))


def test_no_claim_of_a_file_passes_a_rollouts_mask_that_is_no_number_or_far_off() -> None:
    mask, fine = MASKS["rollouts"], OneToken(-1, -1, -1.1, 0, 1)
    for claim in (math.nan, math.inf, -math.inf, -3e38, 3e38, -8.0):
        lying = [fine, OneToken(-1, -1, claim, 0, 1)]
        for dtype in (torch.float32, torch.float64):
            found = masked_tokens(token_batch([[fine, fine], lying], dtype), mask)
            assert found is not None
            assert found.tolist() == [False, False, True, True]
    unknown = replace(token_batch([[fine]]), sampled=None)
    assert masked_tokens(unknown, mask) is None


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
    weights = token_weights(config, torch.tensor([0, 0, 1, 1, 1]), tokens=40, sequences=4)
    assert weights.tolist() == pytest.approx(expected)


def weighed(made: Sequences, cap: float, by_sequence: bool = False) -> list[float]:
    weights = importance_weights(token_batch(made), cap, by_sequence)
    assert isinstance(weights, Tensor)
    return [float(weight) for weight in weights]


def test_importance_weights_are_capped_whatever_the_file_says() -> None:
    claims = ((-1, -1), (-5, -1), (-1, -3e38), (-1, 3e38), (-1, math.nan), (-1, math.inf), (-1, -math.inf))
    expected = [1.0, math.exp(-4), 2.0, 0.0, 0.0, 0.0, 2.0]
    assert weighed([[OneToken(0, old, sampled, 0, 1) for old, sampled in claims]], 2.0) == pytest.approx(expected)
    no_number, number = OneToken(-1, -1, math.nan, 0, 1), OneToken(-1, -1, -1, 0, 1)
    assert weighed([[no_number, number], [number]], 2.0, by_sequence=True) == [0.0, 0.0, 1.0]


UNBIASED, PLAIN = KlConfig(coefficient=1.0), KlConfig(coefficient=1.0, estimator="k3")


@given(made=sequences())
def test_k3_is_the_formula_never_negative_and_zero_at_the_reference(made: Sequences) -> None:
    batch = token_batch(made)
    assert batch.reference is not None
    values = k3(batch.logp, batch.reference).tolist()
    assert values == pytest.approx([formulas.k3(token) for token in flat(made)], rel=1e-6, abs=1e-9)
    assert min(values) >= 0
    assert torch.equal(k3(batch.reference, batch.reference), torch.zeros_like(batch.reference))


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


def test_a_penalty_without_the_base_models_logprobs_is_refused() -> None:
    logits, old, sampled, base = distributions()
    batch = replace(every_token(logits.log_softmax(0), old, sampled, base), reference=None)
    with pytest.raises(ValueError, match="needs the reference's log-probs"):
        kl_loss(batch, 1.0, UNBIASED)
