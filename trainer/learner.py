"""GRPO on one device: from groups of rollouts to the next policy step, resumable to the bit."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from protocol.training import TrainConfig
from trainer.algorithms.advantages import ADVANTAGES
from trainer.algorithms.composition import make_loss
from trainer.algorithms.kl import k3
from trainer.algorithms.normalisers import MinibatchSize, make_normaliser
from trainer.algorithms.selection import select
from trainer.algorithms.tokens import TokenBatch, TokenLoss
from trainer.batch import MicroBatch, micro_batches
from trainer.model.policy import Policy
from trainer.model.sharding import Placement
from trainer.optimizer import apply_update, build_optimizer
from trainer.rollouts import Group, TrainRollout
from trainer.state.checkpoint import LearnerState, PendingCheckpoint, read_checkpoint, start_checkpoint

MICRO_BATCH_TOKENS = 8192


@dataclass(frozen=True)
class StepMetrics:
    """One training step. Means are over output tokens, except the rewards' (over rollouts, dropped groups included).

    `clip_low`, `clip_high`: shares of tokens on which the trust region's bounds acted; `kl`: estimate against the
    policy before the step; `seconds`: wall time of the step.
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
    seconds: float


class Learner:
    """Holds a policy and its optimizer. `step` is the number of training steps taken: the policy step it stands at."""

    def __init__(
        self,
        folder: Path,
        config: TrainConfig,
        temperature: float,
        dtype: str = "float32",
        placement: Placement | None = None,
        seed: int = 0,
    ) -> None:
        self.config = config
        self.temperature = temperature
        self.policy = Policy(folder, dtype, placement)
        self.optimizer = build_optimizer(self.policy.model, config)
        penalised = config.algorithm.kl.coefficient > 0
        self.reference = Policy(folder, dtype, placement, frozen=True) if penalised else None
        self.generator = torch.Generator().manual_seed(seed)
        self.loss = make_loss(config.algorithm)
        self.normaliser = make_normaliser(config.algorithm)
        self.step = 0
        self.updates = 0

    def train_step(self, groups: Sequence[Group]) -> StepMetrics:
        """One step on the rollouts of `groups`, which may come from several policy steps.

        ln p_old is recomputed with the trainer's own weights before the first update. Without any group that has
        signal the weights stay as they are, and the step still counts.
        """
        start = time.monotonic()
        selection = select(groups, ADVANTAGES[self.config.algorithm.advantage])
        totals = _Totals()
        old = self._old_logprobs(selection.samples)
        norms: list[float] = []
        rate = 0.0
        parts = self._minibatches(len(selection.samples))
        share = 1 / max(1, len(parts))
        lengths = [len(rollout.output) for group in groups for rollout in group]
        size = MinibatchSize(sum(lengths) * share, len(lengths) * share)
        for part in parts:
            norms.append(self._update(selection.samples, part, size, old, totals))
            rate = self.optimizer.param_groups[0]["lr"]
        self.step += 1
        rollouts = [rollout for group in groups for rollout in group]
        count = max(1, len(rollouts))
        tokens = max(1, totals.tokens)
        return StepMetrics(
            step=self.step,
            loss=totals.loss / max(1, len(norms)),
            reward_mean=sum(r.reward for r in rollouts) / count,
            task_reward_mean=sum(r.task_reward for r in rollouts) / count,
            entropy=totals.entropy / tokens,
            grad_norm=max(norms, default=0.0),
            clip_low=totals.clipped_low / tokens,
            clip_high=totals.clipped_high / tokens,
            kl=totals.kl / tokens,
            groups_used=selection.used,
            groups_dropped=selection.dropped,
            rollouts=len(rollouts),
            tokens=totals.tokens,
            output_length_mean=sum(len(r.output) for r in rollouts) / count,
            learning_rate=rate,
            seconds=time.monotonic() - start,
        )

    def start_checkpoint(self, folder: Path, extra: dict[str, Any] | None = None) -> PendingCheckpoint:
        """Begin to write everything that a bit-exact resume needs, plus `extra` (JSON), to appear at `folder`."""
        state = LearnerState(self.step, self.updates, bytes(self.generator.get_state().tolist()).hex(), extra or {})
        return start_checkpoint(folder, self.policy.model, [self.optimizer], state, self.policy.placement.ranks)

    def load_checkpoint(self, folder: Path) -> dict[str, Any]:
        """Restore what `start_checkpoint` wrote; returns its `extra`. Raises IntegrityError on a damaged checkpoint."""
        state = read_checkpoint(folder, self.policy.model, [self.optimizer], self.policy.placement.ranks)
        self.step, self.updates = state.step, state.updates
        self.generator.set_state(torch.tensor(list(bytes.fromhex(state.generator)), dtype=torch.uint8))
        return state.extra

    @torch.no_grad()
    def _old_logprobs(self, samples: Sequence[TrainRollout]) -> dict[int, Tensor]:
        out: dict[int, Tensor] = {}
        for batch in micro_batches(samples, MICRO_BATCH_TOKENS, self.policy.device):
            logp, _ = self.policy.logprobs(batch, self.temperature)
            sizes = [len(samples[place].output) for place in batch.index]
            out.update(zip(batch.index, torch.split(logp, sizes), strict=True))
        return out

    def _minibatches(self, count: int) -> list[list[int]]:
        """The samples' numbers, shuffled and cut into `config.minibatches` parts; empty parts are left out."""
        if count == 0:
            return []
        order = torch.randperm(count, generator=self.generator).tolist()
        size = -(-count // self.config.minibatches)
        return [order[start : start + size] for start in range(0, count, size)]

    def _update(
        self,
        samples: Sequence[TrainRollout],
        part: list[int],
        size: MinibatchSize,
        old: dict[int, Tensor],
        totals: "_Totals",
    ) -> float:
        chosen = [samples[place] for place in part]
        for micro_batch in micro_batches(chosen, MICRO_BATCH_TOKENS, self.policy.device):
            batch = self._token_batch(micro_batch, chosen, torch.cat([old[part[place]] for place in micro_batch.index]))
            made = self.loss(batch)
            loss = (self.normaliser(batch.sequence, size) * made.loss).sum()
            totals.loss += float(loss.detach())
            loss.backward()  # type: ignore[no-untyped-call]
            with torch.no_grad():
                totals.add(batch, made)
        norm = apply_update(self.policy.model, self.optimizer, self.config, self.updates)
        self.updates += 1
        return norm

    def _token_batch(self, batch: MicroBatch, chosen: list[TrainRollout], old: Tensor) -> TokenBatch:
        logp, entropy = self.policy.logprobs(batch, self.temperature)
        sampled = reference = None
        if all(chosen[place].logprobs for place in batch.index):
            sampled = torch.tensor([value for place in batch.index for value in chosen[place].logprobs]).to(old.device)
        if self.reference is not None:
            with torch.no_grad():
                reference, _ = self.reference.logprobs(batch, self.temperature)
        return TokenBatch(logp, old, sampled, batch.advantages, entropy, reference, batch.rows)


@dataclass
class _Totals:
    tokens: int = 0
    loss: float = 0.0
    entropy: float = 0.0
    clipped_low: float = 0.0
    clipped_high: float = 0.0
    kl: float = 0.0

    def add(self, batch: TokenBatch, made: TokenLoss) -> None:
        self.tokens += batch.logp.numel()
        self.entropy += float(batch.entropy.sum())
        self.clipped_low += float(made.clipped_low.sum())
        self.clipped_high += float(made.clipped_high.sum())
        self.kl += float(k3(batch.logp, batch.old).sum())
