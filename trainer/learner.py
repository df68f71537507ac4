"""GRPO on one device: from groups of rollouts to the next policy step, resumable to the bit."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from protocol.config import TrainConfig
from trainer.advantages import select
from trainer.batch import MicroBatch, micro_batches
from trainer.losses import clipped_tokens, importance_weights, kl_penalty, policy_loss
from trainer.model.policy import Policy
from trainer.model.sharding import Placement
from trainer.optimizer import apply_update, build_optimizer
from trainer.rollouts import Group, TrainRollout
from trainer.state.checkpoint import LearnerState, read_checkpoint, write_checkpoint

MICRO_BATCH_TOKENS = 8192


@dataclass(frozen=True)
class StepMetrics:
    """One training step. Means are over output tokens, except the rewards' (over rollouts, dropped groups included).

    `clip_ratio`: share of tokens whose gradient clipping removed; `kl`: estimate against the policy before the step;
    `seconds`: wall time of the step.
    """

    step: int
    loss: float
    reward_mean: float
    task_reward_mean: float
    entropy: float
    grad_norm: float
    clip_ratio: float
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
        self.reference = Policy(folder, dtype, placement, frozen=True) if config.kl_coefficient > 0 else None
        self.generator = torch.Generator().manual_seed(seed)
        self.step = 0
        self.updates = 0

    def train_step(self, groups: Sequence[Group]) -> StepMetrics:
        """One step on the rollouts of `groups`, which may come from several policy steps.

        ln p_old is recomputed with the trainer's own weights before the first update. Without any group that has
        signal the weights stay as they are, and the step still counts.
        """
        start = time.monotonic()
        selection = select(groups)
        totals = _Totals()
        old = self._old_logprobs(selection.samples)
        norms: list[float] = []
        rate = 0.0
        parts = self._minibatches(len(selection.samples))
        # A constant of the batch (Dr. GRPO): tokens of every group, so that a batch with little signal moves little.
        normaliser = sum(len(r.output) for group in groups for r in group) / max(1, len(parts))
        for part in parts:
            norms.append(self._update(selection.samples, part, normaliser, old, totals))
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
            clip_ratio=totals.clipped / tokens,
            kl=totals.kl / tokens,
            groups_used=selection.used,
            groups_dropped=selection.dropped,
            rollouts=len(rollouts),
            tokens=totals.tokens,
            output_length_mean=sum(len(r.output) for r in rollouts) / count,
            learning_rate=rate,
            seconds=time.monotonic() - start,
        )

    def save_checkpoint(self, folder: Path, extra: dict[str, Any] | None = None) -> None:
        """Everything that a bit-exact resume needs, plus `extra` (JSON), atomically at `folder`."""
        state = LearnerState(self.step, self.updates, bytes(self.generator.get_state().tolist()).hex(), extra or {})
        write_checkpoint(folder, self.policy.model, self.optimizer, state)

    def load_checkpoint(self, folder: Path) -> dict[str, Any]:
        """Restore what `save_checkpoint` wrote; returns its `extra`. Raises IntegrityError on a damaged checkpoint."""
        state = read_checkpoint(folder, self.policy.model, self.optimizer)
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
        normaliser: float,
        old: dict[int, Tensor],
        totals: "_Totals",
    ) -> float:
        chosen = [samples[place] for place in part]
        for batch in micro_batches(chosen, MICRO_BATCH_TOKENS, self.policy.device):
            logp_old = torch.cat([old[part[place]] for place in batch.index])
            weights = self._weights(batch, chosen, logp_old)
            loss = self._loss(batch, logp_old, weights, totals) / normaliser
            totals.loss += float(loss.detach())
            loss.backward()  # type: ignore[no-untyped-call]
        norm = apply_update(self.policy.model, self.optimizer, self.config, self.updates)
        self.updates += 1
        return norm

    def _weights(self, batch: MicroBatch, chosen: list[TrainRollout], logp_old: Tensor) -> Tensor | float:
        cap = self.config.importance_cap
        if cap == 0 or not all(chosen[place].logprobs for place in batch.index):
            return 1.0
        behaviour = [value for place in batch.index for value in chosen[place].logprobs]
        return importance_weights(logp_old, torch.tensor(behaviour).to(logp_old.device), cap)

    def _loss(self, batch: MicroBatch, logp_old: Tensor, weights: Tensor | float, totals: "_Totals") -> Tensor:
        config = self.config
        logp, entropy = self.policy.logprobs(batch, self.temperature)
        tokens = policy_loss(logp, logp_old, batch.advantages, config.clip_epsilon, config.clip_delta)
        loss = (tokens * weights).sum()
        if config.entropy_coefficient:
            loss = loss - config.entropy_coefficient * entropy.sum()
        if self.reference is not None:
            with torch.no_grad():
                reference, _ = self.reference.logprobs(batch, self.temperature)
            loss = loss + config.kl_coefficient * kl_penalty(logp, reference).sum()
        with torch.no_grad():
            clipped = clipped_tokens(logp, logp_old, batch.advantages, config.clip_epsilon, config.clip_delta)
            totals.add(logp.numel(), entropy.sum(), clipped.sum(), kl_penalty(logp, logp_old).sum())
        return loss


@dataclass
class _Totals:
    tokens: int = 0
    loss: float = 0.0
    entropy: float = 0.0
    clipped: float = 0.0
    kl: float = 0.0

    def add(self, tokens: int, entropy: Tensor, clipped: Tensor, kl: Tensor) -> None:
        self.tokens += tokens
        self.entropy += float(entropy)
        self.clipped += float(clipped)
        self.kl += float(kl)
