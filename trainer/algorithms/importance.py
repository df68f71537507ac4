"""Rollouts that an older policy made: what they are worth, and how much of a batch is left of them."""

import math

import torch
from torch import Tensor

from trainer.algorithms.tokens import LOG_RATIO_MAX, sequence_means, sequence_sums


def importance_weights(old: Tensor, sampled: Tensor, cap: float) -> Tensor:
    """min(π_old / π_sampled, cap) per token, [N]; 0 where the ratio is not a number.

    A token that the policy has meanwhile made unlikely weighs little; without this a delay of two steps at the demo's
    learning rate pushes such tokens down again and again, and the run oscillates. The cap bounds what a wrong log-prob
    in a file can do.
    """
    return torch.exp((old - sampled).nan_to_num(-torch.inf, torch.inf, -torch.inf).clamp(max=math.log(cap)))


def sequence_weights(old: Tensor, sampled: Tensor, sequence: Tensor, cap: float) -> Tensor:
    """The same for whole sequences, from the geometric mean of their tokens' ratios, handed back to the tokens [N]."""
    means = sequence_means(old - sampled, sequence)
    return torch.exp(means.nan_to_num(-torch.inf, torch.inf, -torch.inf).clamp(max=math.log(cap)))


def weight_sums(old: Tensor, sampled: Tensor, sequence: Tensor, cap: float) -> Tensor:
    """[Σw, Σw², S] float64 over S sequences, w = π_old(y) / π_sampled(y) of a whole sequence, from e^-20 to `cap`.

    Additive over micro-batches and ranks. A sequence whose ratio is not a number weighs nothing; without the cap, one
    that claims to have been very unlikely would outweigh all others and take the step its learning rate.
    """
    logs = sequence_sums((old - sampled).double(), sequence)
    weights = torch.exp(logs.clamp(-LOG_RATIO_MAX, math.log(cap))).nan_to_num(0.0)
    return torch.stack([weights.sum(), weights.square().sum(), weights.new_tensor(len(weights))])


def effective_share(sums: Tensor) -> float:
    """Effective sample size over the number of samples, (Σw)² / (n·Σw²), in [0, 1]; 1 for an empty batch."""
    total, squares, count = sums.tolist()
    if not count:
        return 1.0
    return total**2 / (count * squares) if squares else 0.0


def rate_scale(share: float, reference: float | None) -> float:
    """min(1, √(share / reference)) (VCPO, 2602.17616): Adam's steps do not shrink with a noisier gradient by
    themselves. 1 without a reference."""
    return 1.0 if reference is None else min(1.0, math.sqrt(share / reference))
