"""What was measured of one worker engine's files by one verifier engine, summed up."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field, model_validator

from calibration.bounds import EXTREMES, MEANS, MEASUREMENTS, FileSample, Sums, Tail
from engines.base import EngineInfo
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
    chunks: Count
    largest: dict[str, float]
    strata: Annotated[tuple[Stratum, ...], Field(min_length=1, max_length=64)]
    ratios: dict[str, Tail]
    extremes: dict[str, Tail]
    heldout: Heldout

    @model_validator(mode="after")
    def _complete(self) -> "PairMeasurements":
        means = set(self.ratios) == set(MEANS) and all(set(one.sums) == set(MEANS) for one in self.strata)
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
    if not files or not heldout:
        raise ConfigError("no honest files were measured", "pass a larger --files")
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
        ratios={n: Tail.of([one.total / one.count for one in map(m.series, rows)]) for n, m in MEANS.items()},
        extremes={n: Tail.of([one.largest for one in map(m.series, rows)]) for n, m in EXTREMES.items()},
        heldout=Heldout(files=len(heldout), largest=_largest(heldout)),
    )


def _largest(files: Sequence[FileSample]) -> dict[str, float]:
    return {name: rounded(max(values)) for name, values in file_measurements(files).items()}


def file_measurements(files: Sequence[FileSample]) -> dict[str, list[float]]:
    """Return every measurement of every file, as the validator's checks compute it."""
    means = {name: [one.mean(file.rows) for file in files] for name, one in MEANS.items()}
    return means | {name: [one.largest(file.rows) for file in files] for name, one in EXTREMES.items()}


def _stratum(batch: int, files: Sequence[FileSample]) -> Stratum:
    own = [file for file in files if file.batch == batch]
    problems = len({(number, row.group) for number, file in enumerate(own) for row in file.rows})
    if problems < LEAST_PROBLEMS:
        what = f"{problems} problems were measured at decode batch {batch}; at least {LEAST_PROBLEMS} are needed"
        raise ConfigError(what, "pass a larger --files")
    sums = {name: Sums.of(mean, own) for name, mean in MEANS.items()}
    return Stratum(batch=batch, files=len(own), sums=sums)
