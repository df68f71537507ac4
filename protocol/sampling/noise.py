"""Sampling that anyone can recompute: counter-based noise and the token it chooses (docs/reference/protocol.md, 4).

A token wins the exponential race argmin E/p, which is argmax logit/T − ln E. Because E ≥ u, a token whose u/p exceeds
the best E/p known so far cannot win. Float32 sieves out all others, and float64 decides the race among the few that are
left. Where the weights of a block are so small that no u is small enough, its noise is not even made.

The random numbers are Philox4x64-10 with a counter per row (Salmon et al., "Parallel random numbers: as easy as 1, 2,
3", 2011). Its 64-bit products are written in halves, which compilers turn into vector instructions.
"""

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from protocol.compiled import compiled
from protocol.errors import MusterError

Word = np.uint64
Words = npt.NDArray[np.uint64]
NoiseKey = tuple[int, int, int]
Floats = npt.NDArray[np.float64]
Floats32 = npt.NDArray[np.float32]
Tokens = npt.NDArray[np.int64]
U32 = 2.0**-32
U_MAX = 1.0 - 2.0**-24
# Relative slack of the float32 sieve: exponents within reach of winning are below 26, so errors stay under 1e-5.
_SLACK = 1.0 + 1e-4
_LARGEST = float(np.finfo(np.float32).max)
_BLOCK = 1024  # tokens whose weights and noise are in the processor's cache together
_ROUNDS = 10
_HALF, _LOW = np.uint64(32), np.uint64(0xFFFFFFFF)
_M0, _M1 = (np.uint64(0xE14C6C93), np.uint64(0xD2E7470E)), (np.uint64(0x95121157), np.uint64(0xCA5A8263))  # low, high
_W0, _W1 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBB67AE8584CAA73B)


@compiled
def _product(word: Word, factor: tuple[Word, Word]) -> tuple[Word, Word]:
    """Return the upper and the lower 64 bits of a product."""
    low, high = word & _LOW, word >> _HALF
    lowest = low * factor[0]
    inner = high * factor[0] + (lowest >> _HALF)
    outer = low * factor[1] + (inner & _LOW)
    return high * factor[1] + (inner >> _HALF) + (outer >> _HALF), (outer << _HALF) | (lowest & _LOW)


@compiled
def _philox(key: Words, position: Word, first: int, count: int, words: Words) -> None:
    """Column i < count of `words` gets the four words of block first + i of the stream of key [3] at a position."""
    word0, word1, word2, word3 = words[0], words[1], words[2], words[3]
    for at in range(count):
        # A block's number counts from one.
        word0[at], word1[at], word2[at], word3[at] = np.uint64(first + at + 1), position, key[1], key[2]
    k0, k1 = key[0], np.uint64(0)
    for _ in range(_ROUNDS):
        for at in range(count):
            (high0, low0), (high1, low1) = _product(word0[at], _M0), _product(word2[at], _M1)
            word0[at], word2[at] = high1 ^ word1[at] ^ k0, high0 ^ word3[at] ^ k1
            word1[at], word3[at] = low1, low0
        k0 += _W0
        k1 += _W1


@compiled
def _in_order(words: Words, count: int, out: Words) -> None:
    """Write the words of `count` blocks one block after the other."""
    word0, word1, word2, word3 = words[0], words[1], words[2], words[3]
    for at in range(count):
        out[4 * at], out[4 * at + 1], out[4 * at + 2], out[4 * at + 3] = word0[at], word1[at], word2[at], word3[at]


# The race


@dataclass(frozen=True)
class Choices:
    """`tokens` int64 [B] and `logprobs` float64 [B] = ln softmax(logits / T)[token]."""

    tokens: Tokens
    logprobs: Floats


@dataclass(frozen=True)
class Gaps:
    """What a verifier measures per row, all [T]: `gaps` = best score − chosen score ≥ 0, `logprobs` of the chosen
    tokens, `best` the tokens that its own logits would have chosen, `best_logprobs` theirs; of the whole distribution p
    (at the temperature) `log_root_sums` = ln Σ p^½ and `log_square_sums` = ln Σ p²."""

    gaps: Floats
    logprobs: Floats
    best: Tokens
    best_logprobs: Floats
    log_root_sums: Floats
    log_square_sums: Floats


def choose(logits: Any, keys: Sequence[NoiseKey], positions: Sequence[int], temperature: float) -> Choices:
    """Sample one token per row, which depends on that row alone.

    logits: [B, V] float32 (array, or tensor on any device). keys, positions: one per row. Raises MusterError if a row
    has a NaN or no finite logit.
    """
    _check(logits, keys, positions, temperature)
    if getattr(logits, "is_cuda", False):
        from protocol.sampling import cuda

        chosen = Choices(*cuda.choose(logits, keys, positions, temperature))
        check_finite(chosen.logprobs)
        return chosen
    matrix = np.ascontiguousarray(logits)
    choices = _raced(matrix, matrix.argmax(axis=1), keys, positions, temperature, 1)
    return Choices(choices.best, choices.best_logprobs)


