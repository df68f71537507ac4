"""From samples to tensors: right-padded micro-batches of similar lengths within a budget of tokens."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from trainer.rollouts import TrainRollout


@dataclass(frozen=True)
class MicroBatch:
    """B samples padded to length L, holding N output tokens in all.

    tokens: [B, L] int64. rows, columns: [N] int64, where the logits that predict output tokens stand (one before each
    token). targets: [N] int64, those tokens. advantages: [N] float32. index: the samples' places in the whole
    batch. Padding is on the right, so causal attention never sees it and no mask is needed.
    """

    tokens: Tensor
    rows: Tensor
    columns: Tensor
    targets: Tensor
    advantages: Tensor
    index: tuple[int, ...]


def micro_batches(samples: Sequence[TrainRollout], max_tokens: int, device: torch.device) -> list[MicroBatch]:
    """Split into micro-batches of at most `max_tokens` padded tokens (a longer single sequence gets its own)."""
    order = sorted(range(len(samples)), key=lambda place: (samples[place].length, place))
    batches: list[MicroBatch] = []
    chosen: list[int] = []
    for place in order:
        if chosen and samples[place].length * (len(chosen) + 1) > max_tokens:
            batches.append(_stack(samples, chosen, device))
            chosen = []
        chosen.append(place)
    if chosen:
        batches.append(_stack(samples, chosen, device))
    return batches


def _stack(samples: Sequence[TrainRollout], chosen: list[int], device: torch.device) -> MicroBatch:
    width = max(samples[place].length for place in chosen)
    tokens = torch.zeros((len(chosen), width), dtype=torch.int64)
    rows: list[int] = []
    columns: list[int] = []
    targets: list[int] = []
    advantages: list[float] = []
    for row, place in enumerate(chosen):
        item = samples[place]
        tokens[row, : item.length] = torch.tensor(item.prompt + item.output)
        first = len(item.prompt) - 1
        rows.extend([row] * len(item.output))
        columns.extend(range(first, first + len(item.output)))
        targets.extend(item.output)
        advantages.extend([item.advantage] * len(item.output))
    return MicroBatch(
        tokens.to(device),
        torch.tensor(rows).to(device),
        torch.tensor(columns).to(device),
        torch.tensor(targets).to(device),
        torch.tensor(advantages, dtype=torch.float32).to(device),
        tuple(chosen),
    )
