"""The calibration document: measurements, thresholds and null models that follow from them, signed by who measured.

The false-reject probability of a submission is split evenly among the eight measurements (union bound). Statistical
bounds (calibration/bounds.py) are multiplied by the safety factor, which stands for machines and kernels that were not
measured; floors, which come from arithmetic, are not.

The document is canonical JSON. Its signature is EIP-712 over the SHA-256 of the document without it. The domain names
no chain: a calibration is of weights and engines, whatever network a pool is on.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, model_validator

from calibration.bounds import (
    EXTREMES,
    FEWEST,
    MEANS,
    MEASUREMENTS,
    Design,
    FileSample,
    Sums,
    Tail,
    limit,
    mean_limit,
    rounded_up,
)
from calibration.null_model import HonestSums, Problem, as_problem, pair_null_model
from engines.base import EngineInfo
from protocol import signing
from protocol.api.base import Hex64
from protocol.config import ChecksConfig, PoolConfig
from protocol.encoding import Document, canonical_json, parse_document, sha256_hex
from protocol.errors import ConfigError, IntegrityError, MusterError
from protocol.evidence.figures import RowFigures, engine_key, rounded
from protocol.evidence.null_model import ACCUMULATORS, BLOCK_ACCUMULATORS, PairNullModel, block_sums, problem_sums
from protocol.files import explained, file_digests, read_bounded

if TYPE_CHECKING:
    from protocol.accounts import LocalAccount


LEAST_PROBLEMS = 24
"""Problems per decode batch below which a variance says little."""
Count = Annotated[int, Field(ge=1, lt=2**53)]
_Value = Annotated[float, Field(ge=-1e12, le=1e12)]
_Problem = Annotated[
    tuple[tuple[_Value, _Value], ...], Field(min_length=len(ACCUMULATORS), max_length=len(ACCUMULATORS))
]
Problems = Annotated[tuple[_Problem, ...], Field(max_length=1 << 20)]
_Block = Annotated[
    tuple[tuple[_Value, _Value], ...], Field(min_length=len(BLOCK_ACCUMULATORS), max_length=len(BLOCK_ACCUMULATORS))
]
Blocks = Annotated[tuple[_Block, ...], Field(max_length=1 << 20)]


class Stratum(Document):
    """The sums of the four means in the files that were decoded `batch` at a time; `problems` and `blocks` are what
    evidence adds up (calibration/null_model.py)."""

    batch: Count
    files: Count
    sums: dict[str, Sums]
    problems: Problems = ()
    blocks: Blocks = ()


class Heldout(Document):
    """Files that no threshold was computed from: how many, and the largest measurement of any. Their `problems` and
    `blocks` choose the bets of evidence, whose rates the others give."""

    files: Count
    largest: dict[str, float]
    problems: Problems = ()
    blocks: Blocks = ()


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
        ratios={
            name: Tail.of([one.total / one.count for one in map(mean.series, rows)]) for name, mean in MEANS.items()
        },
        extremes={
            name: Tail.of([one.largest for one in map(extreme.series, rows)]) for name, extreme in EXTREMES.items()
        },
        heldout=Heldout(
            files=len(heldout),
            largest=_largest(heldout),
            problems=_evidence(heldout),
            blocks=_blocks(heldout),
        ),
    )


def _largest(files: Sequence[FileSample]) -> dict[str, float]:
    return {name: rounded(max(values)) for name, values in file_measurements(files).items()}


def file_measurements(files: Sequence[FileSample]) -> dict[str, list[float]]:
    """Return every measurement of every file, as the validator's checks compute it with each rollout audited."""
    out = {name: [mean.of_file(file.rows) for file in files] for name, mean in MEANS.items()}
    return out | {name: [extreme.of_file(file.rows) for file in files] for name, extreme in EXTREMES.items()}


def _stratum(batch: int, files: Sequence[FileSample]) -> Stratum:
    own = [file for file in files if file.batch == batch]
    problems = len({(number, row.group) for number, file in enumerate(own) for row in file.rows})
    if problems < LEAST_PROBLEMS:
        what = f"{problems} problems were measured at decode batch {batch}; at least {LEAST_PROBLEMS} are needed"
        raise ConfigError(what, "pass a larger --files")
    sums = {n: Sums.of(f, own) for n, f in MEANS.items()}
    return Stratum(batch=batch, files=len(own), sums=sums, problems=_evidence(own), blocks=_blocks(own))


