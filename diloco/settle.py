"""Making an outer step from published contributions: what the coordinator, every worker and any verifier compute alike.

Contributions are decoded one shard at a time, so memory holds one shard of each, never whole pseudo-gradients, and the
weighted sum adds workers in ascending order of their addresses. Cutting differently would give the same bits.
"""

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from diloco.codec import decode_shard
from diloco.config import AdmissionConfig
from diloco.log import Log, partition_before
from diloco.messages import CommitRecord, Contribution, Expected, ShardEntry
from diloco.outer import OuterState, OuterStepError, OuterUpdate
from diloco.partition import Partition
from diloco.tensors import F32, Products, add_products, cut, gram
from diloco.transport import Transport
from protocol.errors import IntegrityError, MusterError

log = logging.getLogger("muster.diloco")
ReadShard = Callable[[ShardEntry], bytes]
_WRONG = "stop: the run's coordinator is wrong, or this machine is"


# Admission: which contributions count, from what is published alone, the same to the bit for everybody
#
# A contribution counts if its length is within a factor of the median length, and the median of its cosines with the
# others' is not below a bound. Both follow from the inner products of all contributions, and a minority cannot move a
# median beyond the honest values. What counts is scaled down to the median length, so that a worker moves the weights
# no further than half of the others do.


@dataclass(frozen=True)
class Admitted:
    """`weights`: for each admitted worker, the factor of its contribution in the sum; empty if the outer step cannot be
    made of what there is. `excluded`: why another worker's contribution does not count."""

    weights: Mapping[str, Fraction]
    excluded: Mapping[str, str]


def admit_equally(workers: Sequence[str], config: AdmissionConfig) -> Admitted:
    """Admit every contribution that decodes, which makes it finite: one owner trusts all workers (`cosine` null)."""
    if len(workers) < config.minimum:
        return _too_few(workers, {}, config)
    return Admitted({worker: Fraction(1, len(workers)) for worker in workers}, {})


