"""How far the trainer's log-probabilities are from those in the files: by node, engine build and staleness.

Between equal weights it is the engines' arithmetic; it grows with staleness, as the policy has moved on. A node that
stands out among those of one staleness deserves a look.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from trainer.algorithms.kl import k3
from trainer.ranks import Ranks
from trainer.rollouts import Source, TrainRollout

_LIMIT = 20.0  # of a log-ratio: beyond it e^x says no more


@dataclass(frozen=True)
class SourceMismatch:
    """Over `tokens` trained tokens of a node's: `kl`, the estimated KL divergence of the trainer's policy (before the
    step) from the node's, and `absolute`, the mean |difference| of log-probabilities."""

    node: str
    engine: str
    staleness: int
    tokens: int
    kl: float
    absolute: float


class MismatchTotals:
    """Sums for each sample of a step, on the device."""

    def __init__(self, samples: int, device: torch.device) -> None:
        self._sums = torch.zeros(samples, 3, dtype=torch.float64, device=device)

    def add(self, places: Sequence[int], sequence: Tensor, old: Tensor, sampled: Tensor) -> None:
        """A micro-batch: `places` of its sequences among the samples; per token its `sequence`, and ln p of the trainer
        before the step (`old`) and of the file (`sampled`), [N] each."""
        ratio = torch.nan_to_num(old - sampled, nan=_LIMIT).clamp(-_LIMIT, _LIMIT)
        parts = torch.stack([k3(torch.zeros_like(ratio), ratio), ratio.abs(), torch.ones_like(ratio)], dim=1)
        index = torch.tensor(places, dtype=torch.int64, device=sequence.device)[sequence]
        self._sums.index_add_(0, index, parts.double())

    def by_source(
        self, samples: Sequence[TrainRollout], step: int, ranks: Ranks
    ) -> tuple[float | None, tuple[SourceMismatch, ...]]:
        """The divergence over all tokens (None where no file tells log-probabilities) and by source, largest first, for
        a step that starts from policy `step`. Every rank must call it."""
        sums = ranks.sum(self._sums).cpu()
        by_source: dict[tuple[str, str, int], Tensor] = {}
        for sample, one in zip(samples, sums, strict=True):
            key = _key(sample.source, step)
            by_source[key] = by_source.get(key, torch.zeros_like(one)) + one
        found = [SourceMismatch(*key, int(n), kl / n, far / n) for key, one in by_source.items()
                 for kl, far, n in [one.tolist()] if n]  # fmt: skip
        kl, _, tokens = sums.sum(0).tolist()
        return (kl / tokens if tokens else None), tuple(sorted(found, key=lambda one: -one.kl))


def _key(source: Source | None, step: int) -> tuple[str, str, int]:
    return (source.node, source.engine, step - source.policy_step) if source else ("", "", 0)
