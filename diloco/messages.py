"""Everything that is signed in a run: contributions, workers' messages, and entries of the coordinator's log.

Each is stored as the canonical JSON {body, signature}. The EIP-712 signature covers the hash of the body, which
names its own place (run, author, number), so nobody can move or repeat it. What arrives is a stranger's: it is
bounded before it is parsed, and refused unless it is byte for byte what encoding it again gives.
"""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Generic, Literal, Self, TypeVar

from pydantic import AfterValidator, Field, model_validator

from diloco.codec import MalformedContribution, Origin, max_shard_bytes
from diloco.config import DilocoRun, Mode
from diloco.partition import MAX_ITEMS, Partition
from diloco.tensors import TensorLayout
from protocol import signing
from protocol.accounts import LocalAccount
from protocol.api.base import Address, Hex64, Rows, Signature, SignedBody, UnixTime, at_most
from protocol.encoding import canonical_json
from protocol.errors import IntegrityError
from protocol.signing import check_signer, open_canonical
from storage.weights.manifest import MAX_WORKERS

DOMAIN = "muster-diloco"
MAX_STEP = 1 << 32
MAX_NUMBER = 10**10
"""Of a worker's messages, and of the log's entries."""
MAX_ENTRY_BYTES, MAX_MESSAGE_BYTES = 1 << 16, 2048
MAX_EVENTS = 128
MAX_NAMED = 16
MAX_REASON = 200
NO_ENTRY = "0" * 64
"""What the first entry names as the one before it."""
B = TypeVar("B", bound=SignedBody)


class Signed(SignedBody, Generic[B]):
    """The stored form of a document."""

    body: B
    signature: Signature


def _digest(body: SignedBody, run: DilocoRun) -> bytes:
    data = hashlib.sha256(canonical_json(body.model_dump(mode="json"))).digest()
    struct = f"{type(body).__name__}(bytes32 run,bytes32 body)"
    return signing.digest(run.pool_id.domain(DOMAIN), struct, bytes.fromhex(run.digest), data)


def _seal(body: SignedBody, run: DilocoRun, account: LocalAccount, author: str) -> bytes:
    """Return the stored bytes. Raises ValueError unless the account is the author."""
    if account.address != author:
        raise ValueError(f"a {type(body).__name__} of {author} cannot be signed by {account.address}")
    signature = "0x" + signing.sign(account, _digest(body, run)).hex()
    return canonical_json({"body": body.model_dump(mode="json"), "signature": signature})


# Contributions.

MAX_METRIC = 1e9
_COUNTABLE = float(1 << 48)
_COUNTS = {"tokens": _COUNTABLE, "trained_tokens": _COUNTABLE, "documents": _COUNTABLE, "flops": 1e30}
"""Metrics that count something, from 0 to these: the sum over all workers is still a number that a database holds."""


def _metric_bounds(name: str) -> tuple[float, float]:
    return (0.0, _COUNTS[name]) if name in _COUNTS else (-MAX_METRIC, MAX_METRIC)


def _bounded(metrics: dict[str, float]) -> dict[str, float]:
    for name, value in metrics.items():
        least, most = _metric_bounds(name)
        if not least <= value <= most:
            raise ValueError(f"{name} is {value:.6g}, outside {least:.6g} to {most:.6g}")
    return metrics


