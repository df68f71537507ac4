"""LoRA: low-rank additions to the projections of a model's blocks."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from protocol.config import LoraConfig
from protocol.errors import ConfigError
from trainer.model.sharding import model_blocks, whole

_A, _B, _WEIGHT = ".lora_a", ".lora_b", ".weight"


class LoraLinear(nn.Linear):
    """In the place of a projection, with its parameters under their names: W x + b + (α / r) · B A x. `lora_a`: [r,
    in], `lora_b`: [out, r], float32, zero at first, so that training begins at the model."""

    def __init__(self, old: nn.Linear, config: LoraConfig, generator: torch.Generator) -> None:
        super().__init__(old.in_features, old.out_features, bias=False, device="meta")
        self.weight, self.bias = old.weight, old.bias
        bound = math.sqrt(1 / old.in_features)
        start = torch.empty(config.rank, old.in_features).uniform_(-bound, bound, generator=generator)
        self.lora_a = nn.Parameter(start)
        self.lora_b = nn.Parameter(torch.zeros(old.out_features, config.rank))
        self.scale = config.alpha / config.rank

    def forward(self, values: Tensor) -> Tensor:
        low = nn.functional.linear(values, self.lora_a)
        return super().forward(values) + self.scale * nn.functional.linear(low, self.lora_b)


def install_lora(model: Any, config: LoraConfig) -> None:
    """Freeze a model and put additions beside the projections of its blocks, the same ones on every rank. Raises
    ConfigError if it has none, as where a mixture of experts keeps all of them in one tensor."""
    model.requires_grad_(False)
    generator = torch.Generator().manual_seed(0)
    wrapped = 0
    for block in model_blocks(model):
        for parent in list(block.modules()):
            for name, child in list(parent.named_children()):
                if type(child) is nn.Linear:
                    setattr(parent, name, LoraLinear(child, config, generator))
                    wrapped += 1
    if not wrapped:
        raise ConfigError("the model has no projections that `train.lora` could be added to", "train it without")


def merged(values: Mapping[str, Tensor], config: LoraConfig | None) -> Iterator[tuple[str, Tensor]]:
    """Name and tensor of a model's state, whole and one at a time, its additions summed into what they were added to.
    Every rank must take each of them."""
    for name, value in values.items():
        stem = name.removesuffix(_WEIGHT)
        if name.endswith((_A, _B)):
            continue
        full = whole(value.detach())
        if config is not None and stem + _A in values:
            low, high = (whole(values[stem + part].detach()) for part in (_A, _B))
            full = full + config.alpha / config.rank * (high @ low)
        yield name, full
