"""The penalty on leaving the base model, and Schulman's k3 estimate of a divergence."""

from collections.abc import Callable

import torch
from torch import Tensor

from protocol.training import KlConfig
from trainer.algorithms.tokens import LOG_RATIO_MAX, TokenBatch, ratio


def k3(logp: Tensor, reference: Tensor) -> Tensor:
    """e^d − d − 1, d = ln π_ref − ln π: never negative, its mean under π is KL(π ‖ π_ref). d is cut at 20."""
    difference = (reference - logp).clamp(max=LOG_RATIO_MAX)
    return torch.expm1(difference) - difference


def kl_loss(batch: TokenBatch, weights: Tensor | float, config: KlConfig) -> Tensor:
    """The penalty per token, [N], before its coefficient; needs `batch.reference`.

    k3's mean is KL(π ‖ π_ref), yet differentiating it through ln π alone forgets that the samples depend on π as well:
    what results, (1 − π_ref/π)·∇ln π, is in the mean the gradient of KL(π_ref ‖ π). Weighted by r = π / π_old (and by
    π_old / π_sampled, in `weights`) the mean over the samples is KL(π ‖ π_ref) for any π, and so is its gradient:
    at r = 1 that is (ln π − ln π_ref)·∇ln π (DeepSeek-V3.2, 2512.02556).
    """
    if batch.reference is None:
        raise ValueError("a KL penalty needs the base model's log-probs")
    return _ESTIMATORS[config.estimator](batch, batch.reference, weights)


def _unbiased(batch: TokenBatch, reference: Tensor, weights: Tensor | float) -> Tensor:
    return weights * ratio(batch.logp - batch.old) * k3(batch.logp, reference)


def _plain(batch: TokenBatch, reference: Tensor, _: Tensor | float) -> Tensor:
    return k3(batch.logp, reference)


_ESTIMATORS: dict[str, Callable[[TokenBatch, Tensor, Tensor | float], Tensor]] = {"unbiased": _unbiased, "k3": _plain}