def _evidence(files: Sequence[FileSample]) -> tuple[Problem, ...]:
    """Return the sums of every problem of files whose figures were kept."""
    problems: list[Problem] = []
    for file in files:
        groups: dict[int, list[RowFigures]] = {}
        for row in file.figures:
            groups.setdefault(file.rows[row.row].group, []).append(row)
        problems += [as_problem(problem_sums(rows)) for _, rows in sorted(groups.items())]
    return tuple(problems)


def _blocks(files: Sequence[FileSample]) -> tuple[Problem, ...]:
    """Return the sums of every block of those files."""
    return tuple(as_problem(sums) for file in files for sums in block_sums(file.blocks))


# --- Thresholds


FLOORS = {
    # Four values of a chunk at a power of two or at the cut of the 128 largest, rounded the other way at once.
    "exponent_mismatches_chunk_reject": 4.0,
    # Four mantissas of a chunk (of at least 64 compared) rounded the other way to bfloat16 at once.
    "mantissa_mean_chunk_reject": 4 / 64,
    # Claimed log-probabilities are float32: four units in the last place of a surprisal of up to 32 nats, and one.
    "logprob_error_reject": 8e-6,
    "logprob_mean_reject": 2e-6,
}
MOST = {
    "exponent_mismatches_reject": 128.0,
    "exponent_mismatches_chunk_reject": 128.0,
    "mantissa_mean_reject": 128.0,
    "mantissa_mean_chunk_reject": 128.0,
    "sampling_miss_rate_reject": 1.0,
}
"""No measurement exceeds these, whatever was computed; a threshold there refuses nothing but the impossible."""
UNRELATED = {
    # Of 128 random exponents of eight bits hardly one agrees.
    "exponent_mismatches_reject": 120.0,
    "exponent_mismatches_chunk_reject": 120.0,
    # The mean distance of two random numbers of seven bits is 128/3.
    "mantissa_mean_reject": 42.0,
    "mantissa_mean_chunk_reject": 42.0,
    # Text that was chosen without the noise misses where the model is unsure, and where it is sure of other text.
    "sampling_miss_rate_reject": 0.5,
    # A word that is one in 265, the demo's vocabulary, claimed to be certain, is 5.6 nats off.
    "logprob_mean_reject": 5.6,
    "logprob_error_reject": 5.6,
    "sampling_gap_reject": 5.6,
}
"""What the work of an unrelated model reaches, roughly: a threshold there or above sees nothing."""
_RARE = 50
"""Events of a whole sample above which their count needs no Poisson floor."""


def thresholds(
    pairs: Sequence[PairMeasurements], design: Design, false_reject: float, safety: float
) -> dict[str, float]:
    """Return every measurement's reject threshold, the largest over the pairs, rounded up to three digits."""
    each = [_pair(pair, design, false_reject / len(MEASUREMENTS), safety) for pair in pairs]
    return {name: rounded_up(max(limits[name] for limits in each), 3) for name in MEASUREMENTS}


def _pair(pair: PairMeasurements, design: Design, probability: float, safety: float) -> dict[str, float]:
    out = {}
    for name, extreme in EXTREMES.items():
        bound = limit(pair.extremes[name], probability / design.rows, extreme.quantum)
        out[name] = max(safety * bound.value, FLOORS.get(name, 0.0))
    # Two scores are each off by their error of ln p (the common constant cancels), and the verifier's own choice is a
    # sample as well, with errors like those of chosen tokens: a gap of g needs an error of g/2 on either side.
    either = 2 * max(
        safety * limit(pair.extremes["logprob_error_reject"], probability / 2 / design.rows, 0.0).value, 8e-6
    )
    few = pair.extremes["sampling_gap_reject"].at_least < FEWEST
    out["sampling_gap_reject"] = either if few else min(out["sampling_gap_reject"], either)
    for name, mean in MEANS.items():
        strata = [stratum.sums[name] for stratum in pair.strata]
        # Sums of whole events have tails in whole steps.
        found_mean = mean_limit(strata, pair.ratios[name], design, probability, 1.0 if mean.quantum == 1.0 else 0.0)
        floor = _poisson_floor(pair, name, design, probability) if mean.quantum else 0.0
        seen = pair.largest[name]
        out[name] = max(safety * found_mean, safety * seen, floor, FLOORS.get(name, 0.0))
    return {name: min(value, MOST.get(name, math.inf)) for name, value in out.items()}


