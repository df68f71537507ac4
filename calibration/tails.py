"""How large a measurement of one honest rollout may get: peaks over a threshold, extrapolated with an upper limit.

Exceedances over a high threshold follow a generalised Pareto distribution (Pickands 1975; Balkema and de Haan 1974).
Errors of rounding are sums of many bounded terms, whose tails are exponential or lighter: shape ξ = 0 is assumed, and
never less, unless the data speak against it; then the least ξ is taken that a likelihood ratio does not refuse (one-
sided 95%; Coles, "An Introduction to Statistical Modeling of Extreme Values", 2001, section 4.3). The scale is the
largest plausible one. Counts have a geometric tail, its ratio bounded from above in the same way.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import Field, model_validator

from protocol.encoding import Document

KEPT = 250
SHARE = 0.02
FEWEST = 20
"""Exceedances below which no tail is fitted."""
_DEVIANCE = 2.706
"""0.90 quantile of χ² with one degree of freedom: one-sided 95%."""
_Z = 1.645


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
    def of(cls, values: Sequence[float]) -> "Tail":
        """The tail of one value per rollout; a fiftieth of them is kept, 60 to 250."""
        kept = min(len(values), KEPT, max(3 * FEWEST, math.ceil(SHARE * len(values))))
        rounded = [significant(value) for value in values]
        top = tuple(sorted((value for value in rounded if value > 0), reverse=True)[:kept])
        return cls(rows=len(values), at_least=sum(v >= top[-1] for v in rounded) if top else 0, top=top)

    @property
    def largest(self) -> float:
        return self.top[0] if self.top else 0.0


@dataclass(frozen=True)
class Limit:
    """A value that one rollout exceeds with at most the probability asked for, and the scale of the tail there: up to
    the value, the tail falls at least as fast as an exponential of that scale. `start` is where the tail begins, `rate`
    the upper limit of the probability to be beyond it."""

    value: float
    scale: float
    start: float
    rate: float


def limit(tail: Tail, probability: float, quantum: float) -> Limit:
    """Upper limit of the quantile at 1 − `probability`. `quantum`: the spacing of discrete measurements, else 0."""
    rate = (tail.at_least + _Z * math.sqrt(tail.at_least) + 3.0) / tail.rows
    if quantum:
        return _counted(tail, rate, probability, quantum)
    start = tail.top[-1] if tail.top else 0.0
    excess = [value - start for value in tail.top if value > start]
    if len(excess) < FEWEST:
        return _thin(tail, rate, probability)
    value, scale = _extrapolated(np.array(excess), max(rate / probability, 2.0))
    return Limit(max(start + value, tail.largest), scale, start, min(rate, 1.0))


def _extrapolated(excess: "np.ndarray[Any, np.dtype[np.float64]]", odds: float) -> tuple[float, float]:
    """(excess, local scale) at survival 1/odds."""
    scale = excess.mean() * np.geomspace(0.05, 4.0, 220)
    shapes = np.linspace(0.0, 1.5, 76)
    likelihood = np.empty((len(shapes), len(scale)))
    for row, xi in enumerate(shapes):
        ratio = excess[:, None] / scale
        grown = ratio if xi == 0 else (1 / xi + 1) * np.log1p(xi * ratio)
        likelihood[row] = -len(excess) * np.log(scale) - grown.sum(axis=0)
    least = int(np.argmax(likelihood.max(axis=1) >= likelihood.max() - _DEVIANCE / 2))
    own, xi = likelihood[least], float(shapes[least])
    sigma = float(scale[own >= own.max() - _DEVIANCE / 2].max())
    nats = math.log(odds)
    value = sigma * (nats if xi == 0 else math.expm1(xi * nats) / xi)
    return value, sigma + xi * value


def _counted(tail: Tail, rate: float, probability: float, quantum: float) -> Limit:
    """Multiples of a quantum: a geometric tail from the least value that was kept."""
    if not tail.top:
        return _thin(tail, rate, probability, quantum)
    start = tail.top[-1]
    steps = sum(value - start for value in tail.top) / quantum
    upper = steps + _Z * math.sqrt(steps) + 3.0
    scale = quantum / -math.log(upper / (upper + tail.at_least))
    value = start + scale * max(0.0, math.log(rate / probability))
    return Limit(max(value, tail.largest), scale, max(0.0, start - quantum), min(rate, 1.0))


def _thin(tail: Tail, rate: float, probability: float, quantum: float = 0.0) -> Limit:
    """Too few non-zero values for a tail: as many of the largest as could meet in one rollout by chance."""
    met = 1
    while rate**met / math.factorial(met) > probability and met < 64:
        met += 1
    unit = max(tail.largest, quantum)
    return Limit(met * unit, unit, 0.0, min(rate, 1.0))


def significant(value: float) -> float:
    """Six significant digits: what a document holds is what thresholds are computed from."""
    return float(f"{value:.6g}")
