"""What was measured of one worker engine's files by one verifier engine, and the thresholds that follow.

The false-reject probability of a submission is split evenly among the eight measurements (union bound). Statistical
bounds (calibration/bounds.py) are multiplied by the safety factor, which stands for machines and kernels that were not
measured; floors, which come from arithmetic, are not."""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import Field, model_validator

from calibration import bounds
from calibration.bounds import EXTREMES, FEWEST, MEANS, MEASUREMENTS, Design, FileSample, Sums, Tail
from engines.base import EngineInfo
from protocol.config import SPARED_MISSES
from protocol.encoding import Document
from protocol.errors import ConfigError
from protocol.evidence.figures import rounded

LEAST_PROBLEMS = 24  # per decode batch: below that a variance says little
Count = Annotated[int, Field(ge=1, lt=2**53)]


class Stratum(Document):
    """The sums of the four means in the files that were decoded `batch` at a time."""

    batch: Count
    files: Count
    sums: dict[str, Sums]


class Heldout(Document):
    """Files that no threshold was computed from: how many, and the largest measurement of any."""

    files: Count
    largest: dict[str, float]


class PairMeasurements(Document):
    """One worker engine verified by one verifier engine; counts are of the files that thresholds come from, and
    `largest` is the largest measurement of any of them, as checks judge a whole file."""

    worker: EngineInfo
    verifier: EngineInfo
    files: Count
    rollouts: Count
    tokens: Count
    chunks: int = Field(ge=0, lt=2**53)
    largest: dict[str, float]
    strata: Annotated[tuple[Stratum, ...], Field(min_length=1, max_length=64)]
    ratios: dict[str, Tail]
    extremes: dict[str, Tail]
    heldout: Heldout

    @model_validator(mode="after")
    def _complete(self) -> "PairMeasurements":
        means = set(self.ratios) == set(MEANS) and all(set(stratum.sums) == set(MEANS) for stratum in self.strata)
        every = set(self.largest) == set(self.heldout.largest) == set(MEASUREMENTS)
        if not means or not every or set(self.extremes) != set(EXTREMES):
            raise ValueError("measurements are missing, or unknown ones are there")
        return self

    @property
    def name(self) -> str:
        return f"{self.worker.name}:{self.worker.dtype} to {self.verifier.name}:{self.verifier.dtype}"


def summarise(
    worker: EngineInfo, verifier: EngineInfo, files: Sequence[FileSample], heldout: Sequence[FileSample]
) -> PairMeasurements:
    """Summarise a pair's files. Raises ConfigError if there are too few of them."""
    rows = [row for file in files for row in file.rows]
    return PairMeasurements(
        worker=worker,
        verifier=verifier,
        files=len(files),
        rollouts=len(rows),
        tokens=sum(row.gaps.count for row in rows),
        chunks=sum(row.mantissas.count for row in rows),
        largest=_largest(files),
        strata=tuple(_stratum(batch, files) for batch in sorted({file.batch for file in files})),
        ratios={n: Tail.of([s.total / max(1, s.count) for s in map(m.series, rows)]) for n, m in MEANS.items()},
        extremes={n: Tail.of([series.largest for series in map(m.series, rows)]) for n, m in EXTREMES.items()},
        heldout=Heldout(files=len(heldout), largest=_largest(heldout)),
    )


def _largest(files: Sequence[FileSample]) -> dict[str, float]:
    return {name: rounded(max(values)) for name, values in file_measurements(files).items()}


def file_measurements(files: Sequence[FileSample]) -> dict[str, list[float]]:
    """Return every measurement of every file, as the validator's checks compute it."""
    means = {name: [measurement.mean(file.rows) for file in files] for name, measurement in MEANS.items()}
    return means | {name: [measurement.largest(file.rows) for file in files] for name, measurement in EXTREMES.items()}


def _stratum(batch: int, files: Sequence[FileSample]) -> Stratum:
    own = [file for file in files if file.batch == batch]
    problems = len({(number, row.group) for number, file in enumerate(own) for row in file.rows})
    if problems < LEAST_PROBLEMS:
        what = f"{problems} problems were measured at decode batch {batch}; at least {LEAST_PROBLEMS} are needed"
        raise ConfigError(what, "pass a larger --files")
    sums = {name: Sums.of(mean, own) for name, mean in MEANS.items()}
    return Stratum(batch=batch, files=len(own), sums=sums)


# Thresholds

