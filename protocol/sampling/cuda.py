# mypy: ignore-errors
# Triton is a language of its own, present only where CUDA is; type checkers cannot follow it.
"""The protocol's sampling on CUDA: one Triton kernel makes the noise and runs the race (docs/reference/protocol.md, 4).

Scores are float64 as in the protocol, so the choice agrees with the CPU's, save where the two libraries' logarithms
differ in the last bit of a near tie.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

from protocol.errors import MusterError

BLOCKS = 128  # Of eight tokens, that one program handles


@triton.jit
def _race(
    logits, vocabulary, stride, keys, positions, temperature, best_score, best_token, parts, BLOCKS: tl.constexpr
):
    """Program (row, part): the best score of tokens part · 8 · BLOCKS … and the lowest token that has it."""
    row, part = tl.program_id(0), tl.program_id(1)
    block = part * BLOCKS + tl.arange(0, BLOCKS)
    c0 = (block + 1).to(tl.uint64)
    c1 = tl.zeros_like(c0) + tl.load(positions + row).to(tl.uint64, bitcast=True)
    c2 = tl.zeros_like(c0) + tl.load(keys + row * 3 + 1).to(tl.uint64, bitcast=True)
    c3 = tl.zeros_like(c0) + tl.load(keys + row * 3 + 2).to(tl.uint64, bitcast=True)
    k0 = tl.zeros_like(c0) + tl.load(keys + row * 3).to(tl.uint64, bitcast=True)
    k1 = tl.zeros_like(c0)
    m0 = tl.full((BLOCKS,), 0xD2E7470EE14C6C93, tl.uint64)
    m1 = tl.full((BLOCKS,), 0xCA5A826395121157, tl.uint64)
    for _ in tl.static_range(10):
        h0, l0 = tl.umulhi(m0, c0), m0 * c0
        h1, l1 = tl.umulhi(m1, c2), m1 * c2
        c0, c1, c2, c3 = h1 ^ c1 ^ k0, l1, h0 ^ c3 ^ k1, l0
        k0 = k0 + tl.full((BLOCKS,), 0x9E3779B97F4A7C15, tl.uint64)
        k1 = k1 + tl.full((BLOCKS,), 0xBB67AE8584CAA73B, tl.uint64)
    score = tl.full((), float("-inf"), tl.float64)
    token = tl.full((), 0, tl.int64)
    for lane in tl.static_range(8):
        word = c0
        if lane // 2 == 1:
            word = c1
        elif lane // 2 == 2:
            word = c2
        elif lane // 2 == 3:
            word = c3
        x = (word >> 32) if lane % 2 == 1 else (word & 0xFFFFFFFF)
        u = tl.minimum((x.to(tl.float64) + 0.5) * 2.3283064365386963e-10, 0.999999940395355224609375)
        at = block * 8 + lane
        value = tl.load(logits + row.to(tl.int64) * stride + at, mask=at < vocabulary, other=float("-inf"))
        # −log1p(−u): for u below 1/2 the series' compensation keeps the small values exact.
        shifted = 1.0 - u
        e = -tl.log(shifted) * (u / tl.maximum(1.0 - shifted, 1e-300))
        own = value.to(tl.float64) / temperature - tl.log(e)
        top = tl.max(own, axis=0)
        first = tl.min(tl.where(own == top, at, 2147483647), axis=0).to(tl.int64)
        better = (top > score) | ((top == score) & (first < token))
        score = tl.where(better, top, score)
        token = tl.where(better, first, token)
    tl.store(best_score + row * parts + part, score)
    tl.store(best_token + row * parts + part, token)


def _words(values: Sequence[Sequence[int]], device: torch.device) -> torch.Tensor:
    return torch.from_numpy(np.array(values, dtype=np.uint64).view(np.int64)).to(device)


def choose(
    logits: torch.Tensor, keys: Sequence[tuple[int, int, int]], positions: Sequence[int], temperature: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return tokens and log-probabilities of `noise.choose` for logits [B, V] float32 on a CUDA device."""
    if logits.dtype != torch.float32 or logits.ndim != 2 or not len(logits) == len(keys) == len(positions):
        raise MusterError(f"logits {tuple(logits.shape)} for {len(keys)} keys", "give float32 [rows, vocabulary]")
    if not temperature > 0:
        raise MusterError(f"temperature {temperature} is not positive", "set sampling.temperature above 0")
    if not bool(torch.isfinite(logits.max(dim=1).values).all()):
        raise MusterError("the model's logits are not finite", "its weights are broken; load them again")
    logits = logits.contiguous()
    rows, vocabulary = logits.shape
    parts = -(-vocabulary // (8 * BLOCKS))
    score = torch.empty(rows, parts, dtype=torch.float64, device=logits.device)
    token = torch.empty(rows, parts, dtype=torch.int64, device=logits.device)
    kernel: Any = _race
    kernel[(rows, parts)](
        logits,
        vocabulary,
        logits.stride(0),
        _words(keys, logits.device),
        _words([positions], logits.device)[0],
        temperature,
        score,
        token,
        parts,
        BLOCKS=BLOCKS,
    )
    # argmax returns the first part that has the maximum; parts ascend, so ties go to the lowest token.
    best = torch.where(score == score.amax(1, keepdim=True), token, vocabulary).amin(1)
    scaled = logits.double() / temperature
    logprobs = scaled.gather(1, best[:, None])[:, 0] - torch.logsumexp(scaled, dim=1)
    return best.cpu().numpy(), logprobs.cpu().numpy()
