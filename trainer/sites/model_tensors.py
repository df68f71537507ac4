"""A model's trained parameters as the float32 tensors that outer steps are made of."""

from typing import Any

import numpy as np
import torch

from protocol.errors import ConfigError
from protocol.sites.layout import Tensors


def model_tensors(model: Any) -> Tensors:
    """Copies in the host's memory. Raises ConfigError for a model that several ranks hold parts of."""
    return {name: _whole(name, one).to("cpu", torch.float32, copy=True).numpy() for name, one in _trained(model)}


@torch.no_grad()
def set_tensors(model: Any, tensors: Tensors) -> None:
    """Put them in place of the model's parameters."""
    for name, one in _trained(model):
        one.copy_(torch.from_numpy(np.ascontiguousarray(tensors[name])))


def _trained(model: Any) -> list[tuple[str, torch.Tensor]]:
    return [(name, one.detach()) for name, one in model.named_parameters() if one.requires_grad]


def _whole(name: str, value: torch.Tensor) -> torch.Tensor:
    if type(value) is not torch.Tensor:
        raise ConfigError(f"{name} is held in parts by several ranks", "a site has one rank so far")
    return value
