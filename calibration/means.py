"""How large a measurement's mean over one honest submission may get.

A mean is ΣS/ΣN over the audited rollouts; it reaches T when Σ(S − T·N) ≥ 0. The problems of a file are independent, the
samples of one problem are not. Chernoff's bound over problems, Y = Σ(S − T·N) of one problem's audited rollouts:

    P(ΣY ≥ 0) ≤ E[exp(λY)]^problems   for every λ > 0.

The expectation is that of the measured problems (each rollout kept with the audit's probability), with an upper limit,
plus what a tail beyond the largest problem seen can add. Short rollouts count as little as they weigh in the mean, and
many tokens with few errors add nothing: second moments would hold both against the bound.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from calibration.sample import FileSample, MeanMeasurement
from calibration.tails import FEWEST, Limit, Tail, limit, significant
from protocol.encoding import Document

_Z = 2.33
"""One-sided 99%, normal theory: the measured expectation is an estimate."""
_ENDLESS = 1e6
_ROWS = 8192
_CENTRES = (1.0, 1.5, 2.0, 3.0)
"""Multiples c of the mean: at T ≥ c a problem's sum is at most that of max(0, S − c·N), whose tail is fitted."""
Array = np.ndarray[Any, np.dtype[np.float64]]
Row = tuple[Annotated[float, Field(ge=0, le=1e12)], Annotated[int, Field(ge=1, lt=2**53)]]


class Sums(Document):
    """Sum S and count N of every rollout, by problem; of the first problems only where there are very many."""

    problems: Annotated[
        tuple[Annotated[tuple[Row, ...], Field(min_length=1, max_length=256)], ...],
        Field(min_length=2, max_length=_ROWS),
    ]

    @classmethod
    def of(cls, measurement: MeanMeasurement, files: Sequence[FileSample]) -> "Sums":
        groups: dict[tuple[int, int], list[Row]] = {}
        for number, file in enumerate(files):
            for row in file.rows:
                groups.setdefault((number, row.group), []).append(
                    (significant(measurement.total(row)), measurement.count(row))
                )
        most = max(24, _ROWS // max(map(len, groups.values())))
        return cls(problems=tuple(map(tuple, list(groups.values())[:most])))

    @property
    def rows(self) -> int:
        return sum(map(len, self.problems))

    @property
    def total(self) -> float:
        return math.fsum(s for problem in self.problems for s, _ in problem)

    @property
    def count(self) -> int:
        return sum(n for problem in self.problems for _, n in problem)

    def excess(self, centre: float) -> list[float]:
        """Σ max(0, S − centre·N) of each problem: no audit of the problem sums to more."""
        return [math.fsum(max(0.0, s - centre * n) for s, n in problem) for problem in self.problems]

    def arrays(self) -> tuple[Array, Array]:
        """(S, N) of shape [problems, most samples], zeros where a problem has fewer."""
        shape = (len(self.problems), max(map(len, self.problems)))
        totals, counts = np.zeros(shape), np.zeros(shape)
        for at, problem in enumerate(self.problems):
            totals[at, : len(problem)], counts[at, : len(problem)] = zip(*problem, strict=True)
        return totals, counts


@dataclass(frozen=True)
class Design:
    """A submission: `problems` × `samples` rollouts, each audited with probability `audited` (at least one is)."""

    problems: int
    samples: int
    audited: float

    @property
    def rows(self) -> int:
        return self.problems * self.samples

    @property
    def fewest(self) -> float:
        """Audited rows that are hardly ever fewer (six standard deviations)."""
        spread = math.sqrt(self.rows * self.audited * (1 - self.audited))
        return max(1.0, self.rows * self.audited - 6 * spread)


def mean_limit(strata: Sequence[Sums], ratios: Tail, design: Design, probability: float, quantum: float) -> float:
    """A value that the mean of one submission reaches with at most `probability`, whichever stratum it is from.

    ratios: S/N per row: no mean exceeds the largest ratio of its rows, which bounds submissions too small for the sum's
    tail. `quantum` is 1 where S counts events, else 0.
    """
    half = probability / 2
    found = [limit(ratios, probability / design.rows, 0.0).value] if ratios.top else [math.inf]
    mean = math.fsum(sums.total for sums in strata) / sum(sums.count for sums in strata)
    if not mean:
        return 0.0
    for centre in (0.0,) if quantum else [mean * factor for factor in _CENTRES]:
        excess = Tail.of([value for sums in strata for value in sums.excess(centre)])
        if not excess.top or (centre > mean and excess.at_least < FEWEST):
            break
        # The tail is followed up to a value that no problem of a file exceeds but with the other half.
        tail = limit(excess, half / design.problems, quantum)
        bounds = [_Bound(sums, tail, excess.largest, design, math.log(1 / half)) for sums in strata if sums.total]
        found.append(max((_solve(bound, max(mean, centre)) for bound in bounds), default=0.0))
    return min(found)


def _solve(reached: "_Bound", low: float) -> float:
    """The least T above `low` whose bound is small enough, to a thousandth; infinite if none is."""
    high, most = 1.001 * low, _ENDLESS * low
    while not reached(high):
        low, high = high, 2 * high
        if not high < most:
            return math.inf
    while high > 1.001 * low:
        middle = (low + high) / 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high


class _Bound:
    """Whether Chernoff's bound at T is exp(−nats) or less."""

    def __init__(self, sums: Sums, tail: Limit, largest: float, design: Design, nats: float) -> None:
        self._totals, self._counts = sums.arrays()
        self._cap = max(largest, tail.start)
        beyond = tail.rate * math.exp((tail.start - self._cap) / tail.scale)
        self._tilts = np.geomspace(2e-3, 6, 60) / tail.scale
        # ∫ λ·exp(λy)·P(beyond y) dy from the cap to the value, for an exponential tail.
        falling, width = 1 / tail.scale - self._tilts, tail.value - self._cap
        falling = np.where(np.abs(falling) < 1e-9 / tail.scale, 1e-9 / tail.scale, falling)
        with np.errstate(over="ignore", invalid="ignore"):
            self._tail = beyond * self._tilts * np.exp(self._tilts * self._cap) * -np.expm1(-falling * width) / falling
        self._kept = math.log(design.audited)
        self._left_out = math.log1p(-design.audited) if design.audited < 1 else -math.inf
        self._wanted = math.exp(-nats / design.problems)

    def __call__(self, mean: float) -> bool:
        each = self._totals - mean * self._counts
        for tilt, tail in zip(self._tilts, self._tail, strict=True):
            logs = np.logaddexp(self._left_out, self._kept + tilt * each).sum(axis=1)
            found = np.exp(np.minimum(np.minimum(logs, tilt * self._cap), 700.0))
            if found.mean() + _Z * found.std() / math.sqrt(len(found)) + tail <= self._wanted:
                return True
        return False
