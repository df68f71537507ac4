"""Batched decoding with proofs: requests join the batch as others end."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch.nn import functional as F

from engines.base import FINISH_EOS, FINISH_LENGTH, Completion, Request, Sampling
from engines.prefill import Forward, prefill_prompts
from engines.torch_process import PACE
from protocol.sampling.noise import choose
from protocol.toploc.codec import CHUNK
from protocol.toploc.proofs import build_many

Head = Callable[[torch.Tensor], torch.Tensor]  # hidden [n, d] → logits [n, V] float32


def to_bytes(rows: torch.Tensor) -> bytes:
    """Encode hidden states [n, d] bfloat16 of a chunk that is not full, from which a later turn's proof goes on."""
    return rows.cpu().contiguous().view(torch.int16).numpy().tobytes()


def from_bytes(tail: bytes, sampled: int) -> torch.Tensor:
    """Decode [sampled mod 32, d] bfloat16, on the CPU. Raises ValueError for bytes that are no such rows."""
    count = sampled % CHUNK
    if bool(tail) != bool(count) or (count and len(tail) % (2 * count)):
        raise ValueError(f"{len(tail)} bytes are not the hidden states of {count} tokens")
    if not count:
        return torch.empty(0, 0, dtype=torch.bfloat16)
    return torch.frombuffer(bytearray(tail), dtype=torch.int16).view(torch.bfloat16).reshape(count, -1)


@dataclass
class _Row:
    """One completion in the making."""

    ticket: int
    request: Request
    sampling: Sampling
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    proofs: list[bytes] = field(default_factory=list)
    tail: torch.Tensor | None = None
    finish: int = FINISH_LENGTH

    @property
    def place(self) -> int:
        """Where in its chunk the state of the next token stands."""
        return (self.request.sampled + len(self.tokens)) % CHUNK

    def completion(self) -> Completion:
        tail = to_bytes(self.tail) if self.tail is not None and self.request.goes_on else b""
        return Completion(tuple(self.tokens), tuple(self.logprobs), self.finish, tuple(self.proofs), tail)


