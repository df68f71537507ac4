"""Everything that is signed in a run: contributions, workers' messages, and entries of the coordinator's log.

Each is stored as the canonical JSON {body, signature}. The EIP-712 signature covers the hash of the body, which names
its own place (run, author, number), so nobody can move or repeat it."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Generic, Literal, Self, TypeVar

from pydantic import AfterValidator, Field, model_validator

from diloco.codec import MalformedContribution, TensorLayout, max_shard_bytes
from diloco.config import DilocoRun, Mode
from diloco.inner import MAX_ITEMS, Partition
from protocol import signing
from protocol.accounts import LocalAccount
from protocol.api.base import Address, Hex64, Rows, Signature, SignedBody, UnixTime, at_most
from protocol.encoding import canonical_json
from protocol.errors import IntegrityError
from protocol.signing import check_signer, open_canonical
from storage.weights.manifest import MAX_WORKERS

DOMAIN = "muster-diloco"
MAX_STEP = 1 << 32
MAX_NUMBER = 10**10  # of a worker's messages, and of the log's entries
MAX_ENTRY_BYTES, MAX_MESSAGE_BYTES = 1 << 16, 2048
MAX_EVENTS = 128  # of an entry
MAX_NAMED = 16  # files that one message names
MAX_REASON = 200
NO_ENTRY = "0" * 64  # what the first entry names as the one before it

Step = Annotated[int, Field(ge=0, lt=MAX_STEP)]
Number = Annotated[int, Field(ge=0, lt=MAX_NUMBER)]
AttemptNumber = Annotated[int, Field(ge=0, lt=1 << 32)]
B = TypeVar("B", bound=SignedBody)


class Signed(SignedBody, Generic[B]):
    """The stored form of a document."""

    body: B
    signature: Signature


def _digest(body: SignedBody, run: DilocoRun) -> bytes:
    data = hashlib.sha256(canonical_json(body.model_dump(mode="json"))).digest()
    struct = f"{type(body).__name__}(bytes32 run,bytes32 body)"
    return signing.digest(run.pool_id.domain(DOMAIN), struct, bytes.fromhex(run.digest), data)


def seal(body: "Contribution | WorkerMessage | LogEntry", run: DilocoRun, account: LocalAccount) -> bytes:
    """Sign and encode a document of the account's. Raises ValueError for another author's."""
    author = run.coordinator if isinstance(body, LogEntry) else body.worker
    if account.address != author:
        raise ValueError(f"a {type(body).__name__} of {author} cannot be signed by {account.address}")
    signature = "0x" + signing.sign(account, _digest(body, run)).hex()
    return canonical_json({"body": body.model_dump(mode="json"), "signature": signature})


# Contributions

MAX_METRIC = 1e30  # in either direction: the sum over all workers is still a number that a database holds


def _bounded(metrics: dict[str, float]) -> dict[str, float]:
    for name in metrics.keys() - reportable(metrics).keys():
        raise ValueError(f"{name} is {metrics[name]:.6g}, beyond {MAX_METRIC:g}")
    return metrics


def reportable(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return the metrics that a contribution may report; a diverged worker leaves out what is out of bounds."""
    return {name: float(value) for name, value in metrics.items() if abs(value) <= MAX_METRIC}


MetricName = Annotated[str, Field(pattern=r"^[a-z_]{1,24}$")]


class ShardEntry(SignedBody):
    """A file of a payload: SHA-256 and length in bytes."""

    sha256: Hex64
    size: int = Field(ge=1, lt=1 << 40)


