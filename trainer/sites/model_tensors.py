"""A model's trained parameters as the float32 tensors that outer steps are made of, whole even where several ranks hold
parts of them."""

from typing import Any

import numpy as np
import torch
from torch.distributed.tensor import DTensor, distribute_tensor

from protocol.sites.layout import F32, Tensors
from trainer.model.sharding import whole


def model_tensors(model: Any, wanted: bool = True) -> Tensors:
    """Copies in the host's memory; none where they are not `wanted`. Every rank must call it."""
    made: dict[str, F32] = {}
    for name, one in _trained(model):
        value = whole(one)
        if wanted:
            made[name] = value.to("cpu", torch.float32, copy=True).numpy()
    return made


@torch.no_grad()
def set_tensors(model: Any, tensors: Tensors | None) -> None:
    """Put them in place of the model's parameters. Every rank must call it; those of rank 0 count."""
    for name, one in _trained(model):
        given = None if tensors is None else torch.from_numpy(np.ascontiguousarray(tensors[name]))
        if not isinstance(one, DTensor):
            assert given is not None, "a process alone has them"
            one.copy_(given)
            continue
        mesh = one.device_mesh
        value = torch.empty(one.shape) if given is None else given
        spread = distribute_tensor(value.to(mesh.device_type), mesh, one.placements)  # rank 0's, one tensor at a time
        one.to_local().copy_(spread.to_local())


def _trained(model: Any) -> list[tuple[str, torch.Tensor]]:
    return [(name, one.detach()) for name, one in model.named_parameters() if one.requires_grad]
