"""The verifier's pass: final-norm rows that produced each output token, prompts shared, short texts side by side."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from engines.passes import Sequences, plan_passes

# (input ids [B, q], mask [B, kv] or None, positions [B, q], cache) → final-norm output [B, q, d]
Forward = Callable[[torch.Tensor, torch.Tensor | None, torch.Tensor, Any], torch.Tensor]

# Engines hold this many bytes of logits, and of hidden states, at a time.
LOGITS_BYTES = 128 << 20
HIDDEN_BYTES = 256 << 20


def windows(sequences: Sequences, tokens: int) -> Iterator[slice]:
    """Consecutive sequences whose outputs together stay within `tokens` (one at least)."""
    start, total = 0, 0
    for at, (_, output) in enumerate(sequences):
        if at > start and total + len(output) > tokens:
            yield slice(start, at)
            start, total = at, 0
        total += len(output)
    if start < len(sequences):
        yield slice(start, len(sequences))


def prefill_hidden(
    sequences: Sequences, forward: Forward, new_cache: Callable[[], Any], device: str, most: int
) -> list[torch.Tensor]:
    """Rows P−1 … P+T−2 of the final-norm output for each (prompt, output), compute dtype [T, d], in order.

    The prompt of sequences that share a pass is computed once. At most `most` share one.
    """
    out: list[torch.Tensor] = [torch.empty(0)] * len(sequences)
    groups: dict[tuple[int, ...], list[int]] = {}
    for at, (prompt, _) in enumerate(sequences):
        groups.setdefault(prompt, []).append(at)
    shared = [at for members in groups.values() if len(members) > 1 for at in members]
    alone = [members[0] for members in groups.values() if len(members) == 1]
    for part in plan_passes(sequences, alone, most, shared=False):
        _whole([sequences[at] for at in part], part, out, forward, device)
    for part in plan_passes(sequences, shared, most, shared=True):
        _after_prompts([sequences[at] for at in part], part, out, forward, new_cache(), device)
    return out


def prefill_prompts(
    prompts: Sequence[tuple[int, ...]], forward: Forward, cache: Any, device: str
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
    """Fill `cache` with prompts padded on the left; equal ones are computed once and then expanded.

    Returns the hidden states [B, d] of their last tokens, the padding mask [B, P] (None: no padding), lengths [B].
    """
    distinct = list(dict.fromkeys(prompts))
    ids, mask = _pad(distinct, left=True)
    mask = mask.to(device)
    padding = None if bool(mask.all()) else mask
    last = forward(ids.to(device), padding, (mask.cumsum(1) - 1).clamp_(min=0), cache)[:, -1]
    number = {prompt: row for row, prompt in enumerate(distinct)}
    expand = torch.tensor([number[prompt] for prompt in prompts], device=device)
    if len(distinct) < len(prompts):
        cache.batch_select_indices(expand)
    return last[expand], None if padding is None else padding[expand], mask.sum(1)[expand]


def _pad(texts: Sequence[tuple[int, ...]], left: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and mask, both int64 [n, longest]."""
    rows = [torch.tensor(text, dtype=torch.long) for text in texts]
    padded = partial(pad_sequence, batch_first=True, padding_side="left" if left else "right")
    return padded(rows), padded([torch.ones_like(row) for row in rows])


def _whole(texts: Sequences, places: list[int], out: list[torch.Tensor], forward: Forward, device: str) -> None:
    """Prompt and output in one pass, padding on the right: causal attention keeps it away from every row used."""
    # The last output token produced nothing: it is not fed.
    ids, _ = _pad([prompt + output[:-1] for prompt, output in texts], left=False)
    positions = torch.arange(ids.shape[1]).expand(len(texts), -1)
    hidden = forward(ids.to(device), None, positions.to(device), None)
    for row, (at, (prompt, output)) in enumerate(zip(places, texts, strict=True)):
        first = len(prompt) - 1
        out[at] = hidden[row, first : first + len(output)].clone()


def _after_prompts(
    texts: Sequences, places: list[int], out: list[torch.Tensor], forward: Forward, cache: Any, device: str
) -> None:
    """The prompts, then the outputs of all their samples, padded on the right."""
    last, padding, lengths = prefill_prompts([prompt for prompt, _ in texts], forward, cache, device)
    hidden = last[:, None]
    if max(len(output) for _, output in texts) > 1:
        ids, _ = _pad([output[:-1] for _, output in texts], left=False)
        positions = lengths[:, None] + torch.arange(ids.shape[1], device=device)
        # Padding on the right may be attended by padding alone: only the prompts' needs a mask.
        seen = None if padding is None else torch.cat([padding, padding.new_ones(ids.shape)], dim=1)
        hidden = torch.cat([hidden, forward(ids.to(device), seen, positions, cache)], dim=1)
    for row, (at, (_, output)) in enumerate(zip(places, texts, strict=True)):
        out[at] = hidden[row, : len(output)].clone()