class Contribution(SignedBody):
    """What `worker` adds to outer step `step`, computed from the outer state of digest `base`. It is published before
    the payload: the shards' hashes bind the worker to bytes that nobody else has seen. `items`: SHA-256 of the files it
    trained on, ascending, which must be those of its partition. `tokens` and `metrics` are the worker's claim; no rule
    of the protocol uses them."""

    version: Literal[2] = 2
    run: Hex64
    worker: Address
    step: Step
    base: Hex64
    inner_steps: int = Field(ge=1, le=1 << 16)
    tokens: int = Field(ge=1, lt=1 << 48)
    items: Annotated[Rows[Hex64], Field(max_length=MAX_ITEMS)] = Field(default_factory=list)
    mode: Mode
    shards: Annotated[Rows[ShardEntry], Field(min_length=1, max_length=1024)]
    metrics: Annotated[dict[MetricName, float], at_most(16), AfterValidator(_bounded)] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _no_repetition(self) -> Self:
        if len({shard.sha256 for shard in self.shards}) < len(self.shards):
            raise ValueError("a shard is named twice")
        if any(item >= after for item, after in pairwise(self.items)):
            raise ValueError("a file is named twice, or they do not ascend")
        return self


@dataclass(frozen=True)
class Expected:
    """What a contribution to outer step `step`, from the state of digest `base` (hex), must look like. `partition`: of
    the attempt it is for, None where workers read their own data."""

    run: DilocoRun
    step: int
    base: str
    layout: TensorLayout
    partition: Partition | None = None

    @cached_property
    def max_bytes(self) -> tuple[int, ...]:
        """Most bytes of each shard."""
        return tuple(max_shard_bytes(pieces) for pieces in self.layout.shards(self.run.settings.shards))

    @property
    def document_bytes(self) -> int:
        """Upper bound of the signed contribution's length."""
        return 2048 + 112 * self.run.settings.shards + 67 * MAX_ITEMS

    def items(self, worker: str) -> tuple[str, ...]:
        """Return the files of a worker (hex, ascending)."""
        return () if self.partition is None else self.partition.of(worker)

    def binding(self, worker: str, shard: int) -> bytes:
        """Return the 32 bytes that bind a shard to its place: a worker's, in this outer step."""
        return hashlib.sha256(canonical_json([self.run.digest, self.step, self.base, worker, shard])).digest()

    def check(self, contribution: Contribution) -> None:
        """Raise MalformedContribution, which names what is wrong."""
        for fault in self._faults(contribution):
            raise MalformedContribution(fault)

    def _faults(self, contribution: Contribution) -> Iterator[str]:
        settings, assigned = self.run.settings, set(self.items(contribution.worker))
        if contribution.run != self.run.digest:
            yield f"it is for run {contribution.run[:16]}…, this is {self.run.digest[:16]}…"
        if contribution.step != self.step:
            yield f"it is for outer step {contribution.step}, this is {self.step}"
        if contribution.base != self.base:
            yield f"it started from {contribution.base[:16]}…, outer step {self.step} from another state"
        for item in sorted(assigned.symmetric_difference(contribution.items)):
            fault = "does not name" if item in assigned else "names"
            yield f"it {fault} file {item[:16]}…, against the partition"
        if contribution.mode != settings.mode:
            yield f"its mode is {contribution.mode}, the run's {settings.mode}"
        if contribution.inner_steps > settings.inner_steps:
            yield f"{contribution.inner_steps} inner steps, {settings.inner_steps} at most are allowed"
        if len(contribution.shards) != settings.shards:
            yield f"{len(contribution.shards)} shards, not {settings.shards}"
        for number, (entry, most) in enumerate(zip(contribution.shards, self.max_bytes, strict=True)):
            if entry.size > most:
                yield f"shard {number} has {entry.size} bytes, {most} at most are honest"


def open_contribution(data: bytes, expected: Expected) -> Contribution:
    """Decode and check a stranger's contribution. Raises MalformedContribution."""
    noun = "a contribution of this run"
    signed = open_canonical(data, Signed[Contribution], expected.document_bytes, noun, MalformedContribution)
    expected.check(signed.body)
    check_signer(_digest(signed.body, expected.run), signed.signature, signed.body.worker, MalformedContribution)
    return signed.body


# Messages of workers to the coordinator


class MalformedMessage(IntegrityError):
    """Bytes that are no message of that worker and number."""


MessageKind = Literal["join", "leave", "sign", "unusable"]