def blind(limits: Mapping[str, float]) -> list[str]:
    """Return the thresholds that not even an unrelated model's work would reach."""
    return [name for name in MEASUREMENTS if limits[name] >= UNRELATED[name]]


def _poisson_floor(pair: PairMeasurements, name: str, design: Design, probability: float) -> float:
    """Bound rare events that come one by one: how many a submission may hold though the sample has few or none."""
    strata = [stratum.sums[name] for stratum in pair.strata]
    counted, total = sum(sums.count for sums in strata), math.fsum(sums.total for sums in strata)
    rows = sum(sums.rows for sums in strata)
    quantum = MEANS[name].quantum
    events = total / quantum
    if events > _RARE:
        return 0.0
    upper = events + 1.645 * math.sqrt(events) + 3.0
    in_file = counted / rows * design.rows * design.audited
    fewest = max(1.0, counted / rows * design.fewest)
    return (_poisson_quantile(upper * in_file / counted, probability) + 1) * quantum / fewest


def _poisson_quantile(rate: float, probability: float) -> int:
    """Return the least c with P(Poisson(rate) > c) ≤ probability."""
    term = math.exp(-rate)
    left, count = 1.0 - term, 0
    while left > probability and count < 10_000:
        count += 1
        term *= rate / count
        left -= term
    return count


# --- The document


METHOD: Literal["peaks over threshold, Chernoff, bets"] = "peaks over threshold, Chernoff, bets"
_DOMAIN = signing.Domain("muster-calibration", "1", 0, "0x" + "00" * 20)
_STRUCT = "Calibration(bytes32 digest)"
_MAX_BYTES = 64 << 20
_TOLERANCE = 2e-3
"""Machines differ in the last place of a logarithm, which may round a third digit the other way."""


