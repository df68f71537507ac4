# mypy: ignore-errors
# Triton is a language of its own, present only where CUDA is; type checkers cannot follow it.
"""The protocol's sampling on CUDA: Triton kernels make the noise and run the race (docs/reference/protocol.md, 4).

A first pass in float32 finds the best score of each part of the vocabulary. The second repeats in float64, as the
protocol defines scores, the parts that are within the first one's errors of the best: one or two of a hundred, so that
cards that are slow in float64 are not slowed down. The choice agrees with the CPU's, save where the two libraries'
logarithms differ in the last bit of a near tie.
"""

from collections.abc import Sequence

import numpy as np
import torch
import triton
import triton.language as tl

BLOCKS = 128  # Of eight tokens, that one program of the first pass handles


@triton.jit
def _random(keys, row, position, block):
    """The 256 bits of each block: four vectors of 64-bit words."""
    c0 = (block + 1).to(tl.uint64)
    c1 = tl.zeros_like(c0) + position.to(tl.uint64, bitcast=True)
    c2 = tl.zeros_like(c0) + tl.load(keys + row * 3 + 1).to(tl.uint64, bitcast=True)
    c3 = tl.zeros_like(c0) + tl.load(keys + row * 3 + 2).to(tl.uint64, bitcast=True)
    k0 = tl.zeros_like(c0) + tl.load(keys + row * 3).to(tl.uint64, bitcast=True)
    k1 = tl.zeros_like(c0)
    m0 = tl.zeros_like(c0) + 0xD2E7470EE14C6C93
    m1 = tl.zeros_like(c0) + 0xCA5A826395121157
    for _ in tl.static_range(10):
        h0, l0 = tl.umulhi(m0, c0), m0 * c0
        h1, l1 = tl.umulhi(m1, c2), m1 * c2
        c0, c1, c2, c3 = h1 ^ c1 ^ k0, l1, h0 ^ c3 ^ k1, l0
        k0 = k0 + 0x9E3779B97F4A7C15
        k1 = k1 + 0xBB67AE8584CAA73B
    return c0, c1, c2, c3


