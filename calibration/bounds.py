"""How large a measurement of honest work may get: one rollout's by its tail, one submission's mean by Chernoff's bound.

A measurement is named by the field of `ChecksConfig` that judges it. Means are ratios of sums over a submission,
extremes are maxima over its chunks or tokens; validator/judging/checks.py says how each is used.

Tails. Exceedances over a high threshold follow a generalised Pareto distribution (Pickands 1975; Balkema and de Haan
1974). Errors of rounding are sums of many bounded terms, whose tails are exponential or lighter. So shape ξ = 0 is
assumed, and never less, unless the data speak against it; then the least ξ is taken that a likelihood ratio does not
refuse (one-sided 95%; Coles, "An Introduction to Statistical Modeling of Extreme Values", 2001, section 4.3). The scale
is the largest plausible one. Counts have a geometric tail, its ratio bounded from above in the same way.

Means. A mean ΣS/ΣN over the audited rollouts is refused at Σ(S − T·N) ≥ A, the threshold of the largest chunk or token.
The problems of a file are independent, the samples of one problem are not. Chernoff's bound over problems, with Y = Σ(S
− T·N) of one problem's audited rollouts, is

    P(ΣY ≥ A) ≤ E[exp(λY)]^problems · exp(−λA)   for every λ > 0.

The expectation is that of the measured problems, each by the rollouts that an audit drew of it, with an upper limit,
plus what a tail beyond the largest problem seen can add. An audit always draws one rollout, so one problem is seen for
certain; of the others, one of which it draws none counts as Y = 0.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import Field, model_validator

from protocol.config import SPARED_MISSES
from protocol.encoding import Document
from protocol.errors import IntegrityError
from protocol.evidence.figures import FileFigures, rounded

Values = Sequence[float]
Array = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Series:
    """A measurement of each chunk or token of a rollout: how many there are, their sum and their maximum."""

    count: int
    total: float
    largest: float

    @classmethod
    def of(cls, values: Values) -> "Series":
        return cls(len(values), math.fsum(values), max(values, default=0.0))


@dataclass(frozen=True)
class RowSample:
    """One rollout. `group` numbers its problem among those of the file: samples of a problem are not independent. By
    chunk: exponent mismatches and mantissa errors. By token: score gaps, of which `total` counts the misses, and
    |claimed − own ln p|."""

    group: int
    mismatches: Series
    mantissas: Series
    gaps: Series
    errors: Series

    @classmethod
    def of(
        cls, group: int, mismatches: Sequence[int], mantissas: Values, gaps: Values, claimed: Values, own: Values
    ) -> "RowSample":
        """Return the sample of a rollout's measurements (validator.judging.checks.RowMeasurements) and its claimed
        log-probabilities. Raises IntegrityError for what is not a finite number: such a rollout is no honest work."""
        errors = [abs(a - b) for a, b in zip(claimed, own, strict=True)]
        if not all(map(math.isfinite, (*mantissas, *gaps, *errors))):
            what = "an honest rollout has measurements that are not numbers"
            raise IntegrityError(what, "check the engine and the model")
        missed = Series(len(gaps), sum(gap > 0 for gap in gaps), max(gaps))
        return cls(group, Series.of(mismatches), Series.of(mantissas), missed, Series.of(errors))


@dataclass(frozen=True)
class FileSample:
    """The rollouts of one honest file that an audit drew, which a worker decoded `batch` at a time, and the file's
    figures in that and further draws."""

    batch: int
    rows: tuple[RowSample, ...]
    draws: tuple[FileFigures, ...] = ()


@dataclass(frozen=True)
class Measurement:
    """What a check judges of a submission: a mean or a maximum over its chunks or tokens. `quantum` is the least
    non-zero value of one of them (0: none). A mean's sum spares the threshold of the `extreme`, or SPARED_MISSES."""

    series: Callable[[RowSample], Series]
    quantum: float = 0.0
    extreme: str = ""

    def mean(self, rows: Sequence[RowSample]) -> float:
        """Return the mean without the largest term, or spared misses: a check, which spares no less, sees no more."""
        series = [self.series(row) for row in rows]
        spared = self.largest(rows) if self.extreme else SPARED_MISSES
        return max(0.0, math.fsum(part.total for part in series) - spared) / max(1, sum(part.count for part in series))

    def largest(self, rows: Sequence[RowSample]) -> float:
        return max(self.series(row).largest for row in rows)


