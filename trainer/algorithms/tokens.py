"""What losses work on: output tokens of whole sequences as flat tensors. No loss knows the model or the batching."""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

LOG_RATIO_MAX = 20.0
"""Ratios are cut at e^20: beyond any clip range, and far from where float32 overflows and gradients become NaN."""


@dataclass(frozen=True)
class TokenBatch:
    """N output tokens of S whole sequences; every tensor is [N], log-probabilities at the sampling temperature.

    logp: ln p under the policy in training, with gradient. old: under the same policy before the step's first update.
    sampled: under the policy that generated the token, None where nobody knows. entropy: nats of the policy's
    distribution there, with gradient. reference: ln p under the base model, None without a KL penalty.
    sequence: int64, which sequence a token belongs to, ascending from 0.
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
    """Per token [N]: the loss, and whether the trust region's lower or upper bound acted on it (bool)."""

    loss: Tensor
    clipped_low: Tensor
    clipped_high: Tensor


class Loss(Protocol):
    def __call__(self, batch: TokenBatch) -> TokenLoss: ...


def ratio(log_ratio: Tensor) -> Tensor:
    """exp, cut at e^LOG_RATIO_MAX, where its gradient is zero."""
    return torch.exp(log_ratio.clamp(max=LOG_RATIO_MAX))


def sequence_lengths(sequence: Tensor) -> Tensor:
    """Tokens of each sequence, [S] int64."""
    return torch.bincount(sequence)


def sequence_sums(values: Tensor, sequence: Tensor) -> Tensor:
    """Sum of each sequence's values, [S]; without atomic additions, so that a GPU repeats them to the bit."""
    if not values.numel():
        return values.new_zeros(0)
    return torch.segment_reduce(values, "sum", lengths=sequence_lengths(sequence))


def sequence_means(values: Tensor, sequence: Tensor) -> Tensor:
    """Mean of each sequence's values, handed back to its tokens: [N]."""
    return (sequence_sums(values, sequence) / sequence_lengths(sequence))[sequence]
