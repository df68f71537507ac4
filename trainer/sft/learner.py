"""Updates that imitate examples: mean negative log-likelihood of the learned tokens, over all ranks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from protocol.training import OptimizerConfig, TrainConfig
from trainer.batches.micro_batch import MicroBatch
from trainer.batches.packing import plan_rows
from trainer.model.policy import Policy
from trainer.optimizer import apply_update, build_optimizers
from trainer.sft.examples import Example
from trainer.sft.rows import packed_row
from trainer.state.checkpoint import LearnerState, PendingCheckpoint, read_checkpoint, start_checkpoint

RowLoss = Callable[[MicroBatch], torch.Tensor]
"""The summed loss of a row's targets, a scalar."""


@dataclass(frozen=True)
class ImitationMetrics:
    """One update: mean loss (nats) over `targets` learned tokens of `tokens`, the gradient's norm before clipping."""

    update: int
    loss: float
    grad_norm: float
    learning_rate: float
    targets: int
    tokens: int


class ImitationLearner:
    """A policy that learns by imitation; `updates` counts those taken of `total`. Every rank has one and is given the
    same examples. `max_z_loss`, times the mean square of the largest logit, is added to what is minimised (Baichuan 2,
    2309.10305; INTELLECT-1): logits that drift away are no use to a softmax, and end in overflow."""

    def __init__(self, policy: Policy, optimizer: OptimizerConfig, total: int, max_z_loss: float = 0.0) -> None:
        self.policy, self.placement, self._max_z_loss = policy, policy.placement, max_z_loss
        self._config = TrainConfig(steps=total, optimizer=optimizer)
        self._optimizers = build_optimizers(policy.model, self._config)
        self.updates = 0

    def update(self, examples: Sequence[Example]) -> ImitationMetrics:
        """Learn from a batch."""
        targets = sum(one.targets for one in examples)
        loss = self._sum(examples, lambda row: self._step(row, targets))
        norm, rate = apply_update(self.policy.model, self._optimizers, self._config, self.updates)
        self.updates += 1
        tokens = sum(len(one.tokens) for one in examples)
        return ImitationMetrics(self.updates, loss / max(1, targets), norm, rate, targets, tokens)

    @torch.no_grad()
    def loss(self, examples: Sequence[Example]) -> float:
        """Mean loss (nats) of the learned tokens, without learning."""
        summed = self._sum(examples, lambda row: -self.policy.logprobs_and_largest(row)[0].sum())
        return summed / max(1, sum(one.targets for one in examples))

    def start_checkpoint(self, folder: Path, extra: dict[str, Any]) -> PendingCheckpoint:
        """Begin to write what an exact resume needs, plus `extra` (JSON), to appear at `folder`."""
        state = LearnerState(self.updates, self.updates, "", extra)
        return start_checkpoint(folder, self.policy.model, self._optimizers, state, self.placement.ranks)

    def load_checkpoint(self, folder: Path) -> dict[str, Any]:
        """Restore what `start_checkpoint` wrote; returns its `extra`. Raises IntegrityError on a damaged checkpoint."""
        state = read_checkpoint(folder, self.policy.model, self._optimizers, self.placement.ranks)
        self.updates = state.updates
        return state.extra

    def _step(self, row: MicroBatch, targets: int) -> torch.Tensor:
        weight = self._max_z_loss
        logp, largest = self.policy.logprobs_and_largest(row, gradient=weight > 0)
        lost = -logp.sum()
        minimised = lost + weight * largest.square().sum() if weight else lost
        (minimised / max(1, targets)).backward()  # type: ignore[no-untyped-call]
        return lost.detach()

    def _sum(self, examples: Sequence[Example], of_row: RowLoss) -> float:
        """The sum over every rank's rows."""
        ranks, policy = self.placement.ranks, self.policy
        lengths = [len(one.tokens) for one in examples]
        plan = plan_rows(lengths, self.placement.memory.row_tokens, ranks.world, policy.work.of_sequence, policy.packs)
        total = torch.zeros((), dtype=torch.float64, device=policy.device)
        for places in plan[ranks.rank]:
            total += of_row(packed_row(examples, places, policy.device)).double()
        return float(ranks.sum(total))
