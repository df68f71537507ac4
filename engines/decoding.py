"""Batched decoding with proofs: one wave of requests from their prompts to their last tokens."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

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

    request: Request
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    proofs: list[bytes] = field(default_factory=list)
    tail: torch.Tensor | None = None
    finish: int = FINISH_LENGTH

    def place(self, step: int) -> int:
        """Return where in its chunk the state of this step's token stands."""
        return (self.request.sampled + step) % CHUNK

    def completion(self) -> Completion:
        tail = to_bytes(self.tail) if self.tail is not None and self.request.goes_on else b""
        return Completion(tuple(self.tokens), tuple(self.logprobs), self.finish, tuple(self.proofs), tail)


@torch.inference_mode()
def decode(
    requests: Sequence[Request], sampling: Sampling, forward: Forward, head: Head, cache: Any, device: str
) -> list[Completion]:
    """Complete requests that start together, in request order. Prompts are padded on the left, so that all rows are at
    the same output position. Rows that finish are taken out of the batch and of `cache`, which starts empty."""
    rows = [_Row(request) for request in requests]
    hidden, mask, lengths = prefill_prompts([request.prompt for request in requests], forward, cache, device)
    states = torch.empty(len(rows), CHUNK, hidden.shape[1], dtype=torch.bfloat16, device=device)
    for number, row in enumerate(rows):
        if row.request.sampled % CHUNK:
            states[number, : row.request.sampled % CHUNK] = from_bytes(row.request.tail, row.request.sampled).to(device)
    active, step = rows, 0
    while True:
        states[range(len(active)), [row.place(step) for row in active]] = hidden.to(torch.bfloat16)
        tokens, keep = _sample(active, head(hidden), step, sampling)
        if sampling.proven:
            _prove(active, states, step, keep)
        PACE.step()
        if not keep:
            break
        if len(keep) < len(active):
            index = torch.tensor(keep, device=device)
            cache.batch_select_indices(index)
            active = [active[row] for row in keep]
            states, lengths, tokens = states[index], lengths[index], tokens[index]
            mask = mask[index] if mask is not None else None
        if mask is not None:
            mask = torch.cat([mask, mask.new_ones(len(active), 1)], dim=1)
        hidden = forward(tokens[:, None], mask, (lengths + step)[:, None], cache)[:, 0]
        step += 1
    tails = [(row, row.tail) for row in rows if row.tail is not None]
    for (row, _), proofs in zip(tails, build_many([tail for _, tail in tails]), strict=True):
        row.proofs += proofs
    return [row.completion() for row in rows]


def _sample(active: list[_Row], logits: torch.Tensor, step: int, sampling: Sampling) -> tuple[torch.Tensor, list[int]]:
    """Append one token to every active row; return the tokens [B] and the rows that go on."""
    keys = [row.request.noise_key for row in active]
    chosen = choose(logits, keys, [row.request.sampled + step for row in active], sampling.temperature)
    keep = []
    for number, row in enumerate(active):
        token = int(chosen.tokens[number])
        row.tokens.append(token)
        row.logprobs.append(float(chosen.logprobs[number]))
        if token in sampling.eos_ids:
            row.finish = FINISH_EOS
        elif len(row.tokens) < row.request.max_new_tokens:
            keep.append(number)
    return torch.from_numpy(chosen.tokens).to(logits.device), keep


def _prove(active: list[_Row], states: torch.Tensor, step: int, keep: list[int]) -> None:
    """Prove chunks that are full; set aside the short last chunk of rows that end here."""
    filled = [row.place(step) + 1 for row in active]
    full = [number for number, count in enumerate(filled) if count == CHUNK]
    for number, proofs in zip(full, build_many([states[number] for number in full]), strict=True):
        active[number].proofs += proofs
    for number in set(range(len(active))).difference(keep, full):
        active[number].tail = states[number, : filled[number]].clone()