FLOORS = {
    # Four values of a chunk at a power of two or at the cut of the 128 largest, rounded the other way at once.
    "exponent_mismatches_chunk_reject": 4.0,
    # Four mantissas of a chunk (of at least 64 compared) rounded the other way to bfloat16 at once.
    "mantissa_mean_chunk_reject": 4 / 64,
    # Claimed log-probabilities are float32: four units in the last place of a surprisal of up to 32 nats, and one.
    "logprob_error_reject": 8e-6,
    "logprob_mean_reject": 2e-6,
}
_EXPONENTS = ("exponent_mismatches_reject", "exponent_mismatches_chunk_reject")
_MANTISSAS = ("mantissa_mean_reject", "mantissa_mean_chunk_reject")
# No measurement exceeds these, whatever was computed; a threshold there refuses nothing but the impossible.
MOST = {**dict.fromkeys((*_EXPONENTS, *_MANTISSAS), 128.0), "sampling_miss_rate_reject": 1.0}
# What the work of an unrelated model reaches, roughly: a threshold there or above sees nothing.
UNRELATED = {
    **dict.fromkeys(_EXPONENTS, 120.0),  # of 128 random exponents of eight bits hardly one agrees
    **dict.fromkeys(_MANTISSAS, 42.0),  # the mean distance of two random numbers of seven bits is 128/3
    # Text that was chosen without the noise misses where the model is unsure, and where it is sure of other text.
    "sampling_miss_rate_reject": 0.5,
    # A word that is one in 265, the demo's vocabulary, claimed to be certain, is 5.6 nats off.
    **dict.fromkeys(("logprob_mean_reject", "logprob_error_reject", "sampling_gap_reject"), 5.6),
}


def thresholds(
    pairs: Sequence[PairMeasurements], design: Design, false_reject: float, safety: float
) -> dict[str, float]:
    """Return every measurement's reject threshold, the largest over the pairs, rounded up to three digits."""
    each = [_pair(pair, design, false_reject / len(MEASUREMENTS), safety) for pair in pairs]
    return {name: bounds.rounded_up(max(limits[name] for limits in each), 3) for name in MEASUREMENTS}


def _pair(pair: PairMeasurements, design: Design, probability: float, safety: float) -> dict[str, float]:
    out = {}
    for name, extreme in EXTREMES.items():
        value = bounds.limit(pair.extremes[name], probability / design.rows, extreme.quantum).value
        out[name] = max(safety * value, FLOORS.get(name, 0.0))
    # Two scores are each off by their error of ln p (the common constant cancels), and the verifier's own choice is a
    # sample as well, with errors like those of chosen tokens: a gap of g needs an error of g/2 on either side.
    error = bounds.limit(pair.extremes["logprob_error_reject"], probability / 2 / design.rows, 0.0)
    either = 2 * max(safety * error.value, FLOORS["logprob_error_reject"])
    few = pair.extremes["sampling_gap_reject"].at_least < FEWEST
    out["sampling_gap_reject"] = either if few else min(out["sampling_gap_reject"], either)
    for name, mean in MEANS.items():
        strata = [stratum.sums[name] for stratum in pair.strata]
        # Sums of whole events have tails in whole steps.
        spared = min(out[mean.extreme], MOST.get(mean.extreme, math.inf)) if mean.extreme else SPARED_MISSES
        events = float(mean.quantum == 1.0)
        bound = bounds.mean_limit(strata, pair.ratios[name], design, probability, events, spared / safety)
        floor = _event_floor(strata, mean.quantum, spared, probability) if mean.quantum else 0.0
        out[name] = max(safety * bound, safety * pair.largest[name], floor, FLOORS.get(name, 0.0))
    return {name: min(value, MOST.get(name, math.inf)) for name, value in out.items()}


def blind(limits: Mapping[str, float]) -> list[str]:
    """Return the thresholds that not even an unrelated model's work would reach."""
    return [name for name in MEASUREMENTS if limits[name] >= UNRELATED[name]]


def _event_floor(strata: Sequence[Sums], quantum: float, spared: float, probability: float) -> float:
    """Return the least T at which events that come one by one, as often as the sample bears out, exceed T·N by what is
    `spared` with at most `probability` however many rows an audit draws (Lundberg's inequality)."""
    counted, events = max(1, sum(sums.count for sums in strata)), math.fsum(sums.total for sums in strata) / quantum
    tilt = -math.log(probability) * quantum / spared
    return quantum * (events + 1.645 * math.sqrt(events) + 3.0) / counted * math.expm1(tilt) / tilt