def reportable(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return the metrics that a contribution may report: a worker whose model diverged leaves out what is out of
    bounds."""
    finite = {name: float(value) for name, value in metrics.items() if math.isfinite(value)}
    return {
        name: value for name, value in finite.items() if _metric_bounds(name)[0] <= value <= _metric_bounds(name)[1]
    }


MetricName = Annotated[str, Field(pattern=r"^[a-z_]{1,24}$")]
ReportedMetrics = Annotated[dict[MetricName, float], at_most(16), AfterValidator(_bounded)]


class ShardEntry(SignedBody):
    """A file of a payload: SHA-256 and length in bytes."""

    sha256: Hex64
    size: int = Field(ge=1, lt=1 << 40)


class Contribution(SignedBody):
    """What `worker` adds to outer step `step`, computed from the outer state of digest `base`.

    It is published before the payload: the shards' hashes bind the worker to bytes that nobody else has seen. `items`:
    SHA-256 of the files it trained on, ascending, which must be those of its partition. `tokens` and `metrics` are the
    worker's claim; no rule of the protocol uses them."""

    version: Literal[2] = 2
    run: Hex64
    worker: Address
    step: int = Field(ge=0, lt=MAX_STEP)
    base: Hex64
    inner_steps: int = Field(ge=1, le=1 << 16)
    tokens: int = Field(ge=1, lt=1 << 48)
    items: Annotated[Rows[Hex64], Field(max_length=MAX_ITEMS)] = Field(default_factory=list)
    mode: Mode
    shards: Annotated[Rows[ShardEntry], Field(min_length=1, max_length=1024)]
    metrics: ReportedMetrics = Field(default_factory=dict)

    @model_validator(mode="after")
    def _no_repetition(self) -> Self:
        if len({one.sha256 for one in self.shards}) < len(self.shards):
            raise ValueError("a shard is named twice")
        if any(item >= after for item, after in pairwise(self.items)):
            raise ValueError("a file is named twice, or they do not ascend")
        return self


@dataclass(frozen=True)
class Expected:
    """What a contribution to outer step `step`, from the state of digest `base` (hex), must look like. `max_bytes`: of
    each shard. `partition`: of the attempt it is for, None where workers read their own data."""

    run: DilocoRun
    step: int
    base: str
    max_bytes: tuple[int, ...]
    partition: Partition | None = None

    @classmethod
    def of(
        cls, run: DilocoRun, step: int, base: bytes, layout: TensorLayout, partition: Partition | None = None
    ) -> "Expected":
        max_bytes = tuple(max_shard_bytes(pieces) for pieces in layout.shards(run.settings.shards))
        return cls(run, step, base.hex(), max_bytes, partition)

    @property
    def document_bytes(self) -> int:
        """Upper bound of the signed contribution's length."""
        return 2048 + 112 * len(self.max_bytes) + 67 * MAX_ITEMS

    def items(self, worker: str) -> tuple[str, ...]:
        """Return the files of a worker (hex, ascending)."""
        return () if self.partition is None else self.partition.of(worker)

    def origin(self, worker: str) -> Origin:
        return Origin(self.run.digest, self.step, self.base, worker)

    def check(self, found: Contribution) -> None:
        """Raise MalformedContribution, which names what is wrong."""
        settings = self.run.settings
        if found.run != self.run.digest:
            raise MalformedContribution(f"it is for run {found.run[:16]}…, this is {self.run.digest[:16]}…")
        if found.step != self.step:
            raise MalformedContribution(f"it is for outer step {found.step}, this is {self.step}")
        if found.base != self.base:
            raise MalformedContribution(
                f"it started from {found.base[:16]}…, outer step {self.step} from another state"
            )
        assigned = set(self.items(found.worker))
        for item in sorted(set(found.items) ^ assigned):
            fault = "does not name" if item in assigned else "names"
            raise MalformedContribution(f"it {fault} file {item[:16]}…, against the partition")
        if found.mode != settings.mode:
            raise MalformedContribution(f"its mode is {found.mode}, the run's {settings.mode}")
        if found.inner_steps > settings.inner_steps:
            raise MalformedContribution(f"{found.inner_steps} inner steps, {settings.inner_steps} at most are allowed")
        if len(found.shards) != len(self.max_bytes):
            raise MalformedContribution(f"{len(found.shards)} shards, not {len(self.max_bytes)}")
        for number, (entry, most) in enumerate(zip(found.shards, self.max_bytes, strict=True)):
            if entry.size > most:
                raise MalformedContribution(f"shard {number} has {entry.size} bytes, {most} at most are honest")


def seal_contribution(contribution: Contribution, run: DilocoRun, account: LocalAccount) -> bytes:
    """Sign and encode a contribution. Raises ValueError for another account's."""
    return _seal(contribution, run, account, contribution.worker)


def open_contribution(data: bytes, expected: Expected) -> Contribution:
    """Decode and check a stranger's contribution. Raises MalformedContribution."""
    noun = "a contribution of this run"
    signed = open_canonical(data, Signed[Contribution], expected.document_bytes, noun, MalformedContribution)
    expected.check(signed.body)
    digest = _digest(signed.body, expected.run)
    check_signer(digest, signed.signature, signed.body.worker, MalformedContribution)
    return signed.body


# Messages of workers to the coordinator.


class MalformedMessage(IntegrityError):
    """Bytes that are no message of that worker and number."""


MessageKind = Literal["join", "leave", "sign", "unusable"]


class WorkerMessage(SignedBody):
    """The `number`-th message of a worker.

    `join`: it holds the outer state of `digest` and asks to be a member. `leave`: it ends. `sign`: its contribution to
    attempt `attempt` at outer step `step` is the document of SHA-256 `digest`. `unusable`: it cannot train on `items`
    (SHA-256 each; there may be more) of those assigned to it in that attempt."""

    version: Literal[2] = 2
    run: Hex64
    worker: Address
    number: int = Field(ge=0, lt=MAX_NUMBER)
    kind: MessageKind
    step: int = Field(ge=0, lt=MAX_STEP)
    attempt: int = Field(0, ge=0, lt=1 << 32)
    digest: Hex64 | None = None
    items: Annotated[list[Hex64], Field(max_length=MAX_NAMED)] = Field(default_factory=list)

    @model_validator(mode="after")
    def _fields_fit_the_kind(self) -> Self:
        if (self.digest is None) != (self.kind in ("leave", "unusable")):
            raise ValueError("`digest` belongs to `join` and `sign`")
        if bool(self.items) != (self.kind == "unusable"):
            raise ValueError("`items` belong to `unusable`")
        return self


def seal_message(message: WorkerMessage, run: DilocoRun, account: LocalAccount) -> bytes:
    """Sign and encode a message. Raises ValueError for another account's."""
    return _seal(message, run, account, message.worker)


def open_message(data: bytes, run: DilocoRun, worker: str, number: int) -> WorkerMessage:
    """Decode the `number`-th message of `worker`. Raises MalformedMessage for anything else."""
    signed = open_canonical(data, Signed[WorkerMessage], MAX_MESSAGE_BYTES, "a message", MalformedMessage)
    found = signed.body
    if (found.run, found.worker, found.number) != (run.digest, worker, number):
        raise MalformedMessage(f"it is message {found.number} of {found.worker}, here belongs {number} of {worker}")
    check_signer(_digest(found, run), signed.signature, worker, MalformedMessage)
    return found


# The coordinator's log.

_Step = Annotated[int, Field(ge=0, lt=MAX_STEP)]
_Number = Annotated[int, Field(ge=0, lt=MAX_NUMBER)]
_Attempt = Annotated[int, Field(ge=0, lt=1 << 32)]
_Members = Annotated[list[Address], Field(max_length=MAX_WORKERS)]
_Documents = Annotated[dict[Address, Hex64], at_most(MAX_WORKERS)]
_Numbers = Annotated[dict[Address, _Number], at_most(MAX_WORKERS)]
PhaseName = Literal["collect", "open", "settle"]


class MalformedEntry(IntegrityError):
    """Bytes that the coordinator did not write for this place of the log: anybody's who may write to the bucket."""


class StrikesOf(SignedBody):
    """Strikes of a worker that held up outer steps; see `state_machine.Strikes`."""

    count: int = Field(ge=1, le=64)
    until: int = Field(ge=0, lt=2 * MAX_STEP)
    made: int = Field(ge=0, le=64)


class CommitRecord(SignedBody):
    """Commits an outer step and begins the next one: everything that a newcomer must know to follow from here.

    Outer step `step` begins from the state of `digest` with `members`, or once `waiting` are enough. The state was
    made in attempt `attempt` at the step before, of all opened contributions (`made_of`), of which those of
    `counted` were admitted. `previous`: number of the commit record before (null: none). `state`: SHA-256 of the
    list of files in which the state is published, if it is. `messages`: for each worker, the number of its first
    message that is not in the log. `strikes`: of those who held up earlier steps."""

    kind: Literal["commit"] = "commit"
    step: _Step
    digest: Hex64
    attempt: _Attempt = 0
    members: _Members = Field(default_factory=list)
    waiting: _Members = Field(default_factory=list)
    made_of: _Documents = Field(default_factory=dict)
    counted: _Members = Field(default_factory=list)
    previous: _Number | None = None
    state: Hex64 | None = None
    messages: _Numbers = Field(default_factory=dict)
    strikes: Annotated[dict[Address, StrikesOf], at_most(MAX_WORKERS)] = Field(default_factory=dict)


class FilesAssigned(SignedBody):
    """The files (SHA-256) that outer step `step` trains on, which are split among its members."""

    kind: Literal["files"] = "files"
    step: _Step
    items: Annotated[list[Hex64], Field(max_length=MAX_ITEMS)]


class Joined(SignedBody):
    """Message `message` of `worker`: it holds the state `digest` and asks to be a member."""

    kind: Literal["joined"] = "joined"
    worker: Address
    message: _Number
    digest: Hex64


class Left(SignedBody):
    """Message `message` of `worker`: it ends."""

    kind: Literal["left"] = "left"
    worker: Address
    message: _Number


class ContributionSigned(SignedBody):
    """Message `message` of `worker` signs the contribution `document`."""

    kind: Literal["signed"] = "signed"
    worker: Address
    message: _Number
    document: Hex64


class ContributionRefused(SignedBody):
    """Message `message` of `worker` signs `document`, which is no contribution to the attempt under way, and `why`. The
    worker is excluded from this outer step unless too few others are left."""

    kind: Literal["refused"] = "refused"
    worker: Address
    message: _Number
    document: Hex64
    why: str = Field(min_length=1, max_length=MAX_REASON)


class FilesUnusable(SignedBody):
    """Message `message` of `worker`: it cannot train on `items` of its partition. It is excluded from this outer step
    unless too few others are left; then all come back, and the named files are skipped."""

    kind: Literal["unusable"] = "unusable"
    worker: Address
    message: _Number
    items: Annotated[list[Hex64], Field(min_length=1, max_length=MAX_NAMED)]


class PayloadOpened(SignedBody):
    """The payload of `worker`'s contribution `document` is published whole, and decodes."""

    kind: Literal["opened"] = "opened"
    worker: Address
    document: Hex64


class PhaseTimedOut(SignedBody):
    """Time is up for phase `phase` of attempt `attempt`."""

    kind: Literal["timeout"] = "timeout"
    attempt: _Attempt
    phase: PhaseName


class AttemptFailed(SignedBody):
    """Attempt `attempt` made no outer step, because too little of what was opened is admitted."""

    kind: Literal["failed"] = "failed"
    attempt: _Attempt


LogEvent = Annotated[
    CommitRecord
    | FilesAssigned
    | Joined
    | Left
    | ContributionSigned
    | ContributionRefused
    | FilesUnusable
    | PayloadOpened
    | PhaseTimedOut
    | AttemptFailed,
    Field(discriminator="kind"),
]
MessageEvent = Joined | Left | ContributionSigned | ContributionRefused | FilesUnusable
"""Events that take a worker's message into the log."""


class LogEntry(SignedBody):
    """Entry `number`, after the one whose stored bytes have the SHA-256 `previous`.

    Its `events` happened one after the other and are taken together or not at all; a commit record comes last. `epoch`:
    number of the entry whose commit record began the step under way. `time`: the coordinator's clock, for people."""

    version: Literal[3] = 3
    run: Hex64
    number: _Number
    previous: Hex64
    epoch: _Number
    time: UnixTime
    events: Annotated[list[LogEvent], Field(min_length=1, max_length=MAX_EVENTS)]

    @model_validator(mode="after")
    def _ends_with_a_commit(self) -> Self:
        if any(isinstance(event, CommitRecord) for event in self.events[:-1]):
            raise ValueError("a commit record is the last event of its entry")
        return self

    @property
    def commit(self) -> CommitRecord | None:
        """The commit record that it ends with, if it does."""
        last = self.events[-1]
        return last if isinstance(last, CommitRecord) else None


def seal_entry(entry: LogEntry, run: DilocoRun, account: LocalAccount) -> bytes:
    """Sign and encode an entry. Raises ValueError for anyone but the coordinator."""
    return _seal(entry, run, account, run.coordinator)


def open_entry(data: bytes, run: DilocoRun, number: int, previous: str | None) -> LogEntry:
    """Decode entry `number`, which follows the entry of hash `previous` (None: not known).

    Raises MalformedEntry for what the coordinator did not write there; IntegrityError where it follows another
    entry."""
    signed = open_canonical(data, Signed[LogEntry], MAX_ENTRY_BYTES, "an entry of the log", MalformedEntry)
    entry = signed.body
    if (entry.run, entry.number) != (run.digest, number):
        raise MalformedEntry(f"it is entry {entry.number} of run {entry.run[:16]}…, here belongs {number}")
    check_signer(_digest(entry, run), signed.signature, run.coordinator, MalformedEntry)
    if previous is not None and entry.previous != previous:
        raise IntegrityError(
            f"entry {number} of the log follows {entry.previous[:16]}…, the log has {previous[:16]}… before it",
            "run one coordinator",
        )
    return entry
