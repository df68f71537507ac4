# mypy: ignore-errors
"""A verifier's noise check on CUDA: `noise.verify_rows` on the device, of which six figures a token come back."""

from collections.abc import Sequence

import numpy as np
import torch
import triton
import triton.language as tl

from protocol.sampling.cuda import _exponential, _number, _random, race, signed_words


@triton.jit
def _score(logits, stride, keys, positions, tokens, temperatures, scores):
    """Program (row): the float64 score of a token."""
    row, one = tl.program_id(0).to(tl.int64), tl.arange(0, 1)
    token = tl.load(tokens + row)
    words = _random(keys, row, tl.load(positions + row), token // 8 + one)
    number = _number(words, 0)
    for lane in tl.static_range(1, 8):
        number = tl.where(token % 8 == lane, _number(words, lane), number)
    value = tl.load(logits + row * stride + token).to(tl.float64)
    tl.store(scores + row + one, value / tl.load(temperatures + row) - tl.log(_exponential(number)))


def verify(
    logits: torch.Tensor,
    chosen: np.ndarray,
    keys: Sequence[tuple[int, int, int]],
    positions: Sequence[int],
    temperature: float,
) -> tuple[np.ndarray, ...]:
    """Return the figures of `noise.Gaps`, in its order, for logits [T, V] float32 on a CUDA device and tokens `chosen`
    int64."""
    logits, device, rows = logits.contiguous(), logits.device, len(chosen)
    words, places = signed_words(keys).to(device), signed_words([positions])[0].to(device)
    mine = torch.from_numpy(chosen).to(device)
    temperatures = torch.full((rows,), temperature, dtype=torch.float64, device=device)
    best, best_logprobs = race(logits, words, places, temperatures)
    scores = torch.empty(2, rows, dtype=torch.float64, device=device)
    for tokens, out in zip((best, mine), scores, strict=True):
        if rows:
            _score[(rows,)](logits, logits.stride(0), words, places, tokens, temperatures, out)
    values = logits.gather(1, torch.stack([best, mine], 1)).double()
    logprobs = best_logprobs + (values[:, 1] - values[:, 0]) / temperature
    p = torch.softmax(logits / temperature, 1)
    sums = p.sqrt().sum(1), p.square_().sum(1)
    figures = [(scores[0] - scores[1]).clamp_(min=0), logprobs, best_logprobs, *(one.double().log() for one in sums)]
    gaps, logprobs, best_logprobs, roots, squares, best = torch.stack([*figures, best.double()]).cpu().numpy()
    return gaps, logprobs, best.astype(np.int64), best_logprobs, roots, squares
