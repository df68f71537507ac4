"""AdamW and Muon, their learning-rate schedule, and the clipping of gradients."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Replicate

from protocol.config import TrainConfig
from protocol.errors import ConfigError
from trainer.model.sharding import model_blocks, whole


class GatheredMuon(torch.optim.Muon):
    """torch's Muon, whose every matrix is gathered for its update, one after another: equal gradients make the update
    of a process alone. torch's own works on shards too, but exchanges products many times for each matrix. Every rank
    computes the same update: sharding saves memory here, not time."""

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


def build_optimizers(model: Any, config: TrainConfig) -> list[torch.optim.Optimizer]:
    """Build AdamW, or Muon for the blocks' matrices and AdamW for the rest. Only matrices are decayed: norms and biases
    are not. Call it once the model is where it will be trained. Raises ConfigError."""
    method = config.optimizer.method
    parameters = [one for one in model.parameters() if one.requires_grad]
    optimizers: list[torch.optim.Optimizer] = []
    if method.name == "muon":
        in_blocks = {id(one) for block in model_blocks(model) for one in block.parameters() if one.ndim == 2}
        matrices = [one for one in parameters if id(one) in in_blocks]
        parameters = [one for one in parameters if id(one) not in in_blocks]
        sharded = [one for one in matrices if isinstance(one, DTensor)]
        if any(one.device.type != one.device_mesh.device_type for one in sharded):
            what = "optimizer muon cannot gather matrices that `memory.offload_optimizer` keeps in the host's memory"
            raise ConfigError(what, "switch that off, or train a pool with adamw")
        muon = (GatheredMuon if sharded else torch.optim.Muon)(
            matrices,
            lr=method.learning_rate,
            weight_decay=method.weight_decay,
            momentum=method.momentum,
            adjust_lr_fn="match_rms_adamw",
        )
        optimizers.append(muon)
    groups = [
        {"params": [one for one in parameters if one.ndim >= 2], "weight_decay": method.weight_decay},
        {"params": [one for one in parameters if one.ndim < 2], "weight_decay": 0.0},
    ]
    betas = (method.beta1, method.beta2)
    optimizers.append(torch.optim.AdamW(groups, lr=method.learning_rate, betas=betas, eps=method.epsilon))
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
