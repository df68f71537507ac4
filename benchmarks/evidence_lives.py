"""Many lives at once: the e-process of protocol/evidence/null_model.py over arrays, fed with blocks of problems that are
drawn anew."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from protocol.evidence.null_model import BETS, BLOCK_ACCUMULATORS, LIMIT_NATS, NAMES, PairLaw, Sum, delivery_nats

BLOCKS, PROBLEMS = 2, 16
"""Of a file: eight problems are a block."""
NODES = 100
Array = np.ndarray[Any, np.dtype[np.float64]]


class ProblemBlock(NamedTuple):
    """What the rows of eight problems add up to: problem by problem, and together."""

    problems: Sequence[Mapping[str, Sum]]
    together: Mapping[str, Sum]


NOTHING = {name: Sum(0.0, 0.0) for name in BLOCK_ACCUMULATORS}


@dataclass(frozen=True)
class Table:
    """What each measured block of problems pays in every bet of every accumulator: nats [blocks, names, bets]."""

    nats: Array

    def files(self, count: int, rng: np.random.Generator, weights: Array | None = None, each: int = BLOCKS) -> "Table":
        """What each of `count` files pays that are put together from `each` rows of this table: long lives draw these,
        for less arithmetic."""
        drawn = rng.choice(len(self.nats), (count, each), p=weights)
        return Table(self.nats[drawn].sum(axis=1))

    @classmethod
    def of(cls, law: PairLaw, blocks: Sequence[ProblemBlock]) -> "Table":
        paid = np.zeros((len(blocks), len(NAMES), BETS))
        for row, block in enumerate(blocks):
            for name, nats in law.nats(block.problems, [block.together]).items():
                paid[row, NAMES.index(name)] = nats
        # Every drawn file is handed in: each of its blocks pays its share of that.
        paid[:, NAMES.index("deliveries")] = np.array(delivery_nats(True)) / BLOCKS
        return cls(paid)


@dataclass(frozen=True)
class Peaks:
    """How many lives were accused, and the largest ln of a case."""

    accused: int
    largest: float


@dataclass(frozen=True)
class Found:
    """at: the file at which each life was accused, 0 for never [lives]; by: which accumulator was ahead then."""

    at: np.ndarray[Any, np.dtype[np.int64]]
    by: np.ndarray[Any, np.dtype[np.int64]]


class Lives:
    """Lives of files of `each` independent rows of a table, drawn with equal or given weights."""

    def __init__(
        self, table: Table, rng: np.random.Generator, weights: Array | None = None, each: int = BLOCKS
    ) -> None:
        self._table, self._rng, self._weights, self._each = table, rng, weights, each

    def run(self, lives: int, files: int) -> tuple[Peaks, Found]:
        """The same recursion as NodeCase.add, for all lives together."""
        wealth = np.full((lives, len(NAMES), BETS), -np.inf)
        largest = np.zeros(lives)
        at, by = np.zeros(lives, dtype=np.int64), np.zeros(len(NAMES), dtype=np.int64)
        for number in range(1, files + 1):
            drawn = self._rng.choice(len(self._table.nats), (lives, self._each), p=self._weights)
            paid = self._table.nats[drawn].sum(axis=1)
            wealth = np.logaddexp(wealth, -math.log(number * (number + 1))) + paid
            each = _mean(np.logaddexp(wealth, -math.log(number + 1)), 2)
            total = _mean(each, 1)
            fresh = (total >= LIMIT_NATS) & (at == 0)
            at[fresh] = number
            by += np.bincount(each[fresh].argmax(axis=1), minlength=len(NAMES))
            largest = np.maximum(largest, total)
        return Peaks(int((at > 0).sum()), float(largest.max())), Found(at, by)


def edges(table: Table, law: PairLaw, names: Iterable[str]) -> dict[str, Array]:
    """For each accumulator of `names`, weights of a table's rows under which honest work is as bad as the envelope
    allows: tilted towards what that accumulator counts until the first bet of any accumulator pays 1 on average."""
    paid = np.exp(table.nats)
    out = {}
    for name in names:
        if not any(bet.tilt for bet in law.bets[name]):
            continue
        direction = table.nats[:, NAMES.index(name), BETS // 2]
        low, high = 0.0, 200.0
        for _ in range(60):
            middle = (low + high) / 2
            weights = _tilted(middle * direction)
            low, high = (middle, high) if np.einsum("p,pnb->nb", weights, paid).max() <= 1 else (low, middle)
        out[name] = _tilted(low * direction)
    return out


def _tilted(nats: Array) -> Array:
    weights: Array = np.exp(nats - nats.max())
    weights /= weights.sum()
    return weights


def _mean(logs: Array, axis: int) -> Array:
    """ln of the mean of e^logs."""
    out: Array = np.logaddexp.reduce(logs, axis=axis) - math.log(logs.shape[axis])
    return out
