"""Muon, beside torch's own."""

from collections.abc import Callable
from functools import partial

import pytest
import torch

from trainer.optim import Muon, orthogonal

COEFFICIENTS, STEPS = (3.4445, -4.7750, 2.0315), 5


def stepped(make: Callable[..., torch.optim.Optimizer], steps: int, shape: tuple[int, int]) -> torch.Tensor:
    """Return a matrix after steps on made-up gradients."""
    generator = torch.Generator().manual_seed(3)
    matrix = torch.nn.Parameter(torch.randn(shape, generator=generator))
    optimizer = make([matrix], lr=1e-2, weight_decay=0.1, momentum=0.9)
    for _ in range(steps):
        matrix.grad = torch.randn(shape, generator=generator)
        optimizer.step()
    return matrix.detach()


@pytest.mark.parametrize("shape", [(16, 48), (48, 16), (32, 32)])
def test_steps_are_those_of_torch_but_for_its_rounding_to_bfloat16(shape: tuple[int, int]) -> None:
    theirs = partial(torch.optim.Muon, adjust_lr_fn="match_rms_adamw")
    start, ours, reference = stepped(Muon, 0, shape), stepped(Muon, 6, shape), stepped(theirs, 6, shape)
    assert float((ours - reference).norm() / (ours - start).norm()) < 0.02


@pytest.mark.parametrize("shape", [(16, 48), (48, 16)])
def test_singular_values_are_brought_near_one_without_rounding_to_bfloat16(shape: tuple[int, int]) -> None:
    made = orthogonal(torch.randn(shape, generator=torch.Generator().manual_seed(5)), COEFFICIENTS, STEPS)
    values = torch.linalg.svdvals(made)
    assert made.dtype == torch.float32
    assert 0.5 < float(values.min()) < float(values.max()) < 1.5
    assert not torch.equal(made, made.bfloat16().float())