MEANS: Mapping[str, Measurement] = {
    "exponent_mismatches_reject": Measurement(lambda row: row.mismatches, 1.0, "exponent_mismatches_chunk_reject"),
    # The quantum: one of at least 64 that are compared.
    "mantissa_mean_reject": Measurement(lambda row: row.mantissas, 1 / 64, "mantissa_mean_chunk_reject"),
    "sampling_miss_rate_reject": Measurement(lambda row: row.gaps, 1.0),
    "logprob_mean_reject": Measurement(lambda row: row.errors, extreme="logprob_error_reject"),
}
EXTREMES: Mapping[str, Measurement] = {
    "exponent_mismatches_chunk_reject": Measurement(lambda row: row.mismatches, 1.0),
    "mantissa_mean_chunk_reject": Measurement(lambda row: row.mantissas),
    "sampling_gap_reject": Measurement(lambda row: row.gaps),
    "logprob_error_reject": Measurement(lambda row: row.errors),
}
MEASUREMENTS: tuple[str, ...] = (*MEANS, *EXTREMES)


# --- Tails


KEPT = 250  # values of a tail that a document holds at most
FEWEST = 20  # exceedances below which no tail is fitted
_DEVIANCE = 2.706  # 0.90 quantile of χ² with one degree of freedom: one-sided 95%
_Z = 1.645  # of a normal distribution, one-sided 95%
_FEW = 3.0  # −ln 0.05, the limit for no event: with it, n + z·√n is one for few events too
# Scales (of the mean excess, 2% apart) and shapes that are tried: closer than 250 values can tell apart, about 6%.
_SCALES = np.geomspace(0.05, 4.0, 220)
_SHAPES = np.linspace(0.0, 1.5, 76)


class Tail(Document):
    """The largest of `rows` values, one per rollout: `top` descending, all positive; `at_least` counts the values ≥ the
    least of them."""

    rows: int = Field(ge=1)
    at_least: int = Field(ge=0)
    top: tuple[float, ...] = Field(max_length=KEPT)

    @model_validator(mode="after")
    def _orderly(self) -> "Tail":
        if any(a < b for a, b in zip(self.top, self.top[1:], strict=False)) or (self.top and self.top[-1] <= 0):
            raise ValueError("top must be positive and descending")
        if not len(self.top) <= self.at_least <= self.rows or bool(self.top) != bool(self.at_least):
            raise ValueError("at_least does not fit top and rows")
        return self

    @classmethod
    def of(cls, values: Values) -> "Tail":
        """Return the tail of one value per rollout; a fiftieth of them is kept, 60 to 250."""
        kept = min(len(values), KEPT, max(3 * FEWEST, math.ceil(len(values) / 50)))
        shown = [rounded(value) for value in values]
        top = tuple(sorted((value for value in shown if value > 0), reverse=True)[:kept])
        return cls(rows=len(values), at_least=sum(v >= top[-1] for v in shown) if top else 0, top=top)

    @property
    def largest(self) -> float:
        return self.top[0] if self.top else 0.0


@dataclass(frozen=True)
class Limit:
    """A value that one rollout exceeds with at most the probability asked for. Up to it, the tail falls at least as
    fast as an exponential of `scale`. `start` is where the tail begins, `rate` the most probability to be beyond it."""

    value: float
    scale: float
    start: float
    rate: float


