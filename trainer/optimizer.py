"""AdamW, its learning-rate schedule, and the clipping of gradients."""

import math
from typing import Any

import torch

from protocol.errors import ConfigError
from protocol.training import TrainConfig


def learning_rate(config: TrainConfig, update: int) -> float:
    """Of the schedule, for a run that ends at `steps` × `minibatches` updates; `update` counts from 0."""
    schedule, total = config.optimizer.schedule, config.steps * config.minibatches
    rising = min(1.0, (update + 1) / schedule.warmup_updates) if schedule.warmup_updates else 1.0
    span = schedule.decay_share * total
    left = min(1.0, max(0.0, (total - update - 1) / span)) if span else 1.0
    if schedule.decay == "cosine":
        left = (1 - math.cos(math.pi * left)) / 2
    share = schedule.final_share + (1 - schedule.final_share) * left
    return config.optimizer.method.learning_rate * rising * share


def build_optimizer(model: Any, config: TrainConfig) -> torch.optim.AdamW:
    """AdamW with weight decay on matrices only; norms and biases are not decayed."""
    method = config.optimizer.method
    if method.name != "adamw":
        raise ConfigError(f"optimizer {method.name} is not built yet", "choose adamw")
    parameters = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": method.weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=method.learning_rate, betas=(method.beta1, method.beta2), eps=method.epsilon)


def apply_update(
    model: Any, optimizer: torch.optim.Optimizer, config: TrainConfig, update: int, scale: float = 1.0
) -> float:
    """Clip the gradients to `grad_clip`, take one optimizer step at the schedule's rate times `scale`, clear them.
    Returns the norm before clipping.

    A norm that is not finite leaves the weights as they are: one bad batch must not destroy a run.
    """
    norm = float(torch.nn.utils.clip_grad_norm_(model.parameters(), config.optimizer.grad_clip))
    if math.isfinite(norm):
        for group in optimizer.param_groups:
            group["lr"] = scale * learning_rate(config, update)
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return norm
