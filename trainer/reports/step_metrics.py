"""What a training step reports about itself: sums over tokens on every rank, then one record. The mismatch compares the
trainer's log-probabilities with the files': a node that stands out among those of one staleness deserves a look."""

import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from chain.indexer.records import Submission
from trainer.data.advantage import Selection
from trainer.data.batch import Group, TrainRollout
from trainer.distributed import Ranks
from trainer.loss import LOG_RATIO_MAX, TokenBatch, TokenLoss, k3
from trainer.model.sharding import Placement


@dataclass(frozen=True)
class SourceMismatch:
    """Over `tokens` trained tokens of a node's: `kl`, the estimated KL divergence of the trainer's policy (before the
    step) from the node's. `masked` of them had no loss."""

    node: str
    engine: str
    staleness: int
    tokens: int
    kl: float
    masked: int


class MismatchTotals:
    """Sums for each sample of a step, on the device."""

    def __init__(self, samples: int, device: torch.device) -> None:
        self._sums = torch.zeros(samples, 3, dtype=torch.float64, device=device)

    def add(
        self, samples: Sequence[int], sequence: Tensor, old: Tensor, sampled: Tensor, masked: Tensor | None = None
    ) -> None:
        """Add a micro-batch: indices of its sequences among the `samples`; per token its `sequence`, ln p of the
        trainer before the step (`old`) and of the file (`sampled`), and whether it has no loss, [N] each."""
        ratio = torch.nan_to_num(old - sampled, nan=LOG_RATIO_MAX).clamp(-LOG_RATIO_MAX, LOG_RATIO_MAX)
        dropped = torch.zeros_like(ratio) if masked is None else masked.to(ratio.dtype)
        parts = torch.stack([k3(torch.zeros_like(ratio), ratio), torch.ones_like(ratio), dropped], dim=1)
        index = torch.tensor(samples, dtype=torch.int64, device=sequence.device)[sequence]
        self._sums.index_add_(0, index, parts.double())

    def by_source(
        self, samples: Sequence[TrainRollout], step: int, ranks: Ranks
    ) -> tuple[float | None, tuple[SourceMismatch, ...]]:
        """Return the divergence over all tokens (None where no file tells log-probabilities) and by source, largest
        first, for a step that starts from policy `step`. Every rank must call it."""
        sums = ranks.sum(self._sums).cpu()
        by_source: dict[tuple[str, str, int], Tensor] = {}
        for sample, own in zip(samples, sums, strict=True):
            source = sample.source
            key = (source.node, source.engine, step - source.policy_step) if source else ("", "", 0)
            by_source[key] = by_source.get(key, torch.zeros_like(own)) + own
        mismatches = []
        for key, total in by_source.items():
            kl, tokens, masked = total.tolist()
            if tokens:
                mismatches.append(SourceMismatch(*key, int(tokens), kl / tokens, int(masked)))
        kl, tokens, _ = sums.sum(0).tolist()
        return (kl / tokens if tokens else None), tuple(sorted(mismatches, key=lambda source: -source.kl))


@dataclass(frozen=True)
class StepMetrics:
    """One training step. Means are over output tokens, except the rewards' (over rollouts, dropped groups included).

    `clip_low`, `clip_high`: shares of tokens on which the trust region's bounds acted; `kl`: against the policy before
    the step; `mismatch`: that policy against the workers' (None where files do not tell), by source in `mismatches`;
    `masked`: share of tokens that disagreed too much to have a loss; `trained_tokens`: of the samples with signal,
    prompts included; `flops`: operations that training them takes."""

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
    masked: float
    trained_tokens: int
    flops: float
    seconds: float


def rollout_figures(groups: Sequence[Group], selection: Selection) -> dict[str, Any]:
    """Return the fields of StepMetrics that follow from a step's rollouts alone."""
    rollouts = [rollout for group in groups for rollout in group]
    count = max(1, len(rollouts))
    return {
        "reward_mean": sum(rollout.reward for rollout in rollouts) / count,
        "task_reward_mean": sum(rollout.task_reward for rollout in rollouts) / count,
        "output_length_mean": sum(len(rollout.output) for rollout in rollouts) / count,
        "groups_used": selection.used,
        "groups_dropped": selection.dropped,
        "rollouts": len(rollouts),
        "trained_tokens": sum(sample.length for sample in selection.samples),
    }


