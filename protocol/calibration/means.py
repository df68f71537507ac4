"""How large a figure's mean over one honest submission may get.

A mean is ΣS/ΣN over the audited rollouts; it reaches T when Σ(S − T·N) ≥ 0. The problems of a file are independent, the
samples of one problem are not, and a random audit thins both: the variance of the sum is exact for this design, from
second moments of rows and of whole problems. The tail is Bernstein's for sums whose terms have exponential tails of
scale c (Boucheron, Lugosi, Massart, "Concentration Inequalities", 2013, theorem 2.10): the sum exceeds its mean by x
with probability at most exp(−x²/2(V + c·x)). c is the tail's own scale where one row of the file would be beyond reach
(tails.py), which makes room for tails heavier than exponential.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field

from protocol.calibration.sample import FileSample, MeanFigure
from protocol.calibration.tails import Tail, limit, significant

_ENDLESS = 1e6


class Moments(BaseModel):
    """Means over problems of sums S and counts N: of whole problems (`total`, `count`, and products), and of the
    products row by row, added up within a problem."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    problems: int = Field(ge=2)
    total: float = Field(ge=0)
    count: float = Field(gt=0)
    rows_ss: float = Field(ge=0)
    rows_sn: float = Field(ge=0)
    rows_nn: float = Field(ge=0)
    all_ss: float = Field(ge=0)
    all_sn: float = Field(ge=0)
    all_nn: float = Field(ge=0)

    @classmethod
    def of(cls, figure: MeanFigure, files: Sequence[FileSample]) -> "Moments":
        groups: dict[tuple[int, int], list[tuple[float, int]]] = {}
        for number, file in enumerate(files):
            for row in file.rows:
                groups.setdefault((number, row.group), []).append((figure.total(row), figure.count(row)))
        sums = [(math.fsum(s for s, _ in rows), sum(n for _, n in rows)) for rows in groups.values()]
        rows = [row for group in groups.values() for row in group]
        share = 1 / len(sums)
        return cls(
            problems=len(sums),
            total=significant(math.fsum(s for s, _ in sums) * share),
            count=significant(sum(n for _, n in sums) * share),
            rows_ss=significant(math.fsum(s * s for s, _ in rows) * share),
            rows_sn=significant(math.fsum(s * n for s, n in rows) * share),
            rows_nn=significant(sum(n * n for _, n in rows) * share),
            all_ss=significant(math.fsum(s * s for s, _ in sums) * share),
            all_sn=significant(math.fsum(s * n for s, n in sums) * share),
            all_nn=significant(sum(n * n for _, n in sums) * share),
        )

    @property
    def mean(self) -> float:
        return self.total / self.count


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


def mean_limit(
    strata: Sequence[Moments], residuals: Tail, ratios: Tail, design: Design, probability: float, quantum: float
) -> float:
    """A value that the mean of one submission reaches with at most `probability`, whichever stratum it is from.

    residuals: S − mean·N per row (S where it counts); ratios: S/N per row. No mean exceeds the largest ratio of its
    rows, which bounds
    submissions too small for the sum's tail.
    """
    half = probability / 2
    tail = limit(residuals, half / design.rows, quantum)
    scale = min(tail.value / 3, tail.scale + tail.start / 3)
    summed = max(_solve(moments, scale, design, math.log(1 / half)) for moments in strata)
    return min(summed, limit(ratios, probability / design.rows, 0.0).value if ratios.top else math.inf)


def _solve(moments: Moments, scale: float, design: Design, nats: float) -> float:
    """The least T whose Bernstein bound is exp(−nats); infinite if none is."""
    if not moments.total:
        return 0.0
    low, high = moments.mean, 2 * moments.mean
    while not _reached(moments, scale, design, nats, high):
        low, high = high, 2 * high
        if high > _ENDLESS * moments.mean:
            return math.inf
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if _reached(moments, scale, design, nats, middle) else (middle, high)
    return high


def _reached(moments: Moments, scale: float, design: Design, nats: float, bound: float) -> bool:
    m, q = moments, design.audited
    margin = bound * m.count - m.total
    rows = m.rows_ss - 2 * bound * m.rows_sn + bound * bound * m.rows_nn
    whole = m.all_ss - 2 * bound * m.all_sn + bound * bound * m.all_nn
    within = max(0.0, q * (1 - q) * rows + q * q * (whole - margin * margin))
    # The calibration's own mean is an estimate too, and so is the variance (one-sided 99%, normal theory).
    ours = q * q * max(0.0, whole - margin * margin) * design.problems / m.problems
    variance = (within + ours) * design.problems * (1 + 2.33 * math.sqrt(2 / m.problems))
    needed = scale * nats + math.sqrt(scale * scale * nats * nats + 2 * variance * nats)
    return design.problems * q * margin >= needed
