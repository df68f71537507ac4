"""From samples to tensors: right-padded micro-batches of similar lengths within a budget of tokens."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

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
    parts: list[list[int]] = [[]]
    for place in order:
        if parts[-1] and samples[place].length * (len(parts[-1]) + 1) > max_tokens:
            parts.append([])
        parts[-1].append(place)
    return [_stack(samples, part, device) for part in parts if part]


def _stack(samples: Sequence[TrainRollout], chosen: list[int], device: torch.device) -> MicroBatch:
    items = [samples[place] for place in chosen]
    sizes = torch.tensor([len(item.output) for item in items])
    return MicroBatch(
        tokens=pad_sequence([torch.tensor(item.prompt + item.output) for item in items], batch_first=True).to(device),
        rows=torch.arange(len(items)).repeat_interleave(sizes).to(device),
        columns=torch.cat([torch.arange(len(item.prompt), item.length) - 1 for item in items]).to(device),
        targets=torch.cat([torch.tensor(item.output) for item in items]).to(device),
        advantages=torch.tensor([item.advantage for item in items]).repeat_interleave(sizes).to(device),
        index=tuple(chosen),
    )
