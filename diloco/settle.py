"""Making an outer step from published contributions: what the coordinator, every worker and any verifier compute alike.

Contributions are decoded one shard at a time, so memory holds one shard of each, never whole pseudo-gradients, and the
weighted sum adds workers in ascending order of their addresses. Cutting differently would give the same bits.
"""

import logging
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from diloco.admission import Admitted, admit, admit_equally
from diloco.codec import decode_shard
from diloco.log import Log, partition_before
from diloco.messages import CommitRecord, Contribution, Expected, ShardEntry
from diloco.outer import OuterState, OuterStepError, OuterUpdate
from diloco.partition import Partition
from diloco.tensors import F32, add_products, cut, gram
from diloco.transport import Transport
from protocol.errors import IntegrityError, MusterError

log = logging.getLogger("muster.diloco")
ReadShard = Callable[[ShardEntry], bytes]


@dataclass(frozen=True)
class Payloads:
    """The payloads of one attempt at the outer step that starts from `state`; `read`: how files are had."""

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
    changes = (float(np.linalg.norm(after.weights[name] - one)) for name, one in before.weights.items())
    return math.sqrt(math.fsum(change * change for change in changes))


def expected_at(log_: Log, state: OuterState) -> Expected:
    """Return what a contribution to the attempt under way must look like."""
    run, partition = log_.transport.run, log_.schedule.partition
    return Expected.of(run, state.step, state.digest, state.layout, partition)


def make_step(
    transport: Transport,
    state: OuterState,
    commit: CommitRecord,
    partition: Partition | None = None,
    read: ReadShard | None = None,
) -> tuple[OuterState, Admitted]:
    """Make the step from `state` that `commit` commits, and return the state and which contributions counted.

    `partition`: of the attempt it was made in, None to read it in the log; `read`: how payloads are had. Raises
    IntegrityError if the step does not lead to the state that the log names, or is made of what strangers gave;
    MissingObjectError, UnreachableError."""
    run = transport.run
    run.check_workers(commit.made_of)
    partition = partition or partition_before(transport, commit)
    expected = Expected.of(run, state.step, state.digest, state.layout, partition)
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


_WRONG = "stop: the run's coordinator is wrong, or this machine is"


def catch_up(transport: Transport, state: OuterState, log_: Log) -> Iterator[OuterState]:
    """Yield the states after `state` up to the log's newest, one by one, from a published one on where `state` is too
    old or none of the log's. Raises IntegrityError where neither leads there; MissingObjectError, UnreachableError."""
    missing: list[CommitRecord] = []
    for _, commit in log_.commits_back():
        if (commit.step, commit.digest) == (state.step, state.digest.hex()):
            break
        missing.append(commit)
        published = published_state(transport, commit, state)
        if published is not None:
            missing.pop()
            state = published
            yield state
            break
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
    """An outer step as the log and the bucket tell it: from the state of digest `base`, made in attempt `attempt`.
    `counted`: the admitted contributions by worker; `files`: the files (hex) of every worker that contributed."""

    step: int
    base: str
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
    partition = partition_before(transport, after)
    expected = Expected.of(transport.run, step, bytes.fromhex(commit.digest), state.layout, partition)
    counted = {
        worker: transport.contribution(document, worker, expected)
        for worker, document in sorted(after.made_of.items())
        if worker in after.counted
    }
    files = {worker: expected.items(worker) for worker in sorted(after.made_of)}
    return MadeStep(step, commit.digest, after.attempt, counted, files)
