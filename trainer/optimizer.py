"""AdamW, its learning-rate schedule, and the clipping of gradients."""

import math
from typing import Any

import torch

from protocol.config import TrainConfig

FINAL_SHARE = 0.1


def learning_rate(config: TrainConfig, update: int) -> float:
    """Linear warm-up over `warmup_steps` updates, constant, then linear to a tenth over the last `decay_share` of the
    run, which ends at `steps` × `minibatches` updates; `update` counts from 0."""
    rising = min(1.0, (update + 1) / config.warmup_steps) if config.warmup_steps else 1.0
    total = config.steps * config.minibatches
    span = config.decay_share * total
    left = min(1.0, max(0.0, (total - update - 1) / span)) if span else 1.0
    return config.learning_rate * rising * (FINAL_SHARE + (1 - FINAL_SHARE) * left)


def build_optimizer(model: Any, config: TrainConfig) -> torch.optim.AdamW:
    """AdamW with weight decay on matrices only; norms and biases are not decayed."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": config.weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=config.learning_rate, betas=(config.beta1, config.beta2))


def apply_update(model: Any, optimizer: torch.optim.Optimizer, config: TrainConfig, update: int) -> float:
    """Clip the gradients to `grad_clip`, take one optimizer step, clear them. Returns the norm before clipping.

    A norm that is not finite leaves the weights as they are: one bad batch must not destroy a run.
    """
    norm = float(torch.nn.utils.clip_grad_norm_(model.parameters(), config.grad_clip))
    if math.isfinite(norm):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(config, update)
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return norm
