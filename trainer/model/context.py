"""Context parallelism, as DeepSpeed-Ulysses has it (2309.14509): the ranks of a group share a packed row. Each holds an
equal part of its tokens, and in attention all tokens of a part of the heads, so that any kernel serves, with
variable lengths and windows. torch's own ring attention has neither."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed._functional_collectives import all_to_all_single_autograd

from protocol.errors import ConfigError
from trainer.data.batch import MicroBatch, PackedLayout


class SharedLayout(PackedLayout):
    """A row of which this rank holds a part: `lengths` are the whole row's, `positions` this rank's."""

    def __init__(self, lengths: tuple[int, ...], device: torch.device, context: "Context") -> None:
        super().__init__(lengths, device)
        self.context = context

    @cached_property
    def positions(self) -> Tensor:
        return self.context.own(super().positions)


@dataclass(frozen=True)
class Context:
    """The `size` ranks that share a row; this one is number `place` of them."""

    group: dist.ProcessGroup
    place: int
    size: int

    def own(self, row: Tensor) -> Tensor:
        """Return this rank's part of [1, L], L a multiple of `size`."""
        return row.chunk(self.size, dim=1)[self.place]

    def part(self, row: MicroBatch) -> tuple[MicroBatch, Tensor]:
        """Return what this rank computes of a row, and which of the row's output tokens these are, [n] int64. A row
        whose tokens cannot be divided evenly ends with a sequence of nothing."""
        padding = -row.layout.tokens % self.size
        lengths = (*row.layout.lengths, padding) if padding else row.layout.lengths
        length = (row.layout.tokens + padding) // self.size
        own = (row.rows // length == self.place).nonzero().squeeze(1)
        layout = SharedLayout(lengths, row.layout.device, self)
        tokens = self.own(torch.nn.functional.pad(row.tokens, (0, padding)))
        rows = row.rows[own] - self.place * length
        return replace(row, layout=layout, tokens=tokens, rows=rows, targets=row.targets[own]), own

    def whole(self, answers: Tensor, own: Tensor, count: int) -> Tensor:
        """Return the answers [count, 2] for all of a row's output tokens from this rank's, [n, 2]. The gradient reaches
        this rank's alone: summed over the group it is that of the row, whatever the loss makes of the tokens."""
        shared = answers.new_zeros(count, 2)
        shared[own] = answers.detach()
        dist.all_reduce(shared, group=self.group)
        return shared.index_put((own,), answers)

    def by_heads(self, *parts: Tensor) -> list[Tensor]:
        """Exchange [l, heads, D] each, some tokens of all heads, for [L, heads / size, D], all tokens of some heads."""
        # Heads of keys and values are repeated where there are fewer than ranks.
        parts = tuple(part.repeat_interleave(max(1, self.size // part.shape[1]), dim=1) for part in parts)
        flat = [part.reshape(len(part), self.size, -1) for part in parts]
        received = self._exchange(torch.cat(flat, dim=2).transpose(0, 1)).flatten(0, 1)
        split = torch.split(received, [part.shape[2] for part in flat], dim=1)
        return [some.reshape(len(some), -1, part.shape[2]) for some, part in zip(split, parts, strict=True)]

    def by_tokens(self, some: Tensor) -> Tensor:
        """Exchange [L, heads / size, D] for [l, heads, D]."""
        received = self._exchange(some.reshape(self.size, -1, some.shape[1] * some.shape[2]))
        return received.transpose(0, 1).reshape(received.shape[1], -1, some.shape[2])

    def _exchange(self, parts: Tensor) -> Tensor:
        """[size, …], one for each rank, for one from each rank."""
        exchanged: Tensor = all_to_all_single_autograd(parts.contiguous(), None, None, self.group)
        return exchanged

    def check(self, model: Any, packs: bool) -> None:
        """Raise ConfigError unless a model's attention can be divided among the ranks."""
        config = model.config.get_text_config()
        heads = config.num_attention_heads if packs else 1
        groups = getattr(config, "num_key_value_heads", None) or heads
        if heads % self.size or (groups % self.size and self.size % groups):
            what = f"`parallel.context` {self.size} cannot divide the model's attention: "
            what += f"{heads} heads of queries, {groups} of keys" if packs else "it does not take packed rows"
            raise ConfigError(what, "choose a divisor of its heads, or 1")


def join_context(size: int, world: int) -> Context:
    """Return the group of this rank and its neighbours; every rank must call it. Raises ConfigError."""
    if world % size:
        raise ConfigError(f"`parallel.context` {size} does not divide {world} ranks", "choose a divisor, or 1")
    make_groups: Any = dist.new_subgroups
    group, _ = make_groups(size)
    return Context(group, dist.get_rank(group), size)
