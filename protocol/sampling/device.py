"""Choice of the next token wherever the logits lie: NumPy on a CPU, a Triton kernel on CUDA."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from protocol.sampling.noise import Choices, NoiseKey
from protocol.sampling.noise import choose as choose_on_cpu

if TYPE_CHECKING:
    import torch


def choose(logits: "torch.Tensor", keys: Sequence[NoiseKey], positions: Sequence[int], temperature: float) -> Choices:
    """`noise.choose` for logits [B, V] float32 on any device. Raises MusterError as that does."""
    if logits.is_cuda:
        from protocol.sampling.cuda import choose as choose_on_cuda

        return choose_on_cuda(logits, keys, positions, temperature)
    return choose_on_cpu(logits, keys, positions, temperature)