class WorkerMessage(SignedBody):
    """The `number`-th message of a worker. `join`: it holds the outer state of `digest` and asks to be a member.
    `leave`: it ends. `sign`: its contribution to attempt `attempt` at outer step `step` is the document of SHA-256
    `digest`. `unusable`: it cannot train on `items` (SHA-256 each; there may be more) of those assigned to it in that
    attempt."""

    version: Literal[2] = 2
    run: Hex64
    worker: Address
    number: Number
    kind: MessageKind
    step: Step
    attempt: AttemptNumber = 0
    digest: Hex64 | None = None
    items: Annotated[list[Hex64], Field(max_length=MAX_NAMED)] = Field(default_factory=list)

    @model_validator(mode="after")
    def _fields_fit_the_kind(self) -> Self:
        if (self.digest is None) != (self.kind in ("leave", "unusable")):
            raise ValueError("`digest` belongs to `join` and `sign`")
        if bool(self.items) != (self.kind == "unusable"):
            raise ValueError("`items` belong to `unusable`")
        return self


def open_message(data: bytes, run: DilocoRun, worker: str, number: int) -> WorkerMessage:
    """Decode the `number`-th message of `worker`. Raises MalformedMessage for anything else."""
    signed = open_canonical(data, Signed[WorkerMessage], MAX_MESSAGE_BYTES, "a message", MalformedMessage)
    contribution = signed.body
    if (contribution.run, contribution.worker, contribution.number) != (run.digest, worker, number):
        raise MalformedMessage(
            f"it is message {contribution.number} of {contribution.worker}, here belongs {number} of {worker}"
        )
    check_signer(_digest(contribution, run), signed.signature, worker, MalformedMessage)
    return contribution


# The coordinator's log

MAX_STRIKES, MAX_DISPUTED = 7, 3
FORGIVEN_AFTER = 8
_Members = Annotated[list[Address], Field(max_length=MAX_WORKERS)]


class MalformedEntry(IntegrityError):
    """Bytes that the coordinator did not write for this place of the log: anybody's who may write to the bucket."""


class Strikes(SignedBody):
    """The penalty of a worker that held up outer steps: its contribution was refused, it signed two, fell silent, left
    with a part of the work, or could not use its files. The m-th strike excludes it from the 2^(m−1) − 1 outer steps
    after the next commit, at most 63; eight steps that it contributes to forgive one. By its word on files alone, which
    may be right, it gets three at most. `until`: the outer step it may take part in again; `made`: steps contributed to
    since a strike came or went."""

    count: int = Field(0, ge=0, le=64)
    until: int = Field(0, ge=0, lt=2 * MAX_STEP)
    made: int = Field(0, ge=0, le=64)

    def held_up(self, step: int, disputed: bool) -> "Strikes":
        """Return the strikes after outer step `step`, which the worker held up."""
        count = max(self.count, min(self.count + 1, MAX_DISPUTED if disputed else MAX_STRIKES))
        return Strikes(count=count, until=step + (1 << (count - 1)))

    def contributed(self) -> "Strikes":
        """Return the strikes after an outer step that was made of its contribution too."""
        if self.made + 1 < FORGIVEN_AFTER:
            return self.model_copy(update={"made": self.made + 1})
        return Strikes(count=self.count - 1, until=self.until)


class CommitRecord(SignedBody):
    """Commits an outer step and begins the next one, with everything that a newcomer must know. Outer step `step`
    begins from the state of `digest` with `members`, or once `waiting` are enough. The state was made in attempt
    `attempt` at the step before, of all opened contributions (`made_of`), of which those of `counted` were admitted.
    `previous`: number of the commit record before. `state`: SHA-256 of the list of files in which the state is
    published, if it is. `messages`: for each worker, its first message that is not in the log. `strikes`: of those who
    held up earlier steps."""

    kind: Literal["commit"] = "commit"
    step: Step
    digest: Hex64
    attempt: AttemptNumber = 0
    members: _Members = Field(default_factory=list)
    waiting: _Members = Field(default_factory=list)
    made_of: Annotated[dict[Address, Hex64], at_most(MAX_WORKERS)] = Field(default_factory=dict)
    counted: _Members = Field(default_factory=list)
    previous: Number | None = None
    state: Hex64 | None = None
    messages: Annotated[dict[Address, Number], at_most(MAX_WORKERS)] = Field(default_factory=dict)
    strikes: Annotated[dict[Address, Strikes], at_most(MAX_WORKERS)] = Field(default_factory=dict)