class Batch:
    """At most `most` completions that are computed together, and those that wait to join them. Rows are padded on the
    left, so that all of them append at the same place of the cache."""

    def __init__(
        self, forward: Forward, head: Head, new_cache: Callable[[], Any], device: str, most: int, joins: int = 8
    ) -> None:
        self._forward, self._head, self._new_cache = forward, head, new_cache
        self._device, self._most, self._joins = device, most, -(-most // joins)
        self._waiting: list[_Row] = []
        self._clear()

    def _clear(self) -> None:
        self._active: list[_Row] = []
        self._cache: Any = None
        self._mask: torch.Tensor | None = None
        self._hidden = self._states = self._lengths = torch.empty(0)

    def add(self, tickets: Sequence[int], requests: Sequence[Request], sampling: Sampling) -> None:
        rows = [_Row(ticket, request, sampling) for ticket, request in zip(tickets, requests, strict=True)]
        # Equal prompts, then equal lengths, stay together: less to prefill, less padding.
        self._waiting += sorted(rows, key=lambda row: (len(row.request.prompt), row.request.prompt))

    def drop(self, tickets: Collection[int]) -> None:
        self._waiting = [row for row in self._waiting if row.ticket not in tickets]
        self._keep([number for number, row in enumerate(self._active) if row.ticket not in tickets])

    @torch.inference_mode()
    def step(self) -> list[tuple[int, Completion]]:
        """Sample a token of every row and compute the next states; return the rows that ended, by their tickets."""
        try:
            return self._step()
        except BaseException:
            self._waiting = []
            self._clear()
            raise

    def _step(self) -> list[tuple[int, Completion]]:
        # Several join at once, for each joining copies the cache.
        if self._waiting and (not self._active or self._most - len(self._active) >= self._joins):
            self._join()
        active = self._active
        if not active:
            return []
        self._states[range(len(active)), [row.place for row in active]] = self._hidden.to(torch.bfloat16)
        tokens, keep = self._sample()
        ended = [row for number, row in enumerate(active) if number not in set(keep)]
        if active[0].sampling.proven:
            self._prove(keep)
        PACE.step()
        self._keep(keep)
        if keep:
            if self._mask is not None:
                self._mask = torch.cat([self._mask, self._mask.new_ones(len(keep), 1)], dim=1)
            positions = self._lengths[:, None]
            self._hidden = self._forward(tokens[keep][:, None], self._mask, positions, self._cache)[:, 0]
            self._lengths = self._lengths + 1
        return [(row.ticket, row.completion()) for row in ended]

    def _join(self) -> None:
        sampling = (self._active or self._waiting)[0].sampling
        room = self._most - len(self._active)
        rows = [row for row in self._waiting if row.sampling == sampling][:room]
        if not rows:
            return
        tickets = {row.ticket for row in rows}
        self._waiting = [row for row in self._waiting if row.ticket not in tickets]
        cache = self._new_cache()
        prompts = [row.request.prompt for row in rows]
        hidden, mask, lengths = prefill_prompts(prompts, self._forward, cache, self._device)
        states = torch.empty(len(rows), CHUNK, hidden.shape[1], dtype=torch.bfloat16, device=self._device)
        for number, row in enumerate(rows):
            if row.place:
                states[number, : row.place] = from_bytes(row.request.tail, row.request.sampled).to(self._device)
        if not self._active:
            self._cache, self._mask = cache, mask
            self._hidden, self._states, self._lengths = hidden, states, lengths
        else:
            ones = partial(torch.ones, dtype=torch.long, device=self._device)
            parts = ((self._mask, self._cache, len(self._active)), (mask, cache, len(rows)))
            masks = [ones(count, past.get_seq_length()) if part is None else part for part, past, count in parts]
            longest = max(part.shape[1] for part in masks)
            joined = torch.cat([F.pad(part, (longest - part.shape[1], 0)) for part in masks])
            self._mask = None if bool(joined.all()) else joined
            _append(self._cache, cache)
            self._hidden, self._states = torch.cat([self._hidden, hidden]), torch.cat([self._states, states])
            self._lengths = torch.cat([self._lengths, lengths])
        self._active = self._active + rows

    def _keep(self, rows: list[int]) -> None:
        """Take all other rows out of the batch, and padding that is left of all that stay."""
        if len(rows) == len(self._active):
            return
        if not rows:
            self._clear()
            return
        index = torch.tensor(rows, device=self._device)
        self._active = [self._active[row] for row in rows]
        self._cache.batch_select_indices(index)
        self._states, self._hidden, self._lengths = self._states[index], self._hidden[index], self._lengths[index]
        if self._mask is not None:
            mask = self._mask[index]
            if spare := int(mask.argmax(1).min()):
                mask = mask[:, spare:]
                _trim(self._cache, spare)
            self._mask = None if bool(mask.all()) else mask

    def _sample(self) -> tuple[torch.Tensor, list[int]]:
        """Append one token to every active row; return the tokens [B] and the rows that go on."""
        active, sampling = self._active, self._active[0].sampling
        keys = [row.request.noise_key for row in active]
        positions = [row.request.sampled + len(row.tokens) for row in active]
        chosen = choose(self._head(self._hidden), keys, positions, sampling.temperature)
        keep = []
        for number, row in enumerate(active):
            token = int(chosen.tokens[number])
            row.tokens.append(token)
            row.logprobs.append(float(chosen.logprobs[number]))
            if token in sampling.eos_ids:
                row.finish = FINISH_EOS
            elif len(row.tokens) < row.request.max_new_tokens:
                keep.append(number)
        return torch.from_numpy(chosen.tokens).to(self._device), keep

    def _prove(self, keep: list[int]) -> None:
        """Prove chunks that are full, and the short last chunk of rows that end here."""
        goes_on, filled = set(keep), [row.place or CHUNK for row in self._active]
        due = [number for number, count in enumerate(filled) if count == CHUNK or number not in goes_on]
        chunks = [self._states[number, : filled[number]] for number in due]
        for number, chunk, proofs in zip(due, chunks, build_many(chunks), strict=True):
            self._active[number].proofs += proofs
            if len(chunk) < CHUNK:
                self._active[number].tail = chunk.clone()


def _append(cache: Any, other: Any) -> None:
    """Put the rows of one cache below those of another, the shorter padded on the left."""
    for mine, new in zip(cache.layers, other.layers, strict=True):
        longest = max(mine.keys.shape[-2], new.keys.shape[-2])
        for name in ("keys", "values"):
            both = [getattr(layer, name) for layer in (mine, new)]
            padded = [F.pad(values, (0, 0, longest - values.shape[-2], 0)) for values in both]
            setattr(mine, name, torch.cat(padded))
        if mine.is_sliding:
            mine.cumulative_length = max(mine.cumulative_length, new.cumulative_length)


def _trim(cache: Any, spare: int) -> None:
    """Take positions off the left."""
    for layer in cache.layers:
        kept = layer.get_seq_length() - spare
        if layer.is_sliding:
            layer.cumulative_length = kept
        layer.keys, layer.values = layer.keys[..., -kept:, :], layer.values[..., -kept:, :]
