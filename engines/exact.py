"""The transformers engine in arithmetic that depends on a row alone: not on the batch, and not on whether a token is
decoded or read back in a prefill.

What breaks that on a CPU is how products are cut. A linear layer of fewer than four rows is another kernel than one of
more, and attention of one query is cut otherwise than that of many. Here both are cut in one way always: linear layers
into tiles of so many rows, queries into tiles too, keys into blocks from the first position on. What fills a tile up is
zero or masked, and adds zeros at the end of a sum. Prompts are never padded on the left, which would shift the blocks.

Bits are equal on one kind of processor and build of torch, as kernels differ between them; `benchmarks exact` measures
whether they are.
"""

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from engines.base import Completion, Prefilled, Request, Sampling
from engines.hf import TransformersEngine
from engines.passes import Sequences

ROWS = 32
"""Of a linear layer's tile, and queries of an attention's."""
KEYS = 512
"""A block of keys: what torch's attention takes at a time on a CPU."""
NAME = "muster_exact"


class ExactEngine(TransformersEngine):
    """Slower. Requests and sequences of one length of prompt share a pass, others do not."""

    def load(self, weights: Path) -> None:
        super().load(weights)
        _register()
        self.model.set_attn_implementation(NAME)
        for module in self.model.modules():
            if type(module) is torch.nn.Linear:
                setattr(module, "forward", functools.partial(tiled_linear, module))  # noqa: B010

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
        done: dict[int, Completion] = {}
        for group in _alike([len(one.prompt) for one in requests]):
            made = super().generate([requests[at] for at in group], sampling)
            done.update(zip(group, made, strict=True))
        return [done[at] for at in range(len(requests))]

    def prefill(self, sequences: Sequences) -> Iterator[Prefilled]:
        read: dict[int, Prefilled] = {}
        for group in _alike([len(prompt) for prompt, _ in sequences]):
            own = super().prefill([sequences[at] for at in group])
            read.update(zip(group, own, strict=True))
        yield from (read[at] for at in range(len(sequences)))


def tiled_linear(layer: torch.nn.Linear, x: torch.Tensor) -> torch.Tensor:
    """x [..., k] → [..., m], as products of exactly ROWS rows each."""
    rows = x.reshape(-1, x.shape[-1])
    filled = torch.nn.functional.pad(rows, (0, 0, 0, -len(rows) % ROWS))
    tiles = [torch.nn.functional.linear(tile, layer.weight, layer.bias) for tile in torch.split(filled, ROWS)]
    return torch.cat(tiles)[: len(rows)].reshape(*x.shape[:-1], -1)


def tiled_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **unused: Any,
) -> tuple[torch.Tensor, None]:
    """query [B, H, T, D], key and value [B, G, L, D], mask [B, 1, T, L] or None for a causal one → [B, T, H, D]."""
    batch, heads, count, _ = query.shape
    length = key.shape[2]
    if attention_mask is None:
        seen = torch.ones(count, length, dtype=torch.bool).tril(length - count)[None, None]
    else:
        seen = attention_mask if attention_mask.dtype == torch.bool else attention_mask == 0
    filled = length + -length % KEYS
    key, value = (
        torch.nn.functional.pad(one.repeat_interleave(heads // one.shape[1], 1), (0, 0, 0, filled - length))
        for one in (key, value)
    )
    out = []
    for start in range(0, count, ROWS):
        part = query[:, :, start : start + ROWS]
        own = part.shape[2]
        mask = torch.full((batch, 1, ROWS, filled), -torch.inf, dtype=query.dtype)
        mask[:, :, own:, 0] = 0.0
        mask[:, :, :own, :length].masked_fill_(seen[:, :, start : start + ROWS], 0.0)
        tile = torch.nn.functional.pad(part, (0, 0, 0, ROWS - own))
        made = torch.nn.functional.scaled_dot_product_attention(tile, key, value, attn_mask=mask, scale=scaling)
        out.append(made[:, :, :own])
    return torch.cat(out, 2).transpose(1, 2).contiguous(), None


@functools.cache
def _register() -> None:
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

    AttentionInterface.register(NAME, tiled_attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)


def _alike(lengths: Sequence[int]) -> list[list[int]]:
    """The places of equal lengths, in order."""
    groups: dict[int, list[int]] = {}
    for at, length in enumerate(lengths):
        groups.setdefault(length, []).append(at)
    return list(groups.values())