def verify_rows(
    logits: Any,
    tokens: Sequence[int],
    keys: Sequence[NoiseKey],
    positions: Sequence[int],
    temperature: float,
    threads: int = 1,
) -> Gaps:
    """Recompute the race of tokens of any completions, together; what is found of a row depends on that row alone.

    logits: [T, V] float32 (array, or tensor on any device), row t produced tokens[t] under keys[t] at positions[t].
    threads: how many share the work on a CPU. Raises MusterError on a token outside the vocabulary, a wrong count or
    broken logits.
    """
    _check(logits, keys, positions, temperature)
    chosen = np.asarray(tokens, dtype=np.int64)
    if len(chosen) != len(logits) or (len(chosen) and (chosen.min() < 0 or chosen.max() >= logits.shape[1])):
        what = f"{len(chosen)} tokens for {len(logits)} rows, or a token outside the vocabulary of {logits.shape[1]}"
        raise MusterError(what, "check the tokens before sampling")
    if getattr(logits, "is_cuda", False):
        from protocol.sampling import cuda

        measured = Gaps(*cuda.verify(logits, chosen, keys, positions, temperature))
        check_finite(measured.best_logprobs)
        return measured
    return _raced(np.ascontiguousarray(logits), chosen, keys, positions, temperature, threads)