def limit(tail: Tail, probability: float, quantum: float) -> Limit:
    """Return the upper limit of the quantile at 1 − `probability`. `quantum`: spacing of discrete values, else 0."""
    rate = (tail.at_least + _Z * math.sqrt(tail.at_least) + _FEW) / tail.rows
    if quantum:
        return _counted(tail, rate, probability, quantum)
    start = tail.top[-1] if tail.top else 0.0
    excess = [value - start for value in tail.top if value > start]
    if len(excess) < FEWEST:
        return _thin(tail, rate, probability)
    value, scale = _extrapolated(np.array(excess), max(rate / probability, 2.0))
    return Limit(max(start + value, tail.largest), scale, start, min(rate, 1.0))


def _extrapolated(excess: Array, odds: float) -> tuple[float, float]:
    """Return (excess, local scale) at survival 1/odds."""
    scale = excess.mean() * _SCALES
    likelihood = np.empty((len(_SHAPES), len(scale)))
    for row, xi in enumerate(_SHAPES):
        ratio = excess[:, None] / scale
        nats = ratio if xi == 0 else (1 / xi + 1) * np.log1p(xi * ratio)
        likelihood[row] = -len(excess) * np.log(scale) - nats.sum(axis=0)
    least = int(np.argmax(likelihood.max(axis=1) >= likelihood.max() - _DEVIANCE / 2))
    by_scale, xi = likelihood[least], float(_SHAPES[least])
    sigma = float(scale[by_scale >= by_scale.max() - _DEVIANCE / 2].max())
    log_odds = math.log(odds)
    value = sigma * (log_odds if xi == 0 else math.expm1(xi * log_odds) / xi)
    return value, sigma + xi * value


def _counted(tail: Tail, rate: float, probability: float, quantum: float) -> Limit:
    """Fit multiples of a quantum: a geometric tail from the least value that was kept."""
    if not tail.top:
        return _thin(tail, rate, probability, quantum)
    start = tail.top[-1]
    steps = sum(value - start for value in tail.top) / quantum
    upper = steps + _Z * math.sqrt(steps) + _FEW
    scale = quantum / -math.log(upper / (upper + tail.at_least))
    value = start + scale * max(0.0, math.log(rate / probability))
    return Limit(max(value, tail.largest), scale, max(0.0, start - quantum), min(rate, 1.0))


def _thin(tail: Tail, rate: float, probability: float, quantum: float = 0.0) -> Limit:
    """Bound too few non-zero values: as many of the largest as could meet in one rollout by chance."""
    met = 1
    while rate**met / math.factorial(met) > probability and met < 64:
        met += 1
    unit = max(tail.largest, quantum)
    return Limit(met * unit, unit, 0.0, min(rate, 1.0))


def rounded_up(value: float, digits: int) -> float:
    """Round to so many significant digits, never to less than `value`."""
    if not value or not math.isfinite(value):
        return value
    unit = 10.0 ** (math.floor(math.log10(abs(value))) - digits + 1)
    return float(f"{math.ceil(value / unit - 1e-9) * unit:.{digits}g}")


# --- Means


_Z_MEAN = 2.33  # one-sided 99%, normal theory: the measured expectation is an estimate
_ENDLESS = 1e6  # a mean as many times the least possible one bounds nothing
_ROWS = 8192  # rollouts whose sums a document holds at most, about
# λ in units of 1/scale. Every λ gives a true bound, so a coarse grid costs a little of the threshold, never safety; at
# λ = 1/scale the tail's own integral begins to grow with its end.
_TILTS = np.geomspace(2e-3, 6, 60)
_MAX_EXPONENT = 700.0  # of float64
# Multiples c of the mean: at T ≥ c a problem's sum is at most that of max(0, S − c·N), whose tail is fitted.
_CENTRES = (1.0, 1.5, 2.0, 3.0)
Row = tuple[Annotated[float, Field(ge=0, le=1e12)], Annotated[int, Field(ge=0, lt=2**53)]]
_Rows = Annotated[tuple[Row, ...], Field(min_length=1, max_length=256)]


