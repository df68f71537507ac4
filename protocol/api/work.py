"""How good a policy step is: what was measured on held-out problems, signed by the pool's owner."""

import hashlib
from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from protocol import signing
from protocol.accounts import LocalAccount
from protocol.api.base import (
    NO_NUL,
    Counter,
    Hex64,
    Metrics,
    Name,
    Reason,
    RequestBody,
    ResponseBody,
    Rows,
    Sequence,
    Signature,
    SignedBody,
    Size,
    StepNumber,
    Text,
    UnixTime,
    at_most,
)
from protocol.encoding import canonical_json
from protocol.errors import IntegrityError
from protocol.identity import PoolId
from protocol.receipts import UploadReceipt

DOMAIN = "muster-evaluations"
STRUCT = "Evaluation(uint256 pool,uint256 step,bytes32 digest)"
Share = Annotated[float, Field(ge=0, le=1)]


class SetResult(SignedBody):
    """One held-out set: `average` is the mean task reward over `samples` tries at each of `problems` (avg@k), `error`
    its standard error, `by_environment` its parts where there are several environments, `passed` the chance of a
    success among k tries by k (pass@k), `length` the mean output tokens. `seconds`: what it took."""

    name: Name
    problems: int = Field(ge=1)
    samples: int = Field(ge=1)
    average: float
    error: float = Field(ge=0)
    by_environment: Annotated[dict[str, float], at_most(64)] = Field(default_factory=dict)
    passed: Annotated[dict[str, Share], at_most(16)] = Field(default_factory=dict)
    length: float = Field(ge=0)
    seconds: float = Field(ge=0)


class Evaluation(SignedBody):
    """The results of policy step `step`, whose weights are those of `manifest`, on the sets of the pool's
    configuration. An evaluation that did not happen has no results, and `skipped` says why."""

    step: StepNumber
    manifest: Hex64
    config_hash: Hex64
    time: UnixTime
    results: Rows[SetResult] = Field(default_factory=list, max_length=16)
    skipped: Text = ""


class SignedEvaluation(SignedBody):
    """`signature` is the EIP-712 signature of STRUCT, digest being SHA-256 of the canonical evaluation."""

    evaluation: Evaluation
    signature: Signature

    def check(self, pool: PoolId, owner: str) -> None:
        """Raise IntegrityError unless `owner` signed this about that pool."""
        signer = signing.recover(_digest(pool, self.evaluation), bytes.fromhex(self.signature[2:]))
        if signer != owner:
            raise IntegrityError(f"the evaluation is signed by {signer}, not by {owner}", "sign as the pool's owner")


def sign_evaluation(account: LocalAccount, pool: PoolId, evaluation: Evaluation) -> SignedEvaluation:
    """The evaluation as the owner of a pool publishes it."""
    signature = signing.sign(account, _digest(pool, evaluation))
    return SignedEvaluation(evaluation=evaluation, signature="0x" + signature.hex())


def _digest(pool: PoolId, evaluation: Evaluation) -> bytes:
    digest = hashlib.sha256(canonical_json(evaluation.model_dump(mode="json"))).digest()
    return signing.digest(pool.domain(DOMAIN), STRUCT, pool.pool, evaluation.step, digest)


# ---- uploads and receipts

Key = Annotated[str, Field(max_length=100)]


class UploadRequest(RequestBody):
    """Ask to upload an object. A rollout file is named by its SHA-256, a verdict by its keccak256."""

    kind: Literal["rollouts", "verdicts"]
    sha256: Hex64
    size: Size
    keccak256: Hex64 | None = None

    @model_validator(mode="after")
    def _named(self) -> "UploadRequest":
        if self.kind == "verdicts" and self.keccak256 is None:
            raise ValueError("a verdict's name is its keccak256: send the field `keccak256`")
        return self

    @property
    def digest(self) -> bytes:
        """The 32 bytes that name the object."""
        named = self.keccak256 if self.kind == "verdicts" and self.keccak256 else self.sha256
        return bytes.fromhex(named)