def admit(workers: Sequence[str], products: Products, config: AdmissionConfig) -> Admitted:
    """Judge contributions by their inner products with one another, in the order of `workers`."""
    assert config.cosine is not None, "see admit_equally"
    excluded: dict[str, str] = {}
    at = {worker: place for place, worker in enumerate(workers)}
    lengths = {worker: math.sqrt(products[place][place]) for worker, place in at.items()}
    for worker, length in lengths.items():
        if not math.isfinite(length):
            excluded[worker] = "infinity or NaN in it"
        elif length == 0:
            excluded[worker] = "it is zero"
    left = [worker for worker in workers if worker not in excluded]
    median = _lower_median([lengths[worker] for worker in left])
    for worker in left:
        if not median / config.norm_factor <= lengths[worker] <= median * config.norm_factor:
            excluded[worker] = f"its length is {lengths[worker] / median:.3g} times the median"
    left = [worker for worker in left if worker not in excluded]
    for worker in left:
        others = [other for other in left if other != worker]
        cosines = sorted(products[at[worker]][at[one]] / (lengths[worker] * lengths[one]) for one in others)
        # The higher of two middle values: of two others, an honest worker needs one that is honest.
        typical = cosines[len(cosines) // 2] if cosines else -1.0
        if typical < config.cosine:
            excluded[worker] = f"its median cosine with the others is {typical:.3f}"
    left = [worker for worker in left if worker not in excluded]
    if len(left) < config.minimum:
        return _too_few(left, excluded, config)
    median = _lower_median([lengths[worker] for worker in left])
    scale = {worker: min(Fraction(1), Fraction(median) / Fraction(lengths[worker])) for worker in left}
    return Admitted({worker: Fraction(1, len(left)) * scale[worker] for worker in left}, excluded)


def _too_few(workers: Sequence[str], excluded: Mapping[str, str], config: AdmissionConfig) -> Admitted:
    why = f"only {len(workers)} are admitted, {config.minimum} are needed"
    return Admitted({}, {**excluded, **dict.fromkeys(workers, why)})


def _lower_median(values: Sequence[float]) -> float:
    """Return the lower of two middle values: never longer than an honest length while fewer than half are hostile."""
    return sorted(values)[(len(values) - 1) // 2] if values else 0.0


# The outer step


@dataclass(frozen=True)
class Payloads:
    """The payloads of one attempt at the outer step that starts from `state`; `read` returns a file of one."""

    state: OuterState
    expected: Expected
    contributions: Mapping[str, Contribution]
    read: ReadShard

    def shard(self, worker: str, number: int) -> list[F32]:
        """Decode a worker's shard into the pieces of its pseudo-gradient (outer − inner weights).

        Raises MalformedContribution, and whatever `read` raises."""
        settings = self.expected.run.settings
        pieces = self.state.layout.shards(settings.shards)[number]
        data = self.read(self.contributions[worker].shards[number])
        base = cut(self.state.weights, pieces)
        return decode_shard(data, self.expected.origin(worker), number, pieces, settings.mode, base)

    def check(self, worker: str) -> None:
        """Decode a worker's payload whole and drop it. Raises as `shard`."""
        for number in range(self.expected.run.settings.shards):
            self.shard(worker, number)


def settle(payloads: Payloads) -> tuple[OuterState | None, Admitted]:
    """Return the state after the outer step, None if too few contributions are admitted, and which are.

    Raises OuterStepError where the state would not be finite, and as `Payloads.shard`."""
    settings, state = payloads.expected.run.settings, payloads.state
    workers = sorted(payloads.contributions)
    if settings.admission.cosine is None:
        admitted = admit_equally(workers, settings.admission)
    else:
        products = [gram([payloads.shard(one, number) for one in workers]) for number in range(settings.shards)]
        admitted = admit(workers, add_products(products), settings.admission)
    if not admitted.weights:
        return None, admitted
    update = OuterUpdate(state, settings.outer)
    factors = {worker: np.float32(float(admitted.weights[worker])) for worker in sorted(admitted.weights)}
    for number, pieces in enumerate(state.layout.shards(settings.shards)):
        sums: list[F32] = [np.zeros(piece.size, np.float32) for piece in pieces]
        for worker, factor in factors.items():
            for total, value in zip(sums, payloads.shard(worker, number), strict=True):
                with np.errstate(over="ignore", invalid="ignore"):
                    total += np.multiply(factor, value)
        update.apply(pieces, sums)
    return update.finish(), admitted


def skip_step(state: OuterState) -> OuterState:
    """Return the state after an outer step with too few files to train on: nothing changes but its number."""
    return replace(state, step=state.step + 1)


def update_norm(before: OuterState, after: OuterState) -> float:
    """Return the length of the change of all weights; 0 unless the states follow one another."""
    if after.step != before.step + 1:
        return 0.0
    return math.hypot(*(float(np.linalg.norm(after.weights[name] - one)) for name, one in before.weights.items()))


def expected_at(log_: Log, state: OuterState) -> Expected:
    """Return what a contribution to the attempt under way must look like."""
    return Expected(log_.transport.run, state.step, state.digest.hex(), state.layout, log_.schedule.partition)


def make_step(
    transport: Transport,
    state: OuterState,
    commit: CommitRecord,
    partition: Partition | None = None,
    read: ReadShard | None = None,
) -> tuple[OuterState, Admitted]:
    """Make the step from `state` that `commit` commits, and return the state and which contributions counted.

    `partition`: of the attempt it was made in, None to read it in the log; `read` returns a file of a payload. Raises
    IntegrityError if the step does not lead to the state that the log names, or is made of what strangers gave;
    MissingObjectError, UnreachableError."""
    run = transport.run
    run.check_workers(commit.made_of)
    partition = partition or partition_before(transport, commit)
    expected = Expected(run, state.step, state.digest.hex(), state.layout, partition)
    contributions = {
        worker: transport.contribution(document, worker, expected) for worker, document in commit.made_of.items()
    }
    after: OuterState | None
    too_few = partition is not None and len(partition.items) < run.settings.admission.minimum
    if not contributions and too_few:
        after, admitted = skip_step(state), Admitted({}, {})
    else:
        try:
            after, admitted = settle(Payloads(state, expected, contributions, read or transport.shard))
        except OuterStepError as error:
            raise IntegrityError(f"outer step {state.step}: {error.what}", _WRONG) from None
    found = None if after is None else (after.step, after.digest.hex(), sorted(admitted.weights))
    if after is None or found != (commit.step, commit.digest, sorted(commit.counted)):
        raise IntegrityError(
            f"outer step {commit.step - 1} does not lead to the state and the workers that the log names", _WRONG
        )
    return after, admitted


def catch_up(transport: Transport, state: OuterState, log_: Log) -> Iterator[OuterState]:
    """Yield the states after `state` up to the log's newest, one by one, from a published one on where `state` is too
    old or none of the log's. Raises IntegrityError where neither leads there; MissingObjectError, UnreachableError."""
    missing: list[CommitRecord] = []
    for _, commit in log_.commits_back():
        if (commit.step, commit.digest) == (state.step, state.digest.hex()):
            break
        published = published_state(transport, commit, state)
        if published is not None:
            state = published
            yield state
            break
        missing.append(commit)
    else:
        raise IntegrityError(
            "the log does not contain the state that this process holds, nor a published one",
            "name the run's own base model, or another home",
        )
    for commit in reversed(missing):
        state, _ = make_step(transport, state, commit)
        yield state


def published_state(transport: Transport, commit: CommitRecord, state: OuterState) -> OuterState | None:
    """Return the state that `commit` begins as it was published, None where it cannot be had. `state`: any of the
    run, for its layout."""
    if commit.state is None:
        return None
    try:
        found = transport.state(commit.state, commit.step, commit.digest, state.layout)
    except MusterError as error:
        log.warning("state %d cannot be had, looking for an older one: %s", commit.step, error)
        return None
    log.info("took outer state %d from the bucket", commit.step)
    return found


@dataclass(frozen=True)
class MadeStep:
    """An outer step as the log and the bucket tell it, made in attempt `attempt`. `counted`: the admitted contributions
    by worker; `files`: the files (hex) of every worker that contributed."""

    step: int
    attempt: int
    counted: Mapping[str, Contribution]
    files: Mapping[str, tuple[str, ...]]

    def worker_of(self, item: str) -> str:
        """Return whose training on a file counts; empty for nobody's."""
        return next((worker for worker, items in self.files.items() if item in items and worker in self.counted), "")


def read_step(transport: Transport, log_: Log, state: OuterState, step: int) -> MadeStep:
    """Read what made outer step `step`; `state`: any of the run. Raises IntegrityError where the log has no such step;
    MissingObjectError, UnreachableError."""
    after: CommitRecord | None = None
    for _, commit in log_.commits_back():
        if commit.step == step and after is not None:
            break
        after = commit
    else:
        raise IntegrityError(f"outer step {step} is not in the log")
    expected = Expected(transport.run, step, commit.digest, state.layout, partition_before(transport, after))
    counted = {
        worker: transport.contribution(document, worker, expected)
        for worker, document in sorted(after.made_of.items())
        if worker in after.counted
    }
    files = {worker: expected.items(worker) for worker in sorted(after.made_of)}
    return MadeStep(step, after.attempt, counted, files)
