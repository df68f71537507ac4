"""GSPO (2507.18071): one clipped ratio for a whole sequence, because its reward is one for the whole sequence too."""

import torch

from protocol.training import GspoConfig
from trainer.algorithms.tokens import TokenBatch, TokenLoss, ratio, sequence_means


def gspo_loss(batch: TokenBatch, config: GspoConfig) -> TokenLoss:
    """−min(s·A, clip(s, 1−ε_low, 1+ε_high)·A), s = (π(y) / π_old(y))^(1/|y|), the same for every token of y.

    Averaged over each sequence's tokens it is the paper's objective.
    """
    low, high, advantage = 1 - config.epsilon_low, 1 + config.epsilon_high, batch.advantage
    s = ratio(sequence_means(batch.logp - batch.old, batch.sequence))
    loss = -torch.minimum(s * advantage, s.clamp(low, high) * advantage)
    return TokenLoss(loss, (advantage < 0) & (s < low), (advantage > 0) & (s > high))
