"""AdamW and Muon, their learning-rate schedule, and the clipping of gradients."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Replicate

from protocol.config import TrainConfig
from trainer.model.sharding import model_blocks, whole


class _OneByOne(torch.optim.Optimizer):
    """Updates one parameter after another. `offload` keeps the state in the host's memory between updates, so that a
    device holds that of one parameter at a time."""

    offload = False

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            settings = {name: value for name, value in group.items() if name != "params"}
            for parameter in group["params"]:
                if parameter.grad is not None:
                    state = {name: value.to(parameter.device) for name, value in self.state[parameter].items()}
                    self.state[parameter] = self._update(parameter, settings, state)
                    self._put_away(parameter)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        for parameter in self.state:
            self._put_away(parameter)

    def _put_away(self, parameter: Tensor) -> None:
        if self.offload:
            self.state[parameter] = {name: value.to("cpu") for name, value in self.state[parameter].items()}

    def _update(self, parameter: nn.Parameter, settings: dict[str, Any], state: dict[str, Tensor]) -> dict[str, Tensor]:
        """Update a parameter by its gradient; return its state afterwards."""
        raise NotImplementedError


class OneByOneAdamW(_OneByOne, torch.optim.AdamW):
    """torch's AdamW."""

    def _update(self, parameter: nn.Parameter, settings: dict[str, Any], state: dict[str, Tensor]) -> dict[str, Tensor]:
        return _updated(torch.optim.AdamW([parameter], fused=True), settings, state)


class Muon(_OneByOne, torch.optim.Muon):
    """torch's Muon with two differences. A sharded matrix is gathered for its update, which every rank computes alike:
    torch's own exchanges products of shards many times a matrix, and sharding saves memory here, not time. And on a
    processor the update is made orthogonal in fp32: torch rounds to bfloat16 everywhere, which takes a hundred times
    longer where there are no instructions for it."""

    def _update(self, parameter: nn.Parameter, settings: dict[str, Any], state: dict[str, Tensor]) -> dict[str, Tensor]:
        assert parameter.grad is not None
        matrix, gradient = whole(parameter.detach()), whole(parameter.grad)
        momentum, rate = settings["momentum"], settings["lr"]
        mean = whole(state["momentum_buffer"]) if state else torch.zeros_like(gradient)
        mean = mean.lerp(gradient, 1 - momentum)
        update = orthogonal(gradient.lerp(mean, momentum), settings["ns_coefficients"], settings["ns_steps"])
        scale = 0.2 * math.sqrt(max(matrix.shape))  # AdamW's root mean square, by Liu et al., arXiv 2502.16982
        _copy(parameter, (matrix * (1 - rate * settings["weight_decay"])).add(update, alpha=-rate * scale))
        kept = torch.zeros_like(parameter.grad)
        _copy(kept, mean)
        return {"momentum_buffer": kept}


def orthogonal(matrix: Tensor, coefficients: tuple[float, float, float], steps: int) -> Tensor:
    """Move the singular values of a matrix near 1 by Newton-Schulz steps. Source: Keller Jordan, "Muon", 2024."""
    a, b, c = coefficients
    tall = matrix.shape[0] > matrix.shape[1]
    value = (matrix.T if tall else matrix).to(torch.bfloat16 if matrix.is_cuda else torch.float32)
    value = value / value.norm().clamp(min=1e-7)
    for _ in range(steps):
        gram = value @ value.T
        value = torch.addmm(value, torch.addmm(gram, gram, gram, beta=b, alpha=c), value, beta=a)
    return (value.T if tall else value).to(matrix.dtype)


def _updated(alone: torch.optim.Optimizer, settings: dict[str, Any], state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Let an optimizer of one parameter take a step from this state; return the state afterwards."""
    (group,) = alone.param_groups
    group |= settings
    if state:
        alone.state[group["params"][0]] = state
    alone.step()
    return dict(alone.state[group["params"][0]])


def _copy(target: Tensor, value: Tensor) -> None:
    """Replace a tensor, of which each rank may hold a part, by a whole one that all ranks have."""
    if isinstance(target, DTensor):
        mesh = target.device_mesh
        replicated = DTensor.from_local(value, mesh, [Replicate()] * mesh.ndim, run_check=False)
        value = replicated.redistribute(placements=target.placements)
    target.copy_(value)


def learning_rate(config: TrainConfig, update: int) -> float:
    """Return the learning rate of the schedule, for a run that ends at `steps` × `minibatches` updates; `update` counts
    from 0."""
    schedule, total = config.optimizer.schedule, config.steps * config.minibatches
    rising = min(1.0, (update + 1) / schedule.warmup_updates) if schedule.warmup_updates else 1.0
    span = schedule.decay_share * total
    left = min(1.0, max(0.0, (total - update - 1) / span)) if span else 1.0
    if schedule.decay == "cosine":
        left = (1 - math.cos(math.pi * left)) / 2
    share = schedule.final_share + (1 - schedule.final_share) * left
    return config.optimizer.method.learning_rate * rising * share


def build_optimizers(model: Any, config: TrainConfig, offload: bool = False) -> list[torch.optim.Optimizer]:
    """Build AdamW, or Muon for the blocks' matrices and AdamW for the rest; `offload` keeps their state in the host's
    memory. Only matrices are decayed: norms and biases are not. Call it once the model is filled."""
    method = config.optimizer.method
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizers: list[torch.optim.Optimizer] = []
    if method.name == "muon":
        in_blocks = {
            id(parameter) for block in model_blocks(model) for parameter in block.parameters() if parameter.ndim == 2
        }
        matrices = [parameter for parameter in parameters if id(parameter) in in_blocks]
        parameters = [parameter for parameter in parameters if id(parameter) not in in_blocks]
        muon = Muon(matrices, lr=method.learning_rate, weight_decay=method.weight_decay, momentum=method.momentum)
        optimizers.append(muon)
    groups = [
        {"params": [parameter for parameter in parameters if parameter.ndim >= 2], "weight_decay": method.weight_decay},
        {"params": [parameter for parameter in parameters if parameter.ndim < 2], "weight_decay": 0.0},
    ]
    betas = (method.beta1, method.beta2)
    kind = OneByOneAdamW if offload else torch.optim.AdamW
    # Fused: torch's default keeps a copy of the weights' size while it steps.
    optimizers.append(kind(groups, lr=method.learning_rate, betas=betas, eps=method.epsilon, fused=True))
    for optimizer in optimizers:
        if isinstance(optimizer, _OneByOne):
            optimizer.offload = offload
    return optimizers


def apply_update(
    model: Any, optimizers: Sequence[torch.optim.Optimizer], config: TrainConfig, update: int
) -> tuple[float, float]:
    """Clip the gradients, summed over all ranks, to `grad_clip`, take one step and clear them. Return the norm before
    clipping and the learning rate. A norm that is not finite leaves the weights as they are until a guard looked."""
    norm = float(whole(torch.nn.utils.clip_grad_norm_(model.parameters(), config.optimizer.grad_clip)))
    rate = learning_rate(config, update)
    for optimizer in optimizers:
        if math.isfinite(norm):
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return norm, rate
