"""Muon for matrices that are sharded over ranks."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Replicate

from trainer.model.sharding import whole


class GatheredMuon(torch.optim.Muon):
    """torch's Muon, whose every matrix is gathered for its update, one after another: equal gradients make the update
    of a process alone. torch's own works on shards too, but exchanges products many times for each matrix.

    Every rank computes the same update: sharding saves memory here, not time.
    """

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, group)

    def _update(self, parameter: Tensor, group: dict[str, Any]) -> None:
        assert parameter.grad is not None
        state = self.state[parameter]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(parameter.grad)
        matrix = nn.Parameter(whole(parameter.detach()).clone())
        matrix.grad = whole(parameter.grad)
        alone = torch.optim.Muon([matrix], **{name: value for name, value in group.items() if name != "params"})
        alone.state[matrix]["momentum_buffer"] = momentum = whole(state["momentum_buffer"]).clone()
        alone.step()  # type: ignore[no-untyped-call]
        _copy(parameter, matrix.detach())
        _copy(state["momentum_buffer"], momentum)


def _copy(target: Tensor, value: Tensor) -> None:
    """Replace a tensor, of which each rank may hold a part, by a whole one that all ranks have."""
    if isinstance(target, DTensor):
        mesh = target.device_mesh
        replicated = DTensor.from_local(value, mesh, [Replicate()] * mesh.ndim, run_check=False)
        value = replicated.redistribute(placements=target.placements)
    target.copy_(value)
