"""What a training step says about itself: sums over tokens on every rank, then one record."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from trainer.algorithms.kl import k3
from trainer.algorithms.selection import Selection
from trainer.algorithms.tokens import TokenBatch, TokenLoss
from trainer.metrics.mismatch import MismatchTotals, SourceMismatch
from trainer.ranks import Ranks
from trainer.rollouts import Group


@dataclass(frozen=True)
class StepMetrics:
    """One training step. Means are over output tokens, except the rewards' (over rollouts, dropped groups included).

    `clip_low`, `clip_high`: shares of tokens on which the trust region's bounds acted; `kl`: estimate against the
    policy before the step; `mismatch`: the trainer's policy before the step against the workers' (None where files
    do not tell), by source in `mismatches`; `trained_tokens`: of the samples with signal, prompts included; `flops`:
    operations that training them takes; `seconds`: wall time of the step.
    """

    step: int
    loss: float
    reward_mean: float
    task_reward_mean: float
    entropy: float
    grad_norm: float
    clip_low: float
    clip_high: float
    kl: float
    groups_used: int
    groups_dropped: int
    rollouts: int
    tokens: int
    output_length_mean: float
    learning_rate: float
    mismatch: float | None
    mismatches: tuple[SourceMismatch, ...]
    trained_tokens: int
    flops: float
    seconds: float


class StepTotals:
    """Adds up micro-batches without waiting for the device; gradient norms and learning rates of the updates."""

    def __init__(self, samples: int, device: torch.device) -> None:
        self._mismatch = MismatchTotals(samples, device)
        self._sums = torch.zeros(6, dtype=torch.float64, device=device)
        self.norms: list[float] = []
        self.learning_rate = 0.0

    @torch.no_grad()
    def add(self, places: Sequence[int], batch: TokenBatch, made: TokenLoss, loss: torch.Tensor) -> None:
        """A micro-batch of the samples at `places` with its share of the loss."""
        kl = k3(batch.logp, batch.old)
        parts = (loss, batch.entropy.sum(), made.clipped_low.sum(), made.clipped_high.sum(), kl.sum())
        self._sums += torch.stack([torch.full_like(loss, batch.logp.numel()), *parts]).double()
        if batch.sampled is not None:
            self._mismatch.add(places, batch.sequence, batch.old, batch.sampled)

    def updated(self, norm: float, learning_rate: float) -> None:
        self.norms.append(norm)
        self.learning_rate = learning_rate

    def metrics(
        self, step: int, groups: Sequence[Group], selection: Selection, ranks: Ranks, flops: float, seconds: float
    ) -> StepMetrics:
        """The record of the step, the same on every rank; each must call it."""
        mismatch, mismatches = self._mismatch.by_source(selection.samples, step - 1, ranks)
        tokens, loss, entropy, low, high, kl = ranks.sum(self._sums).tolist()
        rollouts = [rollout for group in groups for rollout in group]
        count, each = max(1, len(rollouts)), max(1.0, tokens)
        return StepMetrics(
            step=step,
            loss=loss / max(1, len(self.norms)),
            reward_mean=sum(one.reward for one in rollouts) / count,
            task_reward_mean=sum(one.task_reward for one in rollouts) / count,
            entropy=entropy / each,
            grad_norm=math.nan if any(map(math.isnan, self.norms)) else max(self.norms, default=0.0),
            clip_low=low / each,
            clip_high=high / each,
            kl=kl / each,
            groups_used=selection.used,
            groups_dropped=selection.dropped,
            rollouts=len(rollouts),
            tokens=int(tokens),
            output_length_mean=sum(len(one.output) for one in rollouts) / count,
            learning_rate=self.learning_rate,
            mismatch=mismatch,
            mismatches=mismatches,
            trained_tokens=sum(one.length for one in selection.samples),
            flops=flops,
            seconds=seconds,
        )