class FilesAssigned(SignedBody):
    """The files (SHA-256) that outer step `step` trains on, which are split among its members."""

    kind: Literal["files"] = "files"
    step: Step
    items: Annotated[list[Hex64], Field(max_length=MAX_ITEMS)]


class MessageEvent(SignedBody):
    """Takes message `message` of `worker` into the log."""

    worker: Address
    message: Number


class Joined(MessageEvent):
    """The worker holds the state `digest` and asks to be a member."""

    kind: Literal["joined"] = "joined"
    digest: Hex64


class Left(MessageEvent):
    """The worker ends."""

    kind: Literal["left"] = "left"


class ContributionSigned(MessageEvent):
    """The worker signs the contribution `document`."""

    kind: Literal["signed"] = "signed"
    document: Hex64


class ContributionRefused(MessageEvent):
    """The worker signs `document`, which is no contribution to the attempt under way, and `why`. It is excluded from
    this outer step unless too few others are left."""

    kind: Literal["refused"] = "refused"
    document: Hex64
    why: str = Field(min_length=1, max_length=MAX_REASON)


class FilesUnusable(MessageEvent):
    """The worker cannot train on `items` of its partition. It is excluded from this outer step unless too few others
    are left; then all come back, and the named files are skipped."""

    kind: Literal["unusable"] = "unusable"
    items: Annotated[list[Hex64], Field(min_length=1, max_length=MAX_NAMED)]


class PayloadOpened(SignedBody):
    """The payload of `worker`'s contribution `document` is published whole, and decodes."""

    kind: Literal["opened"] = "opened"
    worker: Address
    document: Hex64


class PhaseFailed(SignedBody):
    """Phase `phase` of attempt `attempt` is over without all that it waited for: time is up, or too little of what was
    opened is admitted."""

    kind: Literal["failed"] = "failed"
    attempt: AttemptNumber
    phase: Literal["collect", "open", "settle"]


LogEvent = (
    CommitRecord | FilesAssigned | Joined | Left | ContributionSigned | ContributionRefused | FilesUnusable
    | PayloadOpened | PhaseFailed
)  # fmt: skip


class LogEntry(SignedBody):
    """Entry `number`, after the one whose stored bytes have the SHA-256 `previous`. Its `events` happened one after the
    other and are taken together or not at all; a commit record comes last. `epoch`: number of the entry whose commit
    record began the step under way. `time`: the coordinator's clock, for people."""

    version: Literal[3] = 3
    run: Hex64
    number: Number
    previous: Hex64
    epoch: Number
    time: UnixTime
    events: list[Annotated[LogEvent, Field(discriminator="kind")]] = Field(min_length=1, max_length=MAX_EVENTS)

    @model_validator(mode="after")
    def _ends_with_a_commit(self) -> Self:
        if any(isinstance(event, CommitRecord) for event in self.events[:-1]):
            raise ValueError("a commit record is the last event of its entry")
        return self

    @property
    def commit(self) -> CommitRecord | None:
        last = self.events[-1]
        return last if isinstance(last, CommitRecord) else None


def open_entry(data: bytes, run: DilocoRun, number: int, previous: str | None) -> LogEntry:
    """Decode entry `number`, which follows the entry of hash `previous` (None: not known). Raises MalformedEntry for
    what the coordinator did not write there; IntegrityError where it follows another entry."""
    signed = open_canonical(data, Signed[LogEntry], MAX_ENTRY_BYTES, "an entry of the log", MalformedEntry)
    entry = signed.body
    if (entry.run, entry.number) != (run.digest, number):
        raise MalformedEntry(f"it is entry {entry.number} of run {entry.run[:16]}…, here belongs {number}")
    check_signer(_digest(entry, run), signed.signature, run.coordinator, MalformedEntry)
    if previous not in (None, entry.previous):
        what = f"entry {number} of the log follows {entry.previous[:16]}…, not the entry before it"
        raise IntegrityError(what, "run one coordinator")
    return entry