class Sums(Document):
    """Sum S and count N of every rollout, by problem; of the first problems only where there are very many."""

    problems: Annotated[tuple[_Rows, ...], Field(min_length=2, max_length=_ROWS)]

    @classmethod
    def of(cls, measurement: Measurement, files: Sequence[FileSample]) -> "Sums":
        groups: dict[tuple[int, int], list[Row]] = {}
        for number, file in enumerate(files):
            for row in file.rows:
                series = measurement.series(row)
                groups.setdefault((number, row.group), []).append((rounded(series.total), series.count))
        most = max(24, _ROWS // max(map(len, groups.values())))
        return cls(problems=tuple(map(tuple, list(groups.values())[:most])))

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
    def unseen(self) -> float:
        """Probability that an audit draws no rollout of a problem, unless it is that of the one it always draws."""
        return (1 - self.audited) ** self.samples


def mean_limit(
    strata: Sequence[Sums], ratios: Tail, design: Design, probability: float, quantum: float, spared: float
) -> float:
    """Return a T with ΣS − T·ΣN ≥ `spared` in one submission with at most `probability`, whichever stratum it is from.
    ratios: S/N per row, whose largest no mean exceeds: the bound of submissions too small for the sum's tail.
    `quantum` is 1 where S counts events, else 0."""
    half = probability / 2
    limits = [limit(ratios, probability / design.rows, 0.0).value] if ratios.top else [math.inf]
    mean = math.fsum(sums.total for sums in strata) / max(1, sum(sums.count for sums in strata))
    if not mean:
        return 0.0
    for centre in (0.0,) if quantum else [mean * factor for factor in _CENTRES]:
        excess = Tail.of([value for sums in strata for value in sums.excess(centre)])
        if not excess.top or (centre > mean and excess.at_least < FEWEST):
            break
        # The tail is followed up to a value that no problem of a file exceeds but with the other half.
        tail = limit(excess, half / design.problems, quantum)
        cap, low = max(excess.largest, tail.start), max(mean, centre)
        bounds = [_least_mean(sums, tail, cap, design, half, low, spared) for sums in strata if sums.total]
        limits.append(max(bounds, default=0.0))
    return min(limits)


def _least_mean(
    sums: Sums, tail: Limit, cap: float, design: Design, probability: float, low: float, spared: float
) -> float:
    """Return the least T above `low`, to a thousandth, where Chernoff's bound is `probability` or less, or infinity.
    `cap`: the largest excess seen."""
    totals, counts = sums.arrays()
    tilts = _TILTS / tail.scale
    beyond = tail.rate * math.exp((tail.start - cap) / tail.scale)
    # ∫ λ·exp(λy)·P(beyond y) dy from the cap to the value, for an exponential tail.
    falling, width = 1 / tail.scale - tilts, tail.value - cap
    falling = np.where(np.abs(falling) < 1e-9 / tail.scale, 1e-9 / tail.scale, falling)
    with np.errstate(over="ignore", invalid="ignore"):
        added = beyond * tilts * np.exp(tilts * cap) * -np.expm1(-falling * width) / falling
    others, nats = design.problems - 1, math.log(probability)

    def holds(mean: float) -> bool:
        each = totals - mean * counts
        for tilt, more in zip(tilts, added, strict=True):
            expected = np.exp(np.minimum(np.minimum(tilt * each.sum(axis=1), tilt * cap), _MAX_EXPONENT))
            seen = max(expected.mean() + _Z_MEAN * expected.std() / math.sqrt(len(expected)) + more, 1e-300)
            file = math.log(seen) + others * math.log(design.unseen + (1 - design.unseen) * seen)
            if file <= tilt * spared + nats:
                return True
        return False

    high, most = 1.001 * low, _ENDLESS * low
    while not holds(high):
        low, high = high, 2 * high
        if not high < most:
            return math.inf
    while high > 1.001 * low:
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
