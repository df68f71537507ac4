"""GRPO's token loss (2402.03300), with INTELLECT-2's second clip where the advantage is negative."""

import torch

from protocol.training import GrpoConfig
from trainer.algorithms.tokens import TokenBatch, TokenLoss, ratio


def grpo_loss(batch: TokenBatch, config: GrpoConfig) -> TokenLoss:
    """−min(min(r, δ)·A, clip(r, 1−ε_low, 1+ε_high)·A), r = π / π_old; without δ the first r is free.

    Where A < 0 the minimum takes the larger ratio, so a token that became much likelier would have an unbounded
    gradient: δ bounds it. Clipped tokens have none.
    """
    low, high, advantage = 1 - config.epsilon_low, 1 + config.epsilon_high, batch.advantage
    r = ratio(batch.logp - batch.old)
    free = r if config.delta is None else r.clamp(max=config.delta)
    loss = -torch.minimum(free * advantage, r.clamp(low, high) * advantage)
    above = (advantage > 0) & (r > high)
    if config.delta is not None:
        above = above | ((advantage < 0) & (r > config.delta))
    return TokenLoss(loss, (advantage < 0) & (r < low), above)
