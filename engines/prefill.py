"""The verifier's pass: final-norm rows that produced each output token, prompts shared, short texts side by side, long
ones in parts, so that only the cache of keys and values grows with their length."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

Sequences = Sequence[tuple[tuple[int, ...], tuple[int, ...]]]
# (input ids [B, q], mask [B, kv] or None, positions [B, q], cache) → final-norm output [B, q, d]
Forward = Callable[[torch.Tensor, torch.Tensor | None, torch.Tensor, Any], torch.Tensor]
HIDDEN_BYTES = 256 << 20
PREFILL_TOKENS = 4096  # Of one forward pass, padding included
PREFILL_SEQUENCES = 64  # Of one forward pass: no setting, because passes of other shapes round otherwise
_LEAST_PART = 64  # Tokens of a part of a text, however long that is
_PASS = 256  # What a pass costs besides its tokens, in tokens
_GRAIN = 8  # Passes end at multiples of this share of the largest possible


def plan_passes(sequences: Sequences, members: Sequence[int], most: int, shared: bool) -> list[list[int]]:
    """Divide the sequences at the places `members` into passes of at most `most` and PREFILL_TOKENS (one at least) that
    compute the fewest tokens. `shared`: prompts are computed once for all outputs of a pass that follow them."""
    if not members:
        return []
    first_at: dict[tuple[int, ...], int] = {}
    number = {index: first_at.setdefault(sequences[index][0], index) for index in members} if shared else {}

    def output(index: int) -> int:
        prompt, tokens = sequences[index]
        return len(tokens) + (0 if shared else len(prompt))

    # Neighbours of like length need little padding; neighbours with one prompt compute it once.
    orders = [sorted(members, key=output, reverse=True)]
    if shared:
        orders.append(
            sorted(members, key=lambda index: (len(sequences[index][0]), number[index], output(index)), reverse=True)
        )
    plans = []
    for order in orders:
        facts = [(number.get(index, 0), len(sequences[index][0]) if shared else 0, output(index)) for index in order]
        cost, cuts = _cut(facts, most)
        plans.append((cost, [order[first:last] for first, last in cuts]))
    return min(plans, key=lambda plan: plan[0])[1]


def _cut(facts: Sequence[tuple[int, int, int]], most: int) -> tuple[int, list[tuple[int, int]]]:
    """Return the cheapest division of (prompt's number, its length, output's length) into consecutive passes: its cost
    in tokens, and where each pass begins and ends."""
    longest = max(max(prompt, output) for _, prompt, output in facts)
    grain = max(1, min(most, PREFILL_TOKENS // longest) // _GRAIN)
    ends = [*range(grain, len(facts), grain), len(facts)]
    best: dict[int, tuple[int, int]] = {0: (0, 0)}  # end → cost up to there, begin of its pass
    for first in (0, *ends[:-1]):
        prompts: set[int] = set()
        context, longest, start = 0, 0, first
        for last in (end for end in ends if end > first):
            for number, prompt, output in facts[start:last]:
                prompts.add(number)
                context, longest = max(context, prompt), max(longest, output)
            start = last
            before, after = len(prompts) * context, (last - first) * longest
            fits = last - first <= most and after <= PREFILL_TOKENS and (len(prompts) == 1 or before <= PREFILL_TOKENS)
            if not fits and last - first > grain:
                break
            cost = best[first][0] + _PASS + before + after
            if last not in best or cost < best[last][0]:
                best[last] = cost, first
    cuts, end = [], len(facts)
    while end:
        cuts.append((best[end][1], end))
        end = best[end][1]
    return best[len(facts)][0], cuts[::-1]


def windows(sequences: Sequences, tokens: int) -> Iterator[slice]:
    """Yield consecutive sequences whose outputs together stay within `tokens` (one at least)."""
    start, total = 0, 0
    for at, (_, output) in enumerate(sequences):
        if at > start and total + len(output) > tokens:
            yield slice(start, at)
            start, total = at, 0
        total += len(output)
    if start < len(sequences):
        yield slice(start, len(sequences))


def prefill_hidden(
    sequences: Sequences, forward: Forward, new_cache: Callable[[], Any], device: str
) -> list[torch.Tensor]:
    """Return rows P−1 … P+T−2 of the final-norm output for each (prompt, output), compute dtype [T, d], in order."""
    out: list[torch.Tensor] = [torch.empty(0)] * len(sequences)
    groups: dict[tuple[int, ...], list[int]] = {}
    for index, (prompt, _) in enumerate(sequences):
        groups.setdefault(prompt, []).append(index)
    shared = [index for members in groups.values() if len(members) > 1 for index in members]
    alone = [members[0] for members in groups.values() if len(members) == 1]
    for batch in plan_passes(sequences, alone, PREFILL_SEQUENCES, shared=False):
        long = len(batch) == 1 and sum(map(len, sequences[batch[0]])) > PREFILL_TOKENS
        _whole([sequences[index] for index in batch], batch, out, forward, new_cache() if long else None, device)
    for batch in plan_passes(sequences, shared, PREFILL_SEQUENCES, shared=True):
        _after_prompts([sequences[index] for index in batch], batch, out, forward, new_cache(), device)
    return out


def prefill_prompts(
    prompts: Sequence[tuple[int, ...]], forward: Forward, cache: Any, device: str
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
    """Fill `cache` with prompts padded on the left; equal ones are computed once and then expanded. Return the hidden
    states [B, d] of their last tokens, the padding mask [B, P] (None: no padding), lengths [B]."""
    distinct = list(dict.fromkeys(prompts))
    ids, mask = _pad(distinct, left=True)
    mask = mask.to(device)
    padding = None if bool(mask.all()) else mask
    positions = (mask.cumsum(1) - 1).clamp_(min=0)
    last = _in_parts(ids.to(device), padding, positions, cache, forward, keep=1)[:, -1]
    number = {prompt: row for row, prompt in enumerate(distinct)}
    expand = torch.tensor([number[prompt] for prompt in prompts], device=device)
    if len(distinct) < len(prompts):
        cache.batch_select_indices(expand)
    return last[expand], None if padding is None else padding[expand], mask.sum(1)[expand]


def _pad(texts: Sequence[tuple[int, ...]], left: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Return token ids and mask, both int64 [n, longest]."""
    rows = [torch.tensor(text, dtype=torch.long) for text in texts]
    padded = partial(pad_sequence, batch_first=True, padding_side="left" if left else "right")
    return padded(rows), padded([torch.ones_like(row) for row in rows])


