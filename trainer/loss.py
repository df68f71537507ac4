"""Policy losses, and what is added to and multiplied with them, over output tokens of whole sequences as flat tensors.
No function here knows the model or the batching. Formulas: docs/design/training.md."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from protocol.config import AlgorithmConfig, CispoConfig, DppoConfig, GrpoConfig, GspoConfig, KlConfig, MaskConfig

# Ratios are cut at e^20: beyond any clip range, and far from where float32 overflows and gradients become NaN.
LOG_RATIO_MAX = 20.0


@dataclass(frozen=True)
class TokenBatch:
    """N output tokens of S whole sequences; every tensor is [N], log-probabilities at the sampling temperature.

    logp: ln p under the policy in training, with gradient. old: before the step's first update. sampled: under the
    policy that generated the token, None where unknown. entropy: nats, with gradient. reference: ln p under the base
    model or teacher, None without a KL penalty. sequence: int64, which sequence a token belongs to, ascending from 0.
    """

    logp: Tensor
    old: Tensor
    sampled: Tensor | None
    advantage: Tensor
    entropy: Tensor
    reference: Tensor | None
    sequence: Tensor

    def __post_init__(self) -> None:
        for name in ("old", "sampled", "advantage", "entropy", "reference", "sequence"):
            value = getattr(self, name)
            if value is not None and value.shape != self.logp.shape:
                raise ValueError(f"{name} has shape {tuple(value.shape)}, logp {tuple(self.logp.shape)}")


@dataclass(frozen=True)
class TokenLoss:
    """Per token [N]: the loss, and whether the trust region's lower or upper bound acted on it (bool). `masked`: which
    have no loss at all (bool), None if the pool masks nothing."""

    loss: Tensor
    clipped_low: Tensor
    clipped_high: Tensor
    masked: Tensor | None = None


Loss = Callable[[TokenBatch], TokenLoss]


def make_loss(config: AlgorithmConfig) -> Loss:
    """Return the pool's loss: w·policy loss + kl.coefficient·KL − entropy_coefficient·entropy per token, w being the
    importance weights; 0 for what `masks` leave out."""
    policy_loss, cap = POLICY_LOSSES[config.loss.name], config.importance_cap

    def loss(batch: TokenBatch) -> TokenLoss:
        policy = policy_loss(batch, config.loss, cap)
        total = policy.loss
        if config.kl.coefficient:
            total = total + config.kl.coefficient * kl_loss(batch, importance_weights(batch, cap), config.kl)
        if config.entropy_coefficient:
            total = total - config.entropy_coefficient * batch.entropy
        masked = masked_tokens(batch, config.masks)
        return replace(policy, loss=total if masked is None else torch.where(masked, 0.0, total), masked=masked)

    return loss


def masked_tokens(batch: TokenBatch, masks: Sequence[MaskConfig]) -> Tensor | None:
    """Return which tokens are beyond the bounds of any mask, [N] bool, also where a file's log-probability is no
    number. None without masks or the files' log-probabilities."""
    if batch.sampled is None or not masks:
        return None
    log_ratio = (batch.old - batch.sampled).clamp(-LOG_RATIO_MAX, LOG_RATIO_MAX)
    masked = torch.zeros_like(log_ratio, dtype=torch.bool)
    for mask in masks:
        if mask.by == "rollout":
            value = sequence_means(log_ratio.abs().exp(), batch.sequence)
        else:
            value = torch.exp(log_ratio if mask.by == "token" else sequence_means(log_ratio, batch.sequence))
        masked |= ~((value >= mask.low) & (value <= mask.high))
    return masked


def importance_weights(batch: TokenBatch, cap: float, by_sequence: bool = False) -> Tensor | float:
    """Return min(π_old / π_sampled, cap) per token, [N], 0 where the ratio is not a number; `by_sequence` takes the
    geometric mean over a sequence's tokens. 1 without a cap or the files' log-probabilities.

    A token that the policy has meanwhile made unlikely weighs little; without this, rollouts that are two steps old
    push such tokens down again and again, and the run oscillates. The cap bounds what a file's wrong log-prob can do.
    """
    if batch.sampled is None or not cap:
        return 1.0
    log_ratio = batch.old - batch.sampled
    if by_sequence:
        log_ratio = sequence_means(log_ratio, batch.sequence)
    return torch.exp(log_ratio.nan_to_num(-torch.inf, torch.inf, -torch.inf).clamp(max=math.log(cap)))


def grpo_loss(batch: TokenBatch, config: GrpoConfig, cap: float = 0.0) -> TokenLoss:
    """Compute GRPO (2402.03300) with INTELLECT-2's second clip: −min(min(r, δ)·A, clip(r, 1−ε_low, 1+ε_high)·A), r = π
    / π_old. Where A < 0 the minimum takes the larger ratio, so without δ a token that became much likelier would have
    an unbounded gradient. Clipped tokens have none."""
    low, high, advantage = 1 - config.epsilon_low, 1 + config.epsilon_high, batch.advantage
    r = ratio(batch.logp - batch.old)
    free = r if config.delta is None else r.clamp(max=config.delta)
    loss = -torch.minimum(free * advantage, r.clamp(low, high) * advantage)
    above = (advantage > 0) & (r > high)
    if config.delta is not None:
        above = above | ((advantage < 0) & (r > config.delta))
    return TokenLoss(importance_weights(batch, cap) * loss, (advantage < 0) & (r < low), above)