def _raced(
    logits: Floats32,
    chosen: Tokens,
    keys: Sequence[NoiseKey],
    positions: Sequence[int],
    temperature: float,
    threads: int,
) -> Gaps:
    tops = logits.argmax(axis=1)  # the place of a NaN, if there is one
    check_finite(logits[np.arange(len(tops)), tops])
    streams, position_words = _words(keys, positions)
    best, figures = np.empty(len(chosen), dtype=np.int64), np.empty((5, len(chosen)))

    def part(rows: slice) -> None:
        _race(
            logits[rows], tops[rows], chosen[rows], streams[rows], position_words[rows], temperature, best[rows],
            figures[:, rows],
        )  # fmt: skip

    size = max(1, -(-len(chosen) // threads))
    parts = [slice(start, start + size) for start in range(0, len(chosen), size)]
    if len(parts) == 1:
        part(parts[0])
    elif parts:
        with ThreadPoolExecutor(len(parts)) as pool:
            list(pool.map(part, parts))
    gaps, logprobs, best_logprobs, roots, squares = figures
    return Gaps(gaps, logprobs, best, best_logprobs, roots, squares)


def _words(keys: Sequence[NoiseKey], positions: Sequence[int]) -> tuple[Words, Words]:
    """Return keys [B, 3] and positions [B] as words. Raises MusterError for what is no word."""
    if any(len(key) != 3 for key in keys) or not all(0 <= word < 1 << 64 for key in keys for word in key):
        raise MusterError("a noise key has three words of 64 bits", "see seeds.noise_key")
    if not all(0 <= position < 1 << 64 for position in positions):
        raise MusterError("a position is a number of 64 bits", "count them from 0")
    return np.array(keys, dtype=np.uint64).reshape(-1, 3), np.array(positions, dtype=np.uint64)


def _check(logits: Any, keys: Sequence[NoiseKey], positions: Sequence[int], temperature: float) -> None:
    kind, shape = str(logits.dtype).removeprefix("torch."), tuple(logits.shape)
    if kind != "float32" or len(shape) != 2 or not shape[0] == len(keys) == len(positions) or not shape[1]:
        what = f"logits of shape {shape} and type {kind} for {len(keys)} keys and {len(positions)} positions"
        raise MusterError(what, "give float32 [rows, vocabulary], and a key and a position for each row")
    if not temperature > 0:
        raise MusterError(f"temperature {temperature} is not positive", "set sampling.temperature above 0")


def check_finite(values: npt.NDArray[Any]) -> None:
    """Raise MusterError unless logits, or what was computed of them, are finite."""
    if not np.isfinite(values).all():
        raise MusterError("the model's logits are not finite", "its weights are broken; load them again")


@compiled
def _race(
    logits: Floats32,
    tops: Tokens,
    chosen: Tokens,
    keys: Words,
    positions: Words,
    temperature: float,
    best: Tokens,
    figures: Floats,
) -> None:
    """Run the races of some rows. tops: the tokens of the largest logits. Fills best [T] and figures [5, T], those of
    `Gaps` without `best`, in its order."""
    inverse = np.float32(1.0 / temperature)
    words, ordered = np.empty((4, _BLOCK // 8), dtype=np.uint64), np.empty(_BLOCK // 2, dtype=np.uint64)
    weights, powers, noise = np.empty(_BLOCK, np.float32), np.empty(_BLOCK, np.int32), ordered.view(np.uint32)
    two_to, weight_bits = powers.view(np.float32), weights.view(np.int32)
    for row in range(len(logits)):
        logit, mine = logits[row], chosen[row]
        top = logit[tops[row]]
        own = _score_of(logit, mine, keys[row], positions[row], temperature)
        score, token = own, mine
        # A token far behind lets a whole vocabulary into the race, and text that nobody sampled has no other.
        if mine != tops[row]:
            other = _score_of(logit, tops[row], keys[row], positions[row], temperature)
            if other > own or (other == own and tops[row] < mine):
                score, token = other, tops[row]
        limit = _limit(top, score, temperature)
        total, roots, squares = 0.0, 0.0, 0.0
        for first in range(0, len(logit), _BLOCK):
            size = min(_BLOCK, len(logit) - first)
            sums = _weigh(logit[first : first + size], top, inverse, powers, weights)
            total += float(sums[0])
            roots += float(sums[1])
            squares += float(sums[2])
            # u is at least half of 2⁻³².
            powers[0] = _largest(weight_bits[:size])
            if two_to[0] * limit < np.float32(0.5):
                continue
            _philox(keys[row], positions[row], first // 8, (size + 7) // 8, words)
            _in_order(words, (size + 7) // 8, ordered)
            if not _count(noise[:size], weights[:size], limit):
                continue
            for at in range(size):
                if np.float32(noise[at]) + np.float32(0.5) <= weights[at] * limit:
                    exact = _score(logit[first + at], noise[at], temperature)
                    if exact > score or (exact == score and first + at < token):
                        score, token = exact, first + at
                        limit = _limit(top, score, temperature)
        best[row] = token
        log_total = math.log(total)
        figures[0, row] = score - own
        figures[1, row] = (np.float64(logit[mine]) - np.float64(top)) / temperature - log_total
        figures[2, row] = (np.float64(logit[token]) - np.float64(top)) / temperature - log_total
        figures[3, row] = math.log(roots) - log_total / 2
        figures[4, row] = math.log(squares) - 2 * log_total


@compiled
def _score(logit: Any, raw: np.uint32, temperature: float) -> Any:
    """Return a token's score as the protocol defines it. raw: its random number."""
    u = min((np.float64(raw) + 0.5) * U32, U_MAX)
    return np.float64(logit) / temperature - math.log(-math.log1p(-u))


@compiled
def _score_of(logits: Floats32, token: int, key: Words, position: Word, temperature: float) -> Any:
    words = np.empty((4, 1), dtype=np.uint64)
    _philox(key, position, token // 8, 1, words)
    word = words[token % 8 // 2, 0]
    return _score(logits[token], np.uint32(word >> _HALF if token % 2 else word & _LOW), temperature)


@compiled
def _limit(top: Any, score: float, temperature: float) -> np.float32:
    """Return what E/p of a token must not exceed to reach a score: p by the top logit, E in raw numbers."""
    return np.float32(min(math.exp(min(top / temperature - score, 700.0)) * (_SLACK / U32), _LARGEST))


# Sums in any order, which vector instructions need; infinities keep their meaning.
@partial(compiled, fastmath={"reassoc", "contract", "nsz"})
def _weigh(
    logits: Floats32, top: np.float32, inverse: np.float32, powers: npt.NDArray[np.int32], weights: Floats32
) -> tuple[np.float32, np.float32, np.float32]:
    """Fill `weights` with exp((logits − top) · inverse), 0 where that is below 2⁻¹²⁵. Return their sum, that of their
    roots and that of their squares. `powers`: room for as many."""
    two_to = powers.view(np.float32)
    for at in range(len(logits)):
        x = max((logits[at] - top) * inverse, np.float32(-87.0))
        power = np.int32(x * np.float32(1.4426950408889634) - np.float32(0.5))  # x ≤ 0: to the nearest
        # ln 2 in two parts, of which products with the first are exact.
        rest = x - np.float32(power) * np.float32(0.693145751953125)
        rest -= np.float32(power) * np.float32(1.4286068203094172e-06)
        series = np.float32(1 / 5040)
        series = np.float32(1 / 720) + rest * series
        series = np.float32(1 / 120) + rest * series
        series = np.float32(1 / 24) + rest * series
        series = np.float32(1 / 6) + rest * series
        series = np.float32(1 / 2) + rest * series
        series = np.float32(1) + rest * series
        weights[at] = np.float32(1) + rest * series
        powers[at] = (power + np.int32(127)) << np.int32(23)
    total = roots = squares = np.float32(0)
    for at in range(len(logits)):
        weight = weights[at] * two_to[at]
        weight = weight if weight > np.float32(2.0**-125) else np.float32(0)
        weights[at] = weight
        total += weight
        roots += np.sqrt(weight)
        squares += weight * weight
    return total, roots, squares


@compiled
def _count(noise: npt.NDArray[np.uint32], weights: Floats32, limit: np.float32) -> int:
    """Return how many tokens of a block may reach the limit."""
    count = 0
    for at in range(len(weights)):
        count += np.float32(noise[at]) + np.float32(0.5) <= weights[at] * limit
    return count


@compiled
def _largest(bits: npt.NDArray[np.int32]) -> np.int32:
    """Return the bits of the largest of some weights: none is negative, so their bits have the same order."""
    largest = np.int32(0)
    for at in range(len(bits)):
        largest = max(largest, bits[at])
    return largest