def _in_parts(
    ids: torch.Tensor, mask: torch.Tensor | None, positions: torch.Tensor, cache: Any, forward: Forward, keep: int
) -> torch.Tensor:
    """Return the last `keep` rows [B, keep, d] of tokens that follow those in `cache`: computed at once where they are
    few, else in parts whose attention takes no more memory than that."""
    batch, length = ids.shape
    before = cache.get_seq_length() if cache is not None else 0
    if cache is None or batch * length <= PREFILL_TOKENS:
        return forward(ids, mask, positions, cache)[:, -keep:]
    rows, start = ids.new_empty(0), 0
    while start < length:
        count = max(1, PREFILL_TOKENS // batch)
        while count > _LEAST_PART and count * (before + start + count) > PREFILL_TOKENS**2:
            count //= 2
        end = min(start + count, length)
        seen = None if mask is None else mask[:, : before + end]
        part = forward(ids[:, start:end], seen, positions[:, start:end], cache)
        if not start:
            rows = part.new_empty(batch, keep, part.shape[2])
        first = start - (length - keep)  # place of the part's first row among those that are kept
        rows[:, max(first, 0) : max(first + end - start, 0)] = part[:, max(-first, 0) :]
        start = end
    return rows


def _whole(
    texts: Sequences, members: list[int], out: list[torch.Tensor], forward: Forward, cache: Any, device: str
) -> None:
    """Prompt and output in one pass, padding on the right: causal attention keeps it away from every row used. `cache`:
    for one long text alone."""
    # The last output token produced nothing: it is not fed.
    ids, _ = _pad([prompt + output[:-1] for prompt, output in texts], left=False)
    positions = torch.arange(ids.shape[1]).expand(len(texts), -1)
    keep = ids.shape[1] - min(len(prompt) - 1 for prompt, _ in texts)
    hidden = _in_parts(ids.to(device), None, positions.to(device), cache, forward, keep)
    for row, (at, (prompt, output)) in enumerate(zip(members, texts, strict=True)):
        first = len(prompt) - 1 - (ids.shape[1] - keep)
        rows = hidden[row, first : first + len(output)]
        out[at] = rows if len(texts) == 1 else rows.clone()


def _after_prompts(
    texts: Sequences, members: list[int], out: list[torch.Tensor], forward: Forward, cache: Any, device: str
) -> None:
    """The prompts, then the outputs of all their samples, padded on the right."""
    last, padding, lengths = prefill_prompts([prompt for prompt, _ in texts], forward, cache, device)
    hidden = last[:, None]
    if max(len(output) for _, output in texts) > 1:
        ids, _ = _pad([output[:-1] for _, output in texts], left=False)
        positions = lengths[:, None] + torch.arange(ids.shape[1], device=device)
        # Padding on the right may be attended by padding alone: only the prompts' needs a mask.
        seen = None if padding is None else torch.cat([padding, padding.new_ones(ids.shape)], dim=1)
        more = _in_parts(ids.to(device), seen, positions, cache, forward, ids.shape[1])
        hidden = torch.cat([hidden, more], dim=1)
    for row, (at, (_, output)) in enumerate(zip(members, texts, strict=True)):
        rows = hidden[row, : len(output)]
        out[at] = rows if len(texts) == 1 else rows.clone()
