"""CISPO (MiniMax-M1, 2506.13585): clips the weight of a token and never its gradient."""

import torch

from protocol.training import CispoConfig
from trainer.algorithms.tokens import TokenBatch, TokenLoss, ratio


def cispo_loss(batch: TokenBatch, config: CispoConfig) -> TokenLoss:
    """−sg(min(r, ratio_max))·A·ln π, r = π / π_old. Rare tokens on which reasoning turns keep their gradient, which
    GRPO's clipping takes from them first."""
    r = ratio((batch.logp - batch.old).detach())
    loss = -r.clamp(max=config.ratio_max) * batch.advantage * batch.logp
    return TokenLoss(loss, torch.zeros_like(r, dtype=torch.bool), r > config.ratio_max)
