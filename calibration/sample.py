"""What one honest rollout contributes to a calibration, and which measurements there are.

A measurement is named by the field of `ChecksConfig` that judges it. Means are ratios of sums over a submission,
extremes are maxima over its chunks or tokens; validator/checks says how each is used.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from protocol.errors import IntegrityError
from protocol.evidence.figures import RowFigures


@dataclass(frozen=True)
class RowSample:
    """One rollout. `group` numbers its problem among those of the file: samples of a problem are not independent.

    Per chunk: sums and maxima of exponent mismatches and mantissa errors. Per token: how many choices missed, the
    largest score gap, sum and maximum of |claimed − own ln p|.
    """

    group: int
    chunks: int
    tokens: int
    mismatches: int
    mismatches_largest: int
    mantissa: float
    mantissa_largest: float
    misses: int
    gap_largest: float
    error: float
    error_largest: float

    @classmethod
    def of(
        cls,
        group: int,
        mismatches: Sequence[int],
        mantissas: Sequence[float],
        gaps: Sequence[float],
        claimed: Sequence[float],
        own: Sequence[float],
    ) -> "RowSample":
        """From a rollout's measurements (validator.judging.context.RowMeasurements) and its claimed log-probabilities. Raises
        IntegrityError for a measurement that is not a finite number: such a rollout is not honest work."""
        errors = [abs(a - b) for a, b in zip(claimed, own, strict=True)]
        if not all(map(math.isfinite, (*mantissas, *gaps, *errors))):
            raise IntegrityError(
                "an honest rollout has measurements that are not numbers", "check the engine and the model"
            )
        return cls(
            group=group,
            chunks=len(mismatches),
            tokens=len(gaps),
            mismatches=sum(mismatches),
            mismatches_largest=max(mismatches),
            mantissa=math.fsum(mantissas),
            mantissa_largest=max(mantissas),
            misses=sum(gap > 0 for gap in gaps),
            gap_largest=max(gaps),
            error=math.fsum(errors),
            error_largest=max(errors),
        )


@dataclass(frozen=True)
class FileSample:
    """The rollouts of one honest file, which a worker decoded `batch` at a time, and what a verdict document would
    publish of those that an audit draws, and of blocks of problems (none: nobody asked for the law of evidence)."""

    batch: int
    rows: tuple[RowSample, ...]
    figures: tuple[RowFigures, ...] = ()
    blocks: tuple[tuple[float, int], ...] = ()


@dataclass(frozen=True)
class MeanMeasurement:
    """A mean over a submission: sums of `total` over sums of `count`. `quantum` is the least non-zero value of one
    chunk or token (0: none): a flipped choice, an exponent, one of the 128 mantissas of a chunk (at least half of
    which are compared, ties aside)."""

    total: Callable[[RowSample], float]
    count: Callable[[RowSample], int]
    quantum: float
    spared: int = 0

    def of_file(self, rows: Sequence[RowSample]) -> float:
        """The measurement that the check judges; `spared` events do not count."""
        return max(0.0, math.fsum(map(self.total, rows)) - self.spared) / sum(map(self.count, rows))


@dataclass(frozen=True)
class ExtremeMeasurement:
    """A maximum over chunks or tokens, by its maximum in one rollout."""

    largest: Callable[[RowSample], float]
    quantum: float

    def of_file(self, rows: Sequence[RowSample]) -> float:
        return max(map(self.largest, rows))


MEANS: Mapping[str, MeanMeasurement] = MappingProxyType(
    {
        "exponent_mismatches_reject": MeanMeasurement(lambda r: r.mismatches, lambda r: r.chunks, 1.0, spared=1),
        "mantissa_mean_reject": MeanMeasurement(lambda r: r.mantissa, lambda r: r.chunks, 1 / 64),
        "sampling_miss_rate_reject": MeanMeasurement(lambda r: r.misses, lambda r: r.tokens, 1.0, spared=1),
        "logprob_mean_reject": MeanMeasurement(lambda r: r.error, lambda r: r.tokens, 0.0),
    }
)
EXTREMES: Mapping[str, ExtremeMeasurement] = MappingProxyType(
    {
        "exponent_mismatches_chunk_reject": ExtremeMeasurement(lambda r: r.mismatches_largest, 1.0),
        "mantissa_mean_chunk_reject": ExtremeMeasurement(lambda r: r.mantissa_largest, 0.0),
        "sampling_gap_reject": ExtremeMeasurement(lambda r: r.gap_largest, 0.0),
        "logprob_error_reject": ExtremeMeasurement(lambda r: r.error_largest, 0.0),
    }
)
MEASUREMENTS: tuple[str, ...] = (*MEANS, *EXTREMES)
