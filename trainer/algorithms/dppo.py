"""DPPO with a total-variation mask (2602.04879) plus Kimi K2.5's squared log-ratio (2602.02276): prime-rl's default."""

import math

import torch

from protocol.training import DppoConfig
from trainer.algorithms.tokens import TokenBatch, TokenLoss, ratio


def dppo_loss(batch: TokenBatch, config: DppoConfig, cap: float) -> TokenLoss:
    """−m·A·r + c·(ln r)², r = π / π_sampled; m = 0 where A > 0 and π − π_sampled > mask_high, or A < 0 and
    π_sampled − π > mask_low.

    A probability that moves from 1e-6 to 1e-4 is no drift, though its ratio says so; from 0.9 to 0.6 it is, though its
    ratio does not. `cap` bounds π_old / π_sampled by raising the latter: a file's log-prob cannot blow up a step.
    A token whose π_sampled is not a number has no loss.
    """
    sampled = batch.old if batch.sampled is None else batch.sampled
    known = ~torch.isnan(sampled)
    sampled = torch.where(known, torch.maximum(sampled, batch.old - math.log(cap)).clamp(max=0.0), batch.old)
    log_ratio = batch.logp - sampled
    moved = batch.logp.exp() - sampled.exp()
    high = (batch.advantage > 0) & (moved > config.mask_high)
    low = (batch.advantage < 0) & (moved < -config.mask_low)
    policy = torch.where(high | low, 0.0, -batch.advantage * ratio(log_ratio))
    loss = policy + config.squared_log_ratio * log_ratio.square()
    return TokenLoss(torch.where(known, loss, 0.0), low & known, high & known)
