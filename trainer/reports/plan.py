"""`muster pool train --plan`: what a pool's training takes of every GPU's memory and of the host's, before anything is
rented. A row's forward and backward pass runs on the `meta` device, where tensors have sizes and no contents; what
ranks hold beside it is counted by shard."""

import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from engines.loading import torch_dtype
from protocol.config import PoolConfig, TrainConfig
from protocol.errors import ConfigError, first_line
from trainer.config import ComputeConfig, MemoryConfig, ParallelConfig
from trainer.data.batch import PackedLayout
from trainer.model.head import HeadTask
from trainer.model.loading import model_of
from trainer.model.policy import prepare_model
from trainer.model.sharding import model_blocks

META, GIB = torch.device("meta"), 1 << 30


@dataclass(frozen=True)
class Account:
    """Bytes of one of `ranks` GPUs. weights: shards, and the KL reference's. gathered: of the blocks at work.
    activations: what a full row keeps for its backward pass. head: what both passes take beyond that. peak: the sum at
    the worst moment. host_load, host_step: of rank 0 in its machine's memory, while it reads the model, and while it
    copies a checkpoint and a policy step."""

    ranks: int
    weights: int
    optimizer: int
    gradients: int
    gathered: int
    activations: int
    head: int
    peak: int
    host_load: int
    host_step: int


class LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of tensors on `meta` that were made inside and are not freed: `now`, and at most. What `held`
    lists was there before."""

    def __init__(self, held: Iterable[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.most = 0
        self._seen = weakref.WeakKeyDictionary[Any, None]({tensor.untyped_storage(): None for tensor in held})

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(tensor, Tensor) and tensor.device == META:
                self._count(tensor.untyped_storage())
        return result

    def _count(self, storage: Any) -> None:
        if storage not in self._seen:
            self._seen[storage] = None
            size = storage.nbytes()
            self.now += size
            self.most = max(self.most, self.now)
            weakref.finalize(storage, self._free, size)

    def _free(self, size: int) -> None:
        self.now -= size


def accounts(
    source: str, pool: PoolConfig, memory: MemoryConfig, layouts: Sequence[ParallelConfig], room: int
) -> list[Account]:
    """Return the account of each layout's ranks with `room` bytes each, for a pool's training of the model that
    `source` describes. Raises ConfigError for one that cannot be trained."""
    train, exact, chunk = pool.train, torch_dtype(pool.model.dtype), memory.head_chunk_mib or 640
    activations, most = row_bytes(source, exact, train, memory)
    model = model_of(source)
    prepare_model(model, exact, chunk, False, train.lora)
    parameters = list(model.parameters())
    frozen = [parameter for parameter in parameters if not parameter.requires_grad]
    if train.algorithm.kl.coefficient:
        reference = model_of(train.algorithm.kl.teacher or source)
        prepare_model(reference, exact, chunk, True, None)
        frozen += reference.parameters()
    trainable = [parameter for parameter in parameters if parameter.requires_grad]
    blocks = [list(block.parameters()) for block in model_blocks(model)]
    matrices = {id(parameter) for block in blocks for parameter in block if parameter.ndim == 2}
    total, largest = _numbers(parameters), max(map(_numbers, blocks))
    largest_trained = max(_numbers(parameter for parameter in block if parameter.requires_grad) for block in blocks)
    reduced = torch_dtype(memory.reduce_dtype).itemsize
    root = total - sum(map(_numbers, blocks))
    muon = train.optimizer.method.name == "muon"
    rows = []
    for layout in layouts:
        shards = layout.shard or layout.ranks
        trained = 4 * sum(_shard(parameter, shards) for parameter in trainable)
        weights = trained + sum(_shard(parameter, shards) * parameter.itemsize for parameter in frozen)
        states = [
            (4 if muon and id(parameter) in matrices else 8) * _shard(parameter, shards) for parameter in trainable
        ]
        optimizer = max(states) if memory.offload_optimizer else sum(states)
        whole = _numbers(trainable) * reduced
        # As Placement.whole_gradients_fit decides.
        once = layout.ranks > 1 and whole <= (room - 4 * trained - (weights - trained)) // 2
        gathered = 0
        if layout.ranks > 1:  # what belongs to no block, a block at work and the next one; a block's gradient
            gathered = exact.itemsize * (root + 2 * largest) + reduced * largest_trained
        elif exact != torch.float32:  # autocast keeps the matrices that it rounds
            gathered = exact.itemsize * _numbers(parameter for parameter in trainable if id(parameter) in matrices)
        gradients = whole if once else trained
        account = Account(
            ranks=layout.ranks, weights=weights, optimizer=optimizer, gradients=gradients, gathered=gathered,
            activations=activations, head=most - activations,
            peak=weights + optimizer + max(gradients + gathered + most, trained + max(states)),
            host_load=2 * 4 * max(parameter.numel() for parameter in parameters),
            host_step=trained + sum(states) + exact.itemsize * total,
        )  # fmt: skip
        rows.append(account)
    return rows


def row_bytes(source: str, dtype: torch.dtype, train: TrainConfig, memory: MemoryConfig) -> tuple[int, int]:
    """Return the bytes that a row of `memory.row_tokens` keeps for its backward pass when it reaches the output head,
    and the most that both passes take. Raises ConfigError."""
    model, count = model_of(source), memory.row_tokens
    packs, head = prepare_model(model, dtype, memory.head_chunk_mib or 640, False, train.lora)
    model.to(META, dtype)
    if memory.checkpoint_activations:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(_drop)
    with torch.device(META):
        positions = torch.zeros(count, dtype=torch.int64)
        head.task = HeadTask(positions, positions, 1.0, train.algorithm.entropy_coefficient > 0)
        packing = {"position_ids": positions[None], "packed": PackedLayout([count], META)} if packs else {}
        mask = torch.zeros(1, 1, 1, 1)  # given one, the library looks for none in the contents of tokens
    kept: list[int] = []
    with LiveBytes((*model.parameters(), *model.buffers())) as live:
        head.register_forward_pre_hook(lambda *_: kept.append(live.now))
        try:
            answers = model(input_ids=positions[None], attention_mask=mask, use_cache=False, **packing).logits
            answers.sum().backward()
        except (RuntimeError, NotImplementedError, TypeError) as error:
            raise ConfigError(
                f"this model cannot be accounted for: {first_line(error)}", "measure with --bench"
            ) from None
    return kept[0], live.most


def _drop(parameter: Tensor) -> None:
    """Free a gradient, which the account has elsewhere."""
    parameter.grad = None


def _numbers(parameters: Iterable[Tensor]) -> int:
    return sum(parameter.numel() for parameter in parameters)


def _shard(parameter: Tensor, shards: int) -> int:
    """The numbers of a rank's shard, which FSDP cuts along the first dimension."""
    return -(-parameter.shape[0] // shards) * (parameter.numel() // max(1, parameter.shape[0]))


def plan(
    pool: PoolConfig, weights: Path | None, compute: ComputeConfig, ranks: Sequence[int], gib: float
) -> dict[str, Any]:
    """Return the accounts of a pool's training on some numbers of ranks with `gib` GiB each, in GiB, and whether nine
    tenths of these hold each. Raises ConfigError."""
    source, room = str(weights or pool.model.source), int(gib * GIB)
    layouts = []
    for count in ranks:
        shard = compute.parallel.shard if compute.parallel.shard and count % compute.parallel.shard == 0 else 0
        layouts.append(compute.parallel.model_copy(update={"ranks": count, "shard": shard}))
    try:
        counted = accounts(source, pool, compute.memory, layouts, room)
    except (OSError, ValueError, KeyError) as error:  # what the library makes of a folder or a name
        raise ConfigError(f"{source} describes no model: {first_line(error)}", "name its folder: --weights") from None
    rows = []
    for account in counted:
        values = {name: value if name == "ranks" else round(value / GIB, 2) for name, value in vars(account).items()}
        rows.append({**values, "fits": account.peak <= 0.9 * room})
    return {"model": source, "row_tokens": compute.memory.row_tokens, "gib": gib, "accounts": rows}