class Calibration(Document):
    """Hashes are hex: `pool` is `subject(config)`, `weights` is `weights_hash(folder)`; `time` in Unix seconds;
    `audit_rate` in 1/65536; `seed` is what the honest files' randomness was made from; `false_reject` is per
    submission. `signature` is hex of 65 bytes, empty while unsigned."""

    version: Literal[1] = 1
    method: Literal["peaks over threshold, Chernoff, bets"] = METHOD
    time: Count
    seed: Annotated[str, Field(max_length=100)]
    pool: Hex64
    weights: Hex64
    problems: Annotated[int, Field(ge=1, le=4096)]
    samples: Annotated[int, Field(ge=1, le=256)]
    audit_rate: Annotated[int, Field(ge=1, le=65536)]
    false_reject: Annotated[float, Field(gt=0, lt=0.5)]
    safety: Annotated[float, Field(ge=1, le=100)]
    pairs: Annotated[tuple[PairMeasurements, ...], Field(min_length=1, max_length=64)]
    thresholds: dict[str, Annotated[float, Field(gt=0)]]
    evidence_safety: Annotated[float, Field(ge=1, le=100)] = 1.1
    evidence: tuple[PairNullModel, ...] = ()
    signer: str
    signature: Annotated[str, Field(pattern=r"^([0-9a-f]{130}|)$")] = ""

    def canonical(self) -> bytes:
        return canonical_json(self.model_dump(mode="json"))

    @property
    def digest(self) -> bytes:
        """What is signed."""
        body = canonical_json(self.model_dump(mode="json", exclude={"signature"}))
        return signing.digest(_DOMAIN, _STRUCT, hashlib.sha256(body).digest())

    def signed(self, account: "LocalAccount") -> Self:
        if self.signer != account.address:
            raise ValueError("the document names another signer")
        return self.model_copy(update={"signature": signing.sign(account, self.digest).hex()})

    @property
    def design(self) -> Design:
        return Design(self.problems, self.samples, self.audit_rate / 65536)

    def computed(self) -> dict[str, float]:
        """The thresholds that follow from the document's measurements."""
        return thresholds(self.pairs, self.design, self.false_reject, self.safety)

    def null_model(self) -> tuple[PairNullModel, ...]:
        """Return the null models that follow from the measurements, one for each pair whose figures the document
        has."""
        able = [pair for pair in self.pairs if pair.heldout.problems and all(one.problems for one in pair.strata)]
        models = []
        for pair in able:
            worker, verifier = (engine_key(one.name, one.dtype, one.device) for one in (pair.worker, pair.verifier))
            strata = [HonestSums(stratum.problems, stratum.blocks) for stratum in pair.strata]
            pilot = HonestSums(pair.heldout.problems, pair.heldout.blocks)
            models.append(pair_null_model(worker, verifier, strata, pilot, self.evidence_safety, len(able)))
        return tuple(models)

    def heldout(self) -> tuple[int, int]:
        """(held-out files, pairs of which one was over a threshold)."""
        over = sum(any(p.heldout.largest[name] >= self.thresholds[name] for name in MEASUREMENTS) for p in self.pairs)
        return sum(pair.heldout.files for pair in self.pairs), over

    def check(self, signer: str | None = None) -> None:
        """Raise IntegrityError unless the signature is `signer`'s (the named one's if None), the thresholds follow from
        the measurements, and no held-out file was over."""
        try:
            actual = signing.recover(self.digest, bytes.fromhex(self.signature))
        except (MusterError, ValueError) as error:
            raise IntegrityError(f"the calibration's signature is bad: {error}", "ask for the file again") from None
        if actual != self.signer:
            raise IntegrityError(
                f"the calibration is not signed by {self.signer}", "its measurements were changed; ask again"
            )
        if signer is not None and actual != signer:
            raise IntegrityError(f"the calibration is signed by {actual}, not by {signer}", "ask the pool's owner")
        wanted = self.computed()
        for name in MEASUREMENTS:
            if not math.isclose(self.thresholds.get(name, -1.0), wanted[name], rel_tol=_TOLERANCE):
                claimed = self.thresholds.get(name)
                raise IntegrityError(
                    f"`{name}` is {claimed}, but {wanted[name]} follows from the measurements", "measure again"
                )
        if not _alike(self.evidence, self.null_model()):
            raise IntegrityError("its null models do not follow from the measurements", "measure again")
        if set(self.thresholds) != set(MEASUREMENTS):
            raise IntegrityError("the calibration has thresholds that no check knows", "measure again")
        if self.heldout()[1]:
            raise IntegrityError("a held-out honest file is over a threshold", "measure again with more --files")

    def checks(self, base: ChecksConfig) -> ChecksConfig:
        """`base` with the calibrated thresholds."""
        return base.model_copy(update=dict(self.thresholds))

    @classmethod
    def parse(cls, data: bytes, where: str) -> Self:
        """Raises ConfigError for anything but a calibration document; the signature is for `check`."""
        return parse_document(data, cls, f"{where} is not a calibration")

    @classmethod
    def load(cls, path: Path) -> Self:
        return cls.parse(read_bounded(path, _MAX_BYTES), str(path))


def _alike(claimed: tuple[PairNullModel, ...], found: tuple[PairNullModel, ...]) -> bool:
    """Return whether null models are the same up to the last places of a logarithm, which machines round
    differently."""

    def figures(models: tuple[PairNullModel, ...]) -> dict[tuple[str, str, str, int, str], float]:
        return {
            (pair.worker, pair.verifier, name, place, figure): value
            for pair in models
            for name, bets in pair.bets.items()
            for place, bet in enumerate(bets)
            for figure, value in bet
        }

    ours, theirs = figures(found), figures(claimed)
    return ours.keys() == theirs.keys() and all(
        math.isclose(value, theirs[key], rel_tol=_TOLERANCE, abs_tol=1e-9) for key, value in ours.items()
    )


def subject(config: PoolConfig) -> str:
    """Return the hex SHA-256 of what a calibration depends on: model, environments and work."""
    chosen = config.model_dump(mode="json", include={"model", "environments", "work"})
    return sha256_hex(canonical_json(chosen))


def weights_hash(folder: Path) -> str:
    """Return the hex SHA-256 of the canonical JSON {file name: SHA-256} of a model folder. Raises ConfigError."""
    with explained(f"read {folder}", "name a model folder"):
        return sha256_hex(canonical_json(file_digests(folder)))
