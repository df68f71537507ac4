"""How the ranks hold a model: sharded block by block (FSDP2), replicated in groups (HSDP), and what saves memory.
Gradients are sums over ranks: a loss carries its own normaliser, nothing is divided by their number."""

import os
from dataclasses import dataclass, field
from typing import Any

import psutil
import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from engines.loading import torch_dtype
from protocol.errors import ConfigError
from trainer.config import MemoryConfig, ParallelConfig
from trainer.distributed import Ranks, join_ranks, rank_device
from trainer.model.context import Context, join_context


@dataclass(frozen=True)
class Placement:
    """The ranks, this rank's device, and how models lie on them; without a mesh a model is whole on `device`, and
    without a `context` a row is."""

    ranks: Ranks = field(default_factory=Ranks)
    device: str = "cpu"
    mesh: DeviceMesh | None = None
    memory: MemoryConfig = field(default_factory=MemoryConfig)
    context: Context | None = None

    @property
    def rows_at_once(self) -> int:
        """How many rows all ranks train at a time."""
        return self.ranks.world // (self.context.size if self.context else 1)

    @property
    def row(self) -> int:
        """Which of these rows this rank trains, or a part of it."""
        return self.ranks.rank // (self.context.size if self.context else 1)

    @property
    def reports(self) -> bool:
        """Whether this rank adds its row to the figures of a step; of those that share one the first does."""
        return self.context is None or self.context.place == 0

    def place(self, model: Any, dtype: torch.dtype) -> Any:
        """Return an empty model, sharded over the mesh if there is one, to be filled and to compute in `dtype`."""
        blocks = model_blocks(model)
        if self.memory.checkpoint_activations:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        if self.memory.compile:
            for block in blocks:
                block.compile(dynamic=True)
        if self.mesh is None:
            return model
        precision = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch_dtype(self.memory.reduce_dtype))
        for part in (*blocks, model):
            fully_shard(part, mesh=self.mesh, mp_policy=precision)
            assert isinstance(part, FSDPModule)
            part.set_gradient_divide_factor(1.0)
            part.set_force_sum_reduction_for_comms(True)  # other factors are nccl's alone
        return model

    def whole_gradients_fit(self, model: Any) -> bool:
        """Return whether every rank has room for the whole model's gradients: half of what weights, their gradients and
        the optimizer's state leave of the device's memory. The answer depends on hardware and model alone, for it
        decides in what order gradients are summed."""
        trained = sum(value.numel() for value in model.parameters() if value.requires_grad)
        held = 16 * trained // (self.mesh.shape[-1] if self.mesh else 1)
        frozen = [value for value in model.parameters() if not value.requires_grad]
        shards = [value.to_local() if isinstance(value, DTensor) else value for value in frozen]
        held += sum(shard.numel() * shard.itemsize for shard in shards)
        room = (device_bytes(torch.device(self.device)) - held) // 2
        fits = trained * torch_dtype(self.memory.reduce_dtype).itemsize <= room
        return not self.ranks.sum(torch.tensor(float(not fits))).item()


def make_placement(
    parallel: ParallelConfig, memory: MemoryConfig, device: str, ranks: Ranks | None = None
) -> Placement:
    """Return the placement that a configuration asks for, on `ranks` or those that this process was started as one of.
    Raises ConfigError, RanksLostError."""
    device = rank_device(device)
    if device.startswith("cuda"):
        torch.cuda.set_device(device)
    ranks = ranks or join_ranks(device, parallel.timeout_seconds)
    context = join_context(parallel.context, ranks.world) if parallel.context > 1 else None
    if ranks.world == 1:
        return Placement(ranks, device, None, memory)
    shard = parallel.shard or ranks.world
    if ranks.world % shard:
        what = f"`parallel.shard` {shard} does not divide {ranks.world} ranks"
        raise ConfigError(what, "choose a divisor, or 0 for all ranks")
    shape: tuple[int, ...] = (shard,)
    names: tuple[str, ...] | None = None
    if shard < ranks.world:
        shape, names = (ranks.world // shard, shard), ("replicate", "shard")
    mesh = init_device_mesh(torch.device(device).type, shape, mesh_dim_names=names)
    return Placement(ranks, device, mesh, memory, context)


def model_blocks(model: Any) -> list[nn.Module]:
    """Return the repeated layers of a Hugging Face model, sharded or not: what it says must not be split."""
    names = set(model._no_split_modules or ())
    return [module for module in model.modules() if type(module).__name__.removeprefix("FSDP") in names]


def device_bytes(device: torch.device) -> int:
    """Return the memory that a rank has: all of a GPU's, or its share of the machine's."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return int(psutil.virtual_memory().total) // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def whole(value: Tensor) -> Tensor:
    """Gather a tensor that may be sharded; every rank must call it."""
    return value.full_tensor() if isinstance(value, DTensor) else value
