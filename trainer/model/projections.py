"""What takes the place of the blocks' projections: LoRA additions, and products in 8-bit floating point."""

import math
from collections.abc import Iterator, Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import ScalingType, scaled_mm

from protocol.config import LoraConfig
from protocol.errors import ConfigError
from trainer.model.sharding import model_blocks, whole

_A, _B, _WEIGHT = ".lora_a", ".lora_b", ".weight"


class LoraLinear(nn.Linear):
    """In the place of a projection, with its parameters under their names: W x + b + (α / r) · B A x.

    `lora_a`: [r, in], `lora_b`: [out, r], float32, zero at first, so that training begins at the model.
    """

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
    found = 0
    for block in model_blocks(model):
        for parent in list(block.modules()):
            for name, child in list(parent.named_children()):
                if type(child) is nn.Linear:
                    setattr(parent, name, LoraLinear(child, config, generator))
                    found += 1
    if not found:
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


VALUES, GRADIENTS = torch.float8_e4m3fn, torch.float8_e5m2
MULTIPLE = 16
"""Of which the kernels want every length but the first matrix's rows to be one."""
LEAST_CAPABILITY = (8, 9)
"""CUDA's compute capability: Ada, Hopper and later."""
_LEAST_MAGNITUDE = 1e-30
"""A tensor of nothing but less than that is rounded to zero; its scale must not be one."""


def check_float8(device: torch.device, dtype: torch.dtype, lora: LoraConfig | None = None) -> None:
    """Raise ConfigError unless `device` has products in 8 bits, for a model of which all is trained, in bfloat16."""
    if lora is not None:
        raise ConfigError("`memory.float8` and the pool's `train.lora` do not go together", "leave it out")
    if dtype != torch.bfloat16:
        raise ConfigError(
            f"`memory.float8` is for models that compute in bfloat16, not {str(dtype).removeprefix('torch.')}",
            "leave it out, or choose bfloat16",
        )
    cure = "leave it out, or use a GPU of compute capability 8.9 or more (Ada, Hopper, Blackwell)"
    if device.type != "cuda" or torch.version.cuda is None:
        raise ConfigError(f"`memory.float8`: the device {device} has no products in 8 bits", cure)
    capability = torch.cuda.get_device_capability(device)
    if capability < LEAST_CAPABILITY:
        name = f"{torch.cuda.get_device_name(device)} (compute capability {'.'.join(map(str, capability))})"
        raise ConfigError(f"`memory.float8`: {name} has no products in 8 bits", cure)


def install_float8(model: Any) -> None:
    """Let the projections of a model's blocks multiply in 8 bits, those of which both widths are multiples of 16.
    Raises ConfigError if there are none, as where a mixture of experts keeps all of them in one tensor."""
    found = 0
    for block in model_blocks(model):
        for parent in list(block.modules()):
            for name, child in list(parent.named_children()):
                if type(child) is nn.Linear and not (child.in_features % MULTIPLE or child.out_features % MULTIPLE):
                    setattr(parent, name, Float8Linear(child))
                    found += 1
    if not found:
        raise ConfigError(
            f"no projection of the model's blocks has widths that are multiples of {MULTIPLE}: `memory.float8` would "
            "change nothing",
            "leave it out",
        )


class Float8Linear(nn.Linear):
    """In the place of a projection, with its parameters under their names."""

    def __init__(self, old: nn.Linear) -> None:
        super().__init__(old.in_features, old.out_features, bias=False, device="meta")
        self.weight, self.bias = old.weight, old.bias
        self.train(old.training)

    def forward(self, values: Tensor) -> Tensor:
        """Multiply values: [..., in] → [..., out], in autocast's dtype, or else that of `values`."""
        kind = values.device.type
        values = values.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else values
        if not values.numel():  # an expert to which no token goes: nothing has a largest magnitude
            return super().forward(values)
        flat = values.reshape(-1, self.in_features)
        out = cast(Tensor, _Product.apply(flat, self.weight))  # type: ignore[no-untyped-call]
        if self.bias is not None:
            out = out + self.bias.to(out.dtype)
        return out.view(*values.shape[:-1], self.out_features)


@torch.compiler.allow_in_graph  # Dynamo fails to trace a second one that takes the same values
class _Product(torch.autograd.Function):
    """(values [T, in], weight [out, in]) → values weightᵀ [T, out] in the dtype of `values`.

    Kept for the backward pass are the rounded values, which take half of what they take in bfloat16, and the weight as
    it is: a copy of it would outlive what sharding gathered for this block.
    """

    @staticmethod
    def forward(ctx: Any, values: Tensor, weight: Tensor) -> Tensor:
        rounded, scale = _rounded(values, VALUES)
        ctx.save_for_backward(rounded, scale, weight)
        ctx.dtype = values.dtype
        return _product(rounded, scale, *_rounded(weight, VALUES), values.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        values, values_scale, weight = ctx.saved_tensors
        rounded, scale = _rounded(gradient, GRADIENTS)
        by_values, by_weight = None, None
        if ctx.needs_input_grad[0]:
            narrow, weight_scale = _rounded(weight, VALUES)
            by_values = _product(rounded, scale, _transposed(narrow), weight_scale, ctx.dtype)
        if ctx.needs_input_grad[1]:
            by_weight = _product(_transposed(rounded), scale, _transposed(values), values_scale, weight.dtype)
        return by_values, by_weight


def _rounded(values: Tensor, kind: torch.dtype) -> tuple[Tensor, Tensor]:
    """`values` as 8-bit multiples of a scale, their rows one after another, and that scale, [] float32. What is not
    finite makes all of it NaN."""
    values, largest = values.contiguous(), torch.finfo(kind).max
    scale = values.abs().amax().float().clamp(min=_LEAST_MAGNITUDE) / largest
    return (values.float() / scale).clamp(-largest, largest).to(kind), scale


def _product(one: Tensor, one_scale: Tensor, other: Tensor, other_scale: Tensor, dtype: torch.dtype) -> Tensor:
    """one [m, k], other [n, k] → one otherᵀ [m, n]; each has its rows one after another, as the kernels want it."""
    each = ScalingType.TensorWise
    return scaled_mm(one, other.t(), one_scale, each, other_scale, each, output_dtype=dtype)


def _transposed(matrix: Tensor) -> Tensor:
    """[T, n] → [n, T'], its rows one after another, each with zeros up to the next multiple of 16."""
    rows, columns = matrix.shape
    out = matrix.new_zeros(columns, rows + -rows % MULTIPLE)
    out[:, :rows] = matrix.t()
    return out
