"""By what each token's loss is divided, so that their sum over all ranks is the loss of a minibatch."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from protocol.training import AlgorithmConfig
from trainer.algorithms.tokens import sequence_lengths


@dataclass(frozen=True)
class MinibatchSize:
    """Output tokens and sequences of a minibatch over all ranks. A share of the dropped groups' is included, so that a
    step with little signal moves little; hence no integers."""

    tokens: float
    sequences: float


Normaliser = Callable[[Tensor, MinibatchSize], Tensor]
"""(sequence [N] int64, ascending from 0; sizes) → weights [N] float32."""


def make_normaliser(config: AlgorithmConfig) -> Normaliser:
    if config.normaliser == "constant":
        return partial(by_constant, length=config.constant_length or 1)
    return by_sequences if config.normaliser == "sequences" else by_tokens


def by_tokens(sequence: Tensor, size: MinibatchSize) -> Tensor:
    """1 / tokens of the minibatch: every token counts alike (INTELLECT-2, DAPO)."""
    return torch.full(sequence.shape, 1 / max(1.0, size.tokens), device=sequence.device)


def by_sequences(sequence: Tensor, size: MinibatchSize) -> Tensor:
    """1 / (sequences · own length): every sequence counts alike, so a token of a long one counts less (GRPO)."""
    return 1 / (sequence_lengths(sequence)[sequence].float() * max(1.0, size.sequences))


def by_constant(sequence: Tensor, size: MinibatchSize, length: int) -> Tensor:
    """1 / (sequences · length): no sequence's length changes the weight of any token (Dr. GRPO)."""
    return torch.full(sequence.shape, 1 / (max(1.0, size.sequences) * length), device=sequence.device)