def gspo_loss(batch: TokenBatch, config: GspoConfig, cap: float = 0.0) -> TokenLoss:
    """Compute GSPO (2507.18071): −min(s·A, clip(s, 1−ε_low, 1+ε_high)·A), s = (π(y) / π_old(y))^(1/|y|), the same for
    every token of the sequence y. Averaged over each sequence's tokens it is the paper's objective."""
    low, high, advantage = 1 - config.epsilon_low, 1 + config.epsilon_high, batch.advantage
    s = ratio(sequence_means(batch.logp - batch.old, batch.sequence))
    loss = -torch.minimum(s * advantage, s.clamp(low, high) * advantage)
    weights = importance_weights(batch, cap, by_sequence=True)
    return TokenLoss(weights * loss, (advantage < 0) & (s < low), (advantage > 0) & (s > high))


def cispo_loss(batch: TokenBatch, config: CispoConfig, cap: float = 0.0) -> TokenLoss:
    """Compute CISPO (MiniMax-M1, 2506.13585): −sg(min(r, ratio_max))·A·ln π, r = π / π_old. Clips the weight of a token
    and never its gradient, which GRPO takes from rare but decisive tokens first."""
    r = ratio((batch.logp - batch.old).detach())
    loss = -r.clamp(max=config.ratio_max) * batch.advantage * batch.logp
    above = r > config.ratio_max
    return TokenLoss(importance_weights(batch, cap) * loss, torch.zeros_like(above), above)


def dppo_loss(batch: TokenBatch, config: DppoConfig, cap: float) -> TokenLoss:
    """Compute DPPO with a total-variation mask (2602.04879) and Kimi K2.5's squared log-ratio (2602.02276), prime-rl's
    default: −m·A·r + c·(ln r)², r = π / π_sampled; m = 0 where A > 0 and π − π_sampled > mask_high, or A < 0 and
    π_sampled − π > mask_low.

    A probability that moves from 1e-6 to 1e-4 is no drift, though its ratio says so; from 0.9 to 0.6 it is, though its
    ratio does not. `cap` bounds π_old / π_sampled by raising the latter. A token whose π_sampled is no number has no
    loss."""
    sampled = batch.old if batch.sampled is None else batch.sampled
    has_sampled = ~torch.isnan(sampled)
    sampled = torch.where(has_sampled, torch.maximum(sampled, batch.old - math.log(cap)).clamp(max=0.0), batch.old)
    log_ratio = batch.logp - sampled
    moved = batch.logp.exp() - sampled.exp()
    high = (batch.advantage > 0) & (moved > config.mask_high)
    low = (batch.advantage < 0) & (moved < -config.mask_low)
    policy = torch.where(high | low, 0.0, -batch.advantage * ratio(log_ratio))
    loss = policy + config.squared_log_ratio * log_ratio.square()
    return TokenLoss(torch.where(has_sampled, loss, 0.0), low & has_sampled, high & has_sampled)


# By `train.algorithm.loss.name`. A policy loss is a function of the batch, its own settings and the importance cap.
POLICY_LOSSES: dict[str, Callable[[TokenBatch, Any, float], TokenLoss]] = {
    "grpo": grpo_loss,
    "gspo": gspo_loss,
    "cispo": cispo_loss,
    "dppo": dppo_loss,
}


def kl_loss(batch: TokenBatch, weights: Tensor | float, config: KlConfig) -> Tensor:
    """Return the penalty on leaving the reference per token, [N], before its coefficient; needs `batch.reference`.

    k3's mean is KL(π ‖ π_ref), yet its gradient through ln π alone, (1 − π_ref/π)·∇ln π, is in the mean that of
    KL(π_ref ‖ π): the samples depend on π as well. Weighted by r = π / π_old (and by π_old / π_sampled, in `weights`)
    mean and gradient are those of KL(π ‖ π_ref) for any π; at r = 1 the gradient is (ln π − ln π_ref)·∇ln π
    (DeepSeek-V3.2, 2512.02556)."""
    if batch.reference is None:
        raise ValueError("a KL penalty needs the reference's log-probs")
    penalty = k3(batch.logp, batch.reference)
    return penalty if config.estimator == "k3" else weights * ratio(batch.logp - batch.old) * penalty


def k3(logp: Tensor, reference: Tensor) -> Tensor:
    """Return Schulman's estimate e^d − d − 1 of KL(π ‖ π_ref), d = ln π_ref − ln π cut at 20; it is never negative."""
    difference = (reference - logp).clamp(max=LOG_RATIO_MAX)
    return torch.expm1(difference) - difference


def token_weights(config: AlgorithmConfig, sequence: Tensor, tokens: float, sequences: float) -> Tensor:
    """Return the weights [N] float32 of the tokens' losses, whose weighted sum over all ranks is a minibatch's loss.

    `tokens`, `sequences`: of the minibatch's outputs over all ranks. A share of the dropped groups' is included, so
    that a step with little signal moves little; so no integers. By "tokens" every token counts alike (INTELLECT-2,
    DAPO), by "sequences" every sequence (GRPO); by "constant" no sequence's length changes any weight (Dr. GRPO)."""
    if config.normaliser == "sequences":
        return 1 / (torch.bincount(sequence)[sequence].float() * max(1.0, sequences))
    total = tokens if config.normaliser == "tokens" else max(1.0, sequences) * (config.constant_length or 1)
    return torch.full(sequence.shape, 1 / max(1.0, total), device=sequence.device)


def ratio(log_ratio: Tensor) -> Tensor:
    """Return exp, cut at e^LOG_RATIO_MAX, where its gradient is zero."""
    return torch.exp(log_ratio.clamp(max=LOG_RATIO_MAX))


def sequence_means(values: Tensor, sequence: Tensor) -> Tensor:
    """Return the mean of each sequence's values, for each of its tokens [N]; without atomic additions, so that a GPU
    repeats them to the bit."""
    if not values.numel():
        return values
    lengths = torch.bincount(sequence)
    return (torch.segment_reduce(values, "sum", lengths=lengths) / lengths)[sequence]
