"""Sampling that anyone can recompute: counter-based noise and the token it chooses (docs/reference/protocol.md, 4).

A token wins the exponential race argmin E/p, which is argmax logit/T − ln E. Because E ≥ u, the race is decided exactly
(float64) among the few tokens with u/p below the best known E/p; float32 sieves out the rest.

The random numbers are Philox4x64-10 with a counter per row (Salmon et al., "Parallel random numbers: as easy as 1, 2,
3", 2011). NumPy's own generator takes an object per row, which costs more than all arithmetic at small vocabularies.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

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
MOST_EXPECTED = 256.0
"""Candidates of a race that its bound may let through on average, before a better bound is looked for."""
# Relative slack of the float32 sieve: exponents within reach of winning are below 26, so errors stay under 1e-5.
_SLACK = 1.0 + 1e-4
_ROUNDS = 10
_M0, _M1 = np.uint64(0xD2E7470EE14C6C93), np.uint64(0xCA5A826395121157)
_W0, _W1 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBB67AE8584CAA73B)
_HALF = np.uint64(32)


@intrinsic  # type: ignore[untyped-decorator]
def _high(_context: Any, left: Any, right: Any) -> Any:
    """Return the upper 64 bits of a product of two 64-bit words: one instruction, for which numba has no word."""

    def product(_target: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        wide = ir.IntType(128)
        whole = builder.mul(*(builder.zext(argument, wide) for argument in arguments))
        return builder.trunc(builder.lshr(whole, ir.Constant(wide, 64)), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), product


@compiled
def _block(key: Word, counter: tuple[Word, Word, Word, Word]) -> tuple[Word, Word, Word, Word]:
    """Return the four words of one block."""
    c0, c1, c2, c3 = counter
    k0, k1 = key, np.uint64(0)
    for _ in range(_ROUNDS):
        high0, high1 = _high(_M0, c0), _high(_M1, c2)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, _M1 * c2, high0 ^ c3 ^ k1, _M0 * c0
        k0 += _W0
        k1 += _W1
    return c0, c1, c2, c3


@compiled
def fill(keys: Words, positions: Words, out: npt.NDArray[np.uint32]) -> None:
    """Row i of `out` [B, V] gets the first V little-endian 32-bit numbers of the stream of keys[i] [B, 3] at
    positions[i] [B]."""
    rows, size = out.shape
    for row in range(rows):
        key, position, second, third = keys[row, 0], positions[row], keys[row, 1], keys[row, 2]
        for block in range((size + 7) // 8):
            # A block's number counts from one.
            words = _block(key, (np.uint64(block + 1), position, second, third))
            at = 8 * block
            for word in words:
                if at < size:
                    out[row, at] = np.uint32(word)
                if at + 1 < size:
                    out[row, at + 1] = np.uint32(word >> _HALF)
                at += 2


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


def _raw(keys: Sequence[NoiseKey], positions: Sequence[int], vocab: int) -> npt.NDArray[np.uint32]:
    """Return the first `vocab` numbers of the stream of each row, uint32 [B, V]."""
    if any(len(key) != 3 for key in keys) or not all(0 <= word < 1 << 64 for key in keys for word in key):
        raise MusterError("a noise key has three words of 64 bits", "see seeds.noise_key")
    if not all(0 <= position < 1 << 64 for position in positions):
        raise MusterError("a position is a number of 64 bits", "count them from 0")
    out = np.empty((len(keys), vocab), dtype=np.uint32)
    fill(np.array(keys, dtype=np.uint64).reshape(-1, 3), np.array(positions, dtype=np.uint64), out)
    return out


def _uniform(x: Any) -> Floats:
    u: Floats = np.minimum((np.asarray(x, dtype=np.float64) + 0.5) * U32, U_MAX)
    return u


def choose(logits: Any, keys: Sequence[NoiseKey], positions: Sequence[int], temperature: float) -> Choices:
    """Sample one token per row, which depends on that row alone.

    logits: [B, V] float32 (array, or tensor on any device). keys, positions: one per row. Raises MusterError if a row
    has a NaN or no finite logit.
    """
    if getattr(logits, "is_cuda", False):
        from protocol.sampling import cuda

        return Choices(*cuda.choose(logits, keys, positions, temperature))
    matrix = _checked(logits, len(keys), keys, positions, temperature)
    tokens = np.empty(len(keys), dtype=np.int64)
    logprobs = np.empty(len(keys), dtype=np.float64)
    for rows in _blocks(*matrix.shape):
        race = _Race(matrix[rows], keys[rows], positions[rows], temperature)
        leader = race.leaders(np.arange(len(race.noise)))
        # Any token is a valid bound; the sieve's own leader is a tight one.
        tokens[rows], _ = race.winners(leader, race.scores(leader))
        logprobs[rows] = race.logprobs(tokens[rows])
    return Choices(tokens, logprobs)


def verify_rows(
    logits: Any, tokens: Sequence[int], keys: Sequence[NoiseKey], positions: Sequence[int], temperature: float
) -> Gaps:
    """Recompute the race of tokens of any completions, together; what is found of a row depends on that row alone.

    logits: [T, V] float32, row t produced tokens[t] under keys[t] at positions[t]. Raises MusterError on a token
    outside the vocabulary, a wrong count or broken logits.
    """
    matrix = _checked(logits, len(tokens), keys, positions, temperature)
    chosen = np.asarray(tokens, dtype=np.int64)
    if chosen.size and (chosen.min() < 0 or chosen.max() >= matrix.shape[1]):
        raise MusterError(f"a token outside the vocabulary of {matrix.shape[1]}", "check the tokens before sampling")
    size = len(chosen)
    best = np.empty(size, dtype=np.int64)
    out = Gaps(np.empty(size), np.empty(size), best, np.empty(size), np.empty(size), np.empty(size))
    for rows in _blocks(*matrix.shape):
        race = _Race(matrix[rows], keys[rows], positions[rows], temperature)
        mine = race.scores(chosen[rows])
        out.best[rows], scores = race.winners(chosen[rows], mine)
        out.gaps[rows] = scores - mine
        out.logprobs[rows] = race.logprobs(chosen[rows])
        out.best_logprobs[rows] = race.logprobs(out.best[rows])
        out.log_root_sums[rows], out.log_square_sums[rows] = race.moments()
    return out


class _Race:
    """The race of some rows: float32 weights p relative to the largest logit, raw noise, exact scores on demand."""

    def __init__(
        self, logits: Floats32, keys: Sequence[NoiseKey], positions: Sequence[int], temperature: float
    ) -> None:
        self.logits, self.temperature = logits, temperature
        self.top = logits.max(axis=1, keepdims=True)
        if not np.isfinite(self.top).all():
            raise MusterError("the model's logits are not finite", "its weights are broken; load them again")
        self.weights = logits - self.top
        self.weights *= np.float32(1.0 / temperature)
        np.exp(self.weights, out=self.weights)
        self.total = self.weights.sum(axis=1).astype(np.float64)
        self.raw = _raw(keys, positions, logits.shape[1])
        # Without the half: a little smaller than u · 2³², so the sieve keeps a little more than it must.
        self.noise = self.raw.astype(np.float32)

    def scores(self, tokens: Tokens) -> Floats:
        """Return the score of one token per row."""
        return self._exact(np.arange(len(tokens)), tokens)

    def _exact(self, rows: Tokens, tokens: Tokens) -> Floats:
        """Return the scores of tokens[i] in row rows[i] as the protocol defines them."""
        values = self.logits[rows, tokens].astype(np.float64) / self.temperature
        out: Floats = values - np.log(-np.log1p(-_uniform(self.raw[rows, tokens])))
        return out

    def _limits(self, scores: Floats) -> Floats32:
        """Return what E/p of a token must not exceed to reach a row's score: p by the top logit, E in raw numbers."""
        with np.errstate(over="ignore"):
            limits = np.exp(self.top[:, 0].astype(np.float64) / self.temperature - scores) * _SLACK / U32
        out: Floats32 = np.minimum(limits, np.finfo(np.float32).max).astype(np.float32)
        return out

    def moments(self) -> tuple[Floats, Floats]:
        """Return ln Σ p^½ and ln Σ p² of each row."""
        roots = np.sqrt(self.weights).sum(axis=1).astype(np.float64)
        squares = np.einsum("ij,ij->i", self.weights, self.weights).astype(np.float64)
        total = np.log(self.total)
        return np.log(roots) - total / 2, np.log(squares) - 2 * total

    def logprobs(self, tokens: Tokens) -> Floats:
        """Return ln p of one token per row."""
        chosen = self.logits[np.arange(len(tokens)), tokens].astype(np.float64)
        out: Floats = (chosen - self.top[:, 0]) / self.temperature - np.log(self.total)
        return out

    def leaders(self, rows: Tokens) -> Tokens:
        """Return the sieve's own winners of some rows: not always the race's, but close to it."""
        with np.errstate(divide="ignore", over="ignore"):
            out: Tokens = np.argmin(self.noise[rows] / self.weights[rows], axis=1)
        return out

    def winners(self, bounds: Tokens, scores: Floats) -> tuple[Tokens, Floats]:
        """Return token and score of each row's winner, the lowest of equals. bounds[row] is any token of the row, whose
        score, scores[row], bounds the search."""
        limits = self._limits(scores)
        # A token far behind is a bound that lets a whole vocabulary through, and text that nobody sampled has no other.
        if len(poor := np.flatnonzero(limits * self.total * U32 > MOST_EXPECTED)):
            bounds, scores = bounds.copy(), scores.copy()
            bounds[poor] = self.leaders(poor)
            scores[poor] = self._exact(poor, bounds[poor])
            limits = self._limits(scores)
        # By places in one row of numbers: searching a table took a third of all sampling.
        found = np.flatnonzero(self.noise <= self.weights * limits[:, None])
        rows, tokens = np.divmod(found, self.noise.shape[1])
        # The bound is a candidate in any case: rounding must leave no row without one.
        rows, tokens = np.concatenate([rows, np.arange(len(bounds))]), np.concatenate([tokens, bounds])
        exact = self._exact(rows, tokens)
        order = np.lexsort((tokens, -exact, rows))
        _, first = np.unique(rows[order], return_index=True)
        return tokens[order][first], exact[order][first]


def _checked(
    logits: Any, rows: int, keys: Sequence[NoiseKey], positions: Sequence[int], temperature: float
) -> Floats32:
    matrix = np.asarray(logits)
    if matrix.dtype != np.float32 or matrix.ndim != 2 or matrix.shape[0] != rows or matrix.shape[1] == 0:
        raise MusterError(
            f"logits of shape {matrix.shape} and type {matrix.dtype} for {rows} rows", "give float32 [rows, vocabulary]"
        )
    if not temperature > 0:
        raise MusterError(f"temperature {temperature} is not positive", "set sampling.temperature above 0")
    if not len(keys) == len(positions) == rows:
        raise MusterError(f"{len(keys)} noise keys and {len(positions)} positions for {rows} rows", "give one of each")
    return matrix


def _blocks(rows: int, vocab: int) -> list[slice]:
    """Return rows to take together: few enough for the processor's cache, many enough to amortise Python."""
    size = max(1, (1 << 17) // vocab)
    return [slice(start, min(rows, start + size)) for start in range(0, rows, size)]