@triton.jit
def _number(words, lane: tl.constexpr):
    """The lane-th of the eight 32-bit numbers in each block's words."""
    word = words[lane // 2]
    return (word >> 32) if lane % 2 == 1 else (word & 0xFFFFFFFF)


@triton.jit
def _exponential32(x):
    """−log1p(−u) within 4e-6 of itself: a series below 1/4, and 1 − u from the complement's bits above it."""
    u = (x.to(tl.float32) + 0.5) * 2.3283064365386963e-10
    rest = ((4294967295 - x).to(tl.float32) + 0.5) * 2.3283064365386963e-10
    series = 1.0 / 9
    series = 1.0 / 8 + u * series
    series = 1.0 / 7 + u * series
    series = 1.0 / 6 + u * series
    series = 1.0 / 5 + u * series
    series = 1.0 / 4 + u * series
    series = 1.0 / 3 + u * series
    series = 1.0 / 2 + u * series
    series = 1.0 + u * series
    return tl.where(u < 0.25, u * series, -tl.log(tl.maximum(rest, 5.9604645e-08)))


@triton.jit
def _exponential(x):
    """−log1p(−u); for u below 1/2 the compensation keeps small values exact."""
    u = tl.minimum((x.to(tl.float64) + 0.5) * 2.3283064365386963e-10, 0.999999940395355224609375)
    shifted = 1.0 - u
    return -tl.log(shifted) * (u / tl.maximum(1.0 - shifted, 1e-300))


@triton.jit
def _sieve(logits, stride, vocabulary, keys, positions, temperatures, best, top, total, parts, BLOCKS: tl.constexpr):
    """Program (row, part): of tokens part · 8 · BLOCKS …, the best score, the largest logit, and Σ exp of the logits'
    distances from it at the temperature."""
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    temperature = tl.load(temperatures + row).to(tl.float32)
    if temperature > 0:
        block = part * BLOCKS + tl.arange(0, BLOCKS)
        words = _random(keys, row, tl.load(positions + row), block)
        score = tl.full((BLOCKS,), float("-inf"), tl.float32)
        most = tl.full((BLOCKS,), -3.0e38, tl.float32)
        weight = tl.zeros((BLOCKS,), tl.float32)
        for lane in tl.static_range(8):
            at = block * 8 + lane
            value = tl.load(logits + row * stride + at, mask=at < vocabulary, other=float("-inf"))
            score = tl.maximum(score, value / temperature - tl.log(_exponential32(_number(words, lane))))
            larger = tl.maximum(most, value)
            weight = weight * tl.exp((most - larger) / temperature) + tl.exp((value - larger) / temperature)
            most = larger
        largest = tl.max(most, axis=0)
        tl.store(best + row * parts + part, tl.max(score, axis=0))
        tl.store(top + row * parts + part, largest)
        tl.store(total + row * parts + part, tl.sum(weight * tl.exp((most - largest) / temperature), axis=0))


@triton.jit
def _race(
    logits, stride, vocabulary, keys, positions, temperatures, best, top, total, parts, tokens, logprobs,
    BLOCKS: tl.constexpr, PARTS: tl.constexpr, FORCE: tl.constexpr,
):  # fmt: skip
    """Program (row): the lowest token of the best float64 score, and its ln p. FORCE: its logit becomes infinite."""
    row = tl.program_id(0).to(tl.int64)
    temperature = tl.load(temperatures + row)
    if temperature > 0:
        every = tl.arange(0, PARTS)
        there = every < parts
        bests = tl.load(best + row * parts + every, mask=there, other=float("-inf"))
        bound = tl.max(bests, axis=0)
        bound = bound - 1e-3 - 1e-6 * tl.abs(bound)
        tops = tl.load(top + row * parts + every, mask=there, other=-3.0e38).to(tl.float64)
        largest = tl.max(tops, axis=0)
        weights = tl.load(total + row * parts + every, mask=there, other=0.0).to(tl.float64)
        weight = tl.sum(weights * tl.exp((tops - largest) / temperature), axis=0)
        score = tl.full((), float("-inf"), tl.float64)
        token = tl.full((), 0, tl.int64)
        for part in range(parts):
            if tl.load(best + row * parts + part) >= bound:
                block = part * BLOCKS + tl.arange(0, BLOCKS)
                words = _random(keys, row, tl.load(positions + row), block)
                for lane in tl.static_range(8):
                    at = block * 8 + lane
                    value = tl.load(logits + row * stride + at, mask=at < vocabulary, other=float("-inf"))
                    own = value.to(tl.float64) / temperature - tl.log(_exponential(_number(words, lane)))
                    highest = tl.max(own, axis=0)
                    first = tl.min(tl.where(own == highest, at, 2147483647), axis=0).to(tl.int64)
                    better = (highest > score) | ((highest == score) & (first < token))
                    score = tl.where(better, highest, score)
                    token = tl.where(better, first, token)
        value = tl.load(logits + row * stride + token).to(tl.float64)
        tl.store(tokens + row, token)
        tl.store(logprobs + row, (value - largest) / temperature - tl.log(weight))
        if FORCE:
            tl.store(logits + row * stride + token, float("inf"))


def race(
    logits: torch.Tensor, keys: torch.Tensor, positions: torch.Tensor, temperatures: torch.Tensor, force: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Choose a token per row of `logits` [B, V] float32, without waiting for the device.

    keys: [B, 3], the words' bits as int64. positions: int64 [B]. temperatures: float64 [B]; where one is 0, nothing is
    chosen: −1 and 0. Return tokens int64 [B] and ln p float64 [B], which is not finite where the logits are not.
    `force`: the chosen logits become infinite in place.
    """
    rows, vocabulary = logits.shape
    parts = -(-vocabulary // (8 * BLOCKS))
    best, top, total = logits.new_empty(3, rows, parts)
    tokens = torch.full((rows,), -1, dtype=torch.int64, device=logits.device)
    logprobs = torch.zeros(rows, dtype=torch.float64, device=logits.device)
    given = logits, logits.stride(0), vocabulary, keys, positions, temperatures, best, top, total, parts
    if rows:
        _sieve[(rows, parts)](*given, BLOCKS=BLOCKS)
        _race[(rows,)](*given, tokens, logprobs, BLOCKS=BLOCKS, PARTS=triton.next_power_of_2(parts), FORCE=force)
    return tokens, logprobs


def signed_words(values: Sequence[Sequence[int]]) -> torch.Tensor:
    """Return 64-bit words as int64 of the same bits, on the CPU."""
    return torch.from_numpy(np.array(values, dtype=np.uint64).view(np.int64))


def choose(
    logits: torch.Tensor, keys: Sequence[tuple[int, int, int]], positions: Sequence[int], temperature: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return tokens and log-probabilities of `noise.choose` for logits [B, V] float32 on a CUDA device."""
    device = logits.device
    tokens, logprobs = race(
        logits.contiguous(),
        signed_words(keys).to(device),
        signed_words([positions])[0].to(device),
        torch.full((len(keys),), temperature, dtype=torch.float64, device=device),
    )
    return tokens.cpu().numpy(), logprobs.cpu().numpy()


# A verifier's check: `noise.verify_rows` on the device, of which six figures a token come back


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
    words, positions_word = signed_words(keys).to(device), signed_words([positions])[0].to(device)
    mine = torch.from_numpy(chosen).to(device)
    temperatures = torch.full((rows,), temperature, dtype=torch.float64, device=device)
    best, best_logprobs = race(logits, words, positions_word, temperatures)
    scores = torch.empty(2, rows, dtype=torch.float64, device=device)
    for tokens, out in zip((best, mine), scores, strict=True):
        if rows:
            _score[(rows,)](logits, logits.stride(0), words, positions_word, tokens, temperatures, out)
    values = logits.gather(1, torch.stack([best, mine], 1)).double()
    logprobs = best_logprobs + (values[:, 1] - values[:, 0]) / temperature
    p = torch.softmax(logits / temperature, 1)
    sums = p.sqrt().sum(1), p.square_().sum(1)
    figures = [
        (scores[0] - scores[1]).clamp_(min=0),
        logprobs,
        best_logprobs,
        *(total.double().log() for total in sums),
    ]
    gaps, logprobs, best_logprobs, roots, squares, best = torch.stack([*figures, best.double()]).cpu().numpy()
    return gaps, logprobs, best.astype(np.int64), best_logprobs, roots, squares