class UploadTicket(ResponseBody):
    """Leave to PUT one object: the URL and the headers that must be sent exactly. `expires` in Unix seconds."""

    url: str = Field(max_length=8192)
    headers: Annotated[dict[str, str], at_most(16)]
    expires: int


class UploadNeeded(UploadTicket):
    """Send the object `key` with this ticket."""

    key: Key
    exists: Literal[False] = False
    method: Literal["PUT"] = "PUT"


class UploadExists(ResponseBody):
    """The bytes are in the bucket already; nothing has to be sent. `receipt` for a rollout file."""

    key: Key
    exists: Literal[True] = True
    receipt: UploadReceipt | None = None


UploadResponse = Annotated[UploadNeeded | UploadExists, Field(discriminator="exists")]


class ReceiptRequest(RequestBody):
    """Ask for the receipt of a rollout file that was uploaded."""

    sha256: Hex64
    size: Size


class ReceiptResponse(ResponseBody):
    receipt: UploadReceipt


# ---- leases, heartbeats and step reports

MAX_WAITS = 16
HEARTBEAT_SECONDS = 60.0
"""Time between two heartbeats, unless the service asks for another in HeartbeatResponse.next."""
LeaseId = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]


class LeaseRequest(RequestBody):
    """Ask to make the node's file `counter`; without one, the next that the chain expects of it. `ready`: the newest
    policy step whose weights the node has here, checked; without it, the newest usable step is meant."""

    counter: Counter | None = None
    ready: StepNumber | None = None


class WorkLease(ResponseBody):
    """Leave to make one file: the node's `counter`-th, from policy step `step`; it lapses at `expires` (Unix seconds)
    unless heartbeats name `lease`."""

    lease: LeaseId
    step: StepNumber
    counter: Counter
    expires: UnixTime


class NoLease(ResponseBody):
    """No lease now: ask again after `wait` seconds."""

    wait: float = Field(ge=0.1, le=60)
    reason: Reason = ""


LeaseResponse = WorkLease | NoLease


class WaitLine(RequestBody):
    """What somebody waits for, since when (Unix seconds)."""

    what: Text
    since: float


class HeartbeatRequest(RequestBody):
    """A sign of life. Naming a `lease` renews it, up to a limit. `weights`: the newest policy step whose weights the
    process has, checked."""

    role: Literal["worker", "validator", "trainer"]
    name: Name = ""
    version: Annotated[str, Field(max_length=32, pattern=NO_NUL)] = ""
    engine: Name = ""
    phase: Name = ""
    step: StepNumber | None = None
    weights: StepNumber | None = None
    lease: LeaseId | None = None
    waits: Rows[WaitLine] = Field(default_factory=list, max_length=MAX_WAITS)
    metrics: Metrics = Field(default_factory=dict)


class HeartbeatResponse(ResponseBody):
    """The next heartbeat is due in `next` seconds; `step` is the newest usable policy step; `lease_expires` (Unix
    seconds) is null unless the node has the lease that it named; `version` is the service's."""

    state: Literal["healthy"] = "healthy"
    next: float
    step: StepNumber | None
    lease_expires: UnixTime | None
    version: str = ""


class StepRequest(RequestBody):
    """The trainer's report on the making of policy step `step`; timings in seconds."""

    MAX_BYTES: ClassVar[int] = 1 << 20
    step: StepNumber
    consumed: Rows[Sequence] = Field(default_factory=list, max_length=16384)
    metrics: Metrics = Field(default_factory=dict)
    timings: Metrics = Field(default_factory=dict)
    evaluation: SignedEvaluation | None = None

    @field_validator("consumed")
    @classmethod
    def _once(cls, value: list[int]) -> list[int]:
        if len(set(value)) != len(value):
            raise ValueError("a sequence is named twice")
        return value


class StepResponse(ResponseBody):
    """The report of `step` is kept."""

    step: StepNumber
