"""From the pool's configuration to the one function that the learner calls: policy loss, staleness, KL and entropy."""

from functools import partial

from torch import Tensor

from protocol.training import AlgorithmConfig, CispoConfig, DppoConfig, GrpoConfig, GspoConfig
from trainer.algorithms.cispo import cispo_loss
from trainer.algorithms.dppo import dppo_loss
from trainer.algorithms.grpo import grpo_loss
from trainer.algorithms.gspo import gspo_loss
from trainer.algorithms.importance import importance_weights, sequence_weights
from trainer.algorithms.kl import kl_loss
from trainer.algorithms.tokens import Loss, TokenBatch, TokenLoss


def make_loss(config: AlgorithmConfig) -> Loss:
    """w·policy loss + kl.coefficient·KL − entropy_coefficient·entropy per token, w being the importance weights."""
    policy_loss, cap = _policy_loss(config), config.importance_cap

    def loss(batch: TokenBatch) -> TokenLoss:
        made = policy_loss(batch)
        total = made.loss
        if config.kl.coefficient:
            total = total + config.kl.coefficient * kl_loss(batch, _weights(batch, cap), config.kl)
        if config.entropy_coefficient:
            total = total - config.entropy_coefficient * batch.entropy
        return TokenLoss(total, made.clipped_low, made.clipped_high)

    return loss


def _policy_loss(config: AlgorithmConfig) -> Loss:
    chosen, cap = config.loss, config.importance_cap
    match chosen:
        case GrpoConfig():
            return partial(_weighted, partial(grpo_loss, config=chosen), cap, False)
        case GspoConfig():
            return partial(_weighted, partial(gspo_loss, config=chosen), cap, True)
        case CispoConfig():
            return partial(_weighted, partial(cispo_loss, config=chosen), cap, False)
        case DppoConfig():
            return partial(dppo_loss, config=chosen, cap=cap)


def _weighted(loss: Loss, cap: float, by_sequence: bool, batch: TokenBatch) -> TokenLoss:
    made = loss(batch)
    return TokenLoss(_weights(batch, cap, by_sequence) * made.loss, made.clipped_low, made.clipped_high)


def _weights(batch: TokenBatch, cap: float, by_sequence: bool = False) -> Tensor | float:
    if batch.sampled is None or not cap:
        return 1.0
    if by_sequence:
        return sequence_weights(batch.old, batch.sampled, batch.sequence, cap)
    return importance_weights(batch.old, batch.sampled, cap)