class StepTotals:
    """Adds up micro-batches without waiting for the device; gradient norms and learning rates of the updates."""

    def __init__(self, samples: int, device: torch.device) -> None:
        self._mismatch = MismatchTotals(samples, device)
        self._sums = torch.zeros(6, dtype=torch.float64, device=device)
        self.norms: list[float] = []
        self.learning_rate = 0.0

    @torch.no_grad()
    def add(self, samples: Sequence[int], batch: TokenBatch, token_loss: TokenLoss, loss: torch.Tensor) -> None:
        """Add a micro-batch of the `samples` with these indices, and its share of the loss."""
        kl = k3(batch.logp, batch.old)
        parts = (loss, batch.entropy.sum(), token_loss.clipped_low.sum(), token_loss.clipped_high.sum(), kl.sum())
        self._sums += torch.stack([torch.full_like(loss, batch.logp.numel()), *parts]).double()
        if batch.sampled is not None:
            self._mismatch.add(samples, batch.sequence, batch.old, batch.sampled, token_loss.masked)

    def updated(self, norm: float, learning_rate: float) -> None:
        self.norms.append(norm)
        self.learning_rate = learning_rate

    def metrics(
        self, step: int, groups: Sequence[Group], selection: Selection, ranks: Ranks, flops: float, seconds: float
    ) -> StepMetrics:
        """Return the record of the step, the same on every rank; each must call it."""
        mismatch, mismatches = self._mismatch.by_source(selection.samples, step - 1, ranks)
        tokens, loss, entropy, low, high, kl = ranks.sum(self._sums).tolist()
        each = max(1.0, tokens)
        return StepMetrics(
            step=step,
            loss=loss / max(1, len(self.norms)),
            entropy=entropy / each,
            grad_norm=math.nan if any(map(math.isnan, self.norms)) else max(self.norms, default=0.0),
            clip_low=low / each,
            clip_high=high / each,
            kl=kl / each,
            tokens=int(tokens),
            learning_rate=self.learning_rate,
            mismatch=mismatch,
            mismatches=mismatches,
            masked=sum(source.masked for source in mismatches) / each,
            flops=flops,
            seconds=seconds,
            **rollout_figures(groups, selection),
        )


def step_record(
    metrics: StepMetrics, files: Sequence[Submission], groups: Sequence[Group], waited: float, peak: float | None
) -> dict[str, Any]:
    """Return the line of `metrics.jsonl` for a step that was trained on `files`, for which the trainer waited `waited`
    seconds: besides its metrics mean task reward by environment, mean distance from target lengths (tokens; None where
    there are none), files by staleness (policy steps between a file's weights and those it is trained into), tokens
    (prompts included) per second, and the share of `peak` operations a second that were used."""
    rollouts = [rollout for group in groups for rollout in group]
    by_environment: dict[str, list[float]] = {}
    for rollout in rollouts:
        by_environment.setdefault(rollout.settings.environment, []).append(rollout.task_reward)
    errors = [abs(rollout.target - len(rollout.output)) for rollout in rollouts if rollout.target]
    ages, seconds = [metrics.step - 1 - sub.step for sub in files], metrics.seconds
    return {
        **asdict(metrics),
        **({} if rollouts else dict.fromkeys(("reward_mean", "task_reward_mean", "output_length_mean"))),
        "dropped_share": metrics.groups_dropped / max(1, len(groups)),
        "rewards_by_environment": {name: fmean(rewards) for name, rewards in sorted(by_environment.items())},
        "length_error": fmean(errors) if errors else None,
        "staleness": {str(age): count for age, count in sorted(Counter(ages).items())},
        "staleness_mean": fmean(ages) if ages else None,
        "tokens_per_second": metrics.trained_tokens / seconds if seconds > 0 else None,
        "mfu": metrics.flops / seconds / peak if peak and seconds > 0 else None,
        "timings": {"wait": round(waited, 3), "train": round(seconds, 3)},
        "time": round(time.time(), 3),
        "consumed": [sub.sequence for sub in files],
    }


# Dense bfloat16 with fp32 accumulation, by the makers' data sheets; the first entry whose words are all in the device's
# name counts.
_BF16_TERAFLOPS = {
    "B200": 2250.0, "H200": 989.4, "H100 PCIe": 756.0, "H100 NVL": 835.0, "H100": 989.4, "A100": 312.0, "L40S": 362.0,
    "A10G": 70.0, "A10": 125.0, "RTX 5090": 209.5, "RTX 4090": 165.2,
}  # fmt: skip


def data_sheet_flops(device: torch.device) -> float | None:
    """Return the bfloat16 operations per second of a GPU by its data sheet; None for any other device."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
    known = (flops for words, flops in _BF16_TERAFLOPS.items() if all(word in name for word in words.split()))
    return next((flops * 1e12 for flops in known), None)


def peak_flops(placement: Placement) -> float | None:
    """Return the operations per second of all ranks together by the data sheet; None for devices that it lacks."""
    each = data_sheet_flops(torch.device(placement.device))
    return each * placement.ranks.world if each else None
