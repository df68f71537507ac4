"""What nodes, trainers and sources of weights send to a pool's service, and its answers.

What is signed by EIP-712 here is worth something to others: evaluations, upload receipts, submissions, joining and
leaving, and announcements.
"""

import hashlib
from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from protocol import signing
from protocol.accounts import LocalAccount
from protocol.api.base import (
    NO_NUL,
    Address,
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
from protocol.errors import ConfigError, IntegrityError
from protocol.http.signing import service_url
from protocol.identity import PoolId
from protocol.signing import check_signer

# Evaluations: how good a policy step is on held-out problems, signed by the pool's owner

EVALUATION_DOMAIN = "muster-evaluations"
EVALUATION_STRUCT = "Evaluation(uint256 pool,uint256 step,bytes32 digest)"
Share = Annotated[float, Field(ge=0, le=1)]


class SetResult(SignedBody):
    """One held-out set: `average` is the mean task reward over `samples` tries at each of `problems` (avg@k), `error`
    its standard error, `by_environment` its parts, `passed` the chance of a success among k tries by k (pass@k),
    `length` the mean output tokens."""

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
    """The results of policy step `step`, with the weights of `manifest`, on the sets of the pool's configuration. An
    evaluation that did not happen has no results, and `skipped` says why."""

    step: StepNumber
    manifest: Hex64
    config_hash: Hex64
    time: UnixTime
    results: Rows[SetResult] = Field(default_factory=list, max_length=16)
    skipped: Text = ""


class SignedEvaluation(SignedBody):
    """`signature` is the EIP-712 signature of EVALUATION_STRUCT, digest being SHA-256 of the canonical evaluation."""

    evaluation: Evaluation
    signature: Signature

    def check(self, pool: PoolId, owner: str) -> None:
        """Raise IntegrityError unless `owner` signed this about that pool."""
        check_signer(_digest(pool, self.evaluation), self.signature, owner, IntegrityError, "the evaluation")


def sign_evaluation(account: LocalAccount, pool: PoolId, evaluation: Evaluation) -> SignedEvaluation:
    """Sign an evaluation as the pool's owner publishes it."""
    signature = signing.sign(account, _digest(pool, evaluation))
    return SignedEvaluation(evaluation=evaluation, signature="0x" + signature.hex())


def _digest(pool: PoolId, evaluation: Evaluation) -> bytes:
    digest = hashlib.sha256(canonical_json(evaluation.model_dump(mode="json"))).digest()
    return signing.digest(pool.domain(EVALUATION_DOMAIN), EVALUATION_STRUCT, pool.pool, evaluation.step, digest)


# Upload receipts: a service's signed statement that a rollout file was in its bucket. Court takes it for its word.

RECEIPT_DOMAIN = "muster-receipts"
RECEIPT_STRUCT = "UploadReceipt(uint256 pool,address node,bytes32 sha256,uint256 size,uint256 time)"


class UploadReceipt(ResponseBody):
    """The file of `size` bytes that `node` made for `pool` was in the bucket at `time` (Unix seconds). `signature` is
    the EIP-712 signature of RECEIPT_STRUCT by `signer`, the service's key on chain."""

    pool: int = Field(ge=0, lt=1 << 256)
    node: Address
    sha256: Hex64
    size: Size
    time: int = Field(ge=0, lt=1 << 40)
    signer: Address
    signature: Signature

    @property
    def on_chain(self) -> tuple[int, int, bytes]:
        """`Receipt` of contracts/src/libraries/Types.sol."""
        return self.size, self.time, bytes.fromhex(self.signature[2:])

    def check(self, pool: PoolId, node: str, sha256: str, size: int) -> None:
        """Raise IntegrityError unless `signer` signed exactly this, for that file of that node in that pool."""
        if (self.pool, self.node, self.sha256, self.size) != (pool.pool, node, sha256, size):
            raise IntegrityError("the upload receipt is for something else", "tell the service's owner")
        digest = receipt_digest(pool, node, sha256, size, self.time)
        check_signer(digest, self.signature, self.signer, IntegrityError, "the upload receipt")


class ReceiptSigner:
    """A service's key and the pool that it serves."""

    def __init__(self, account: LocalAccount, pool: PoolId) -> None:
        self._account, self.pool = account, pool

    def sign(self, node: str, sha256: str, size: int, time: int) -> UploadReceipt:
        """Sign the receipt for a file; `sha256` in hex. The same values give the same signature."""
        signature = signing.sign(self._account, receipt_digest(self.pool, node, sha256, size, time))
        return UploadReceipt(
            pool=self.pool.pool,
            node=node,
            sha256=sha256,
            size=size,
            time=time,
            signer=self._account.address,
            signature="0x" + signature.hex(),
        )


def receipt_digest(pool: PoolId, node: str, sha256: str, size: int, time: int) -> bytes:
    """Return the 32 bytes that a receipt's signature covers."""
    return signing.digest(
        pool.domain(RECEIPT_DOMAIN), RECEIPT_STRUCT, pool.pool, node, bytes.fromhex(sha256), size, time
    )


# Uploads

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
    """The bytes are in the bucket already; nothing has to be sent."""

    key: Key
    exists: Literal[True] = True


UploadResponse = Annotated[UploadNeeded | UploadExists, Field(discriminator="exists")]


# Submissions: a node signs what it says of its file, and the service relays up to sixteen in one transaction

POOLS_DOMAIN = "muster-pools"
SUBMISSION_STRUCT = (
    "Submission(uint256 pool,address node,uint256 step,uint256 counter,uint256 units,uint256 rows,bytes32 root,"
    "bytes32 file)"
)


class SubmissionRequest(RequestBody):
    """Ask to have an uploaded rollout file of `size` bytes relayed to the chain, or what became of it. `signature` is
    the node's EIP-712 signature of SUBMISSION_STRUCT. It does not cover `seed`, the step's that the file was made from:
    should a reorganisation change that, the file would be refused, so it is not relayed."""

    step: StepNumber
    counter: Counter
    units: int = Field(ge=0, lt=1 << 32)
    rows: int = Field(ge=0, lt=1 << 16)
    root: Hex64
    sha256: Hex64
    size: Size
    seed: Hex64 | None = None
    signature: Signature

    def on_chain(self, node: str) -> tuple[str, int, int, int, int, bytes, bytes]:
        """`FileData` of contracts/src/libraries/Types.sol."""
        root, sha256 = bytes.fromhex(self.root), bytes.fromhex(self.sha256)
        return node, self.step, self.counter, self.units, self.rows, root, sha256

    def digest(self, pool: PoolId, node: str) -> signing.Digest:
        """Return the 32 bytes that the node's signature covers."""
        return signing.digest(pool.domain(POOLS_DOMAIN), SUBMISSION_STRUCT, pool.pool, *self.on_chain(node))

    def check(self, pool: PoolId, node: str) -> None:
        """Raise IntegrityError unless `node` signed this for that pool."""
        what = f"submission {self.counter} for pool {pool.pool}"
        check_signer(self.digest(pool, node), self.signature, node, IntegrityError, what)

    def signed(self, account: LocalAccount, pool: PoolId) -> "SubmissionRequest":
        """Return the same with the account's signature."""
        signature = signing.sign(account, self.digest(pool, str(account.address)))
        return self.model_copy(update={"signature": "0x" + signature.hex()})


UNSIGNED = "0x" + "00" * 65
MOST_HANDED_IN = 4  # files of a node that may wait long to be relayed while it makes another one


class SubmissionResponse(ResponseBody):
    """What became of a submission: `waiting` to be relayed; `landed` as number `sequence`, in lane `sequence` // 16; or
    `refused` by the contract for a `reason`, and tried again from time to time. With the `receipt` the node can submit
    the file itself."""

    state: Literal["waiting", "landed", "refused"]
    receipt: UploadReceipt
    sequence: Sequence | None = None
    reason: Reason = ""


# Membership without ether: a node signs that it joins or leaves, and the service sends it

JOIN_STRUCT = "Join(uint256 pool,address node,uint256 nonce,uint256 expiry)"
LEAVE_STRUCT = "Leave(uint256 pool,address node,uint256 nonce,uint256 expiry)"


class JoinRequest(RequestBody):
    """Ask the service to lend the sender its stake, register it under `operator`, who gets its pay, and let it join the
    pool. `sponsorship` and `join` are the node's EIP-712 signatures of the contracts' structs, usable until `expiry`
    (chain time)."""

    operator: Address
    expiry: int = Field(ge=0, lt=1 << 40)
    sponsorship: Signature
    join: Signature


class LeaveRequest(RequestBody):
    """Ask the service to let the sender leave the pool: `leave` is the node's EIP-712 signature of LEAVE_STRUCT."""

    expiry: int = Field(ge=0, lt=1 << 40)
    leave: Signature


class MembershipResponse(ResponseBody):
    """Whether the sender is a `member` now. Until that is what it asked for, it may ask again; `reason` says why the
    service cannot do it now."""

    member: bool
    reason: Reason = ""


# leases, heartbeats and step reports

MAX_WAITS = 16
MOST_LEASES = 32  # of a node at a time
HEARTBEAT_SECONDS = 60.0  # Time between two heartbeats, unless the service asks for another in HeartbeatResponse.next
LeaseId = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]


class LeaseRequest(RequestBody):
    """Ask to make the node's file `counter` (None: the next that the chain expects) from policy step `ready`, the
    newest whose weights the node has checked (None: the newest usable one). `version`: the node's, of muster."""

    counter: Counter | None = None
    ready: StepNumber | None = None
    version: Annotated[str, Field(max_length=32, pattern=NO_NUL)] = ""


class WorkLease(ResponseBody):
    """Leave to make the node's `counter`-th file, from policy step `step`; it lapses at `expires` (Unix seconds) unless
    heartbeats name `lease`, and `longest` seconds after it was granted whatever they say."""

    lease: LeaseId
    step: StepNumber
    counter: Counter
    expires: UnixTime
    longest: float = Field(gt=0)


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
    """A sign of life, which renews `leases` up to a limit. `weights`: the newest policy step whose weights are here;
    `instance`: a name that the process gave itself when it started, by which two with one key are told apart."""

    role: Literal["worker", "validator", "trainer"]
    name: Name = ""
    version: Annotated[str, Field(max_length=32, pattern=NO_NUL)] = ""
    instance: Name = ""
    engine: Name = ""
    phase: Name = ""
    step: StepNumber | None = None
    weights: StepNumber | None = None
    leases: Rows[LeaseId] = Field(default_factory=list, max_length=MOST_LEASES)
    waits: Rows[WaitLine] = Field(default_factory=list, max_length=MAX_WAITS)
    metrics: Metrics = Field(default_factory=dict)


class HeartbeatResponse(ResponseBody):
    """The next heartbeat is due in `next` seconds; `step` is the newest usable policy step; `lease_expires` is when the
    first of the leases ends that it named and has, null without one; `version` is the service's; `notice`: that another
    process works with the sender's key, or whether and when the sender's version gets no new work any more."""

    state: Literal["healthy"] = "healthy"
    next: float
    step: StepNumber | None
    lease_expires: UnixTime | None
    version: str = ""
    notice: Reason = ""


class StepRequest(RequestBody):
    """The trainer's report on the making of policy step `step`; timings in seconds. `final`: none will follow."""

    MAX_BYTES: ClassVar[int] = 1 << 20
    step: StepNumber
    consumed: Rows[Sequence] = Field(default_factory=list, max_length=16384)
    metrics: Metrics = Field(default_factory=dict)
    timings: Metrics = Field(default_factory=dict)
    evaluation: SignedEvaluation | None = None
    final: bool = False

    @field_validator("consumed")
    @classmethod
    def _once(cls, value: list[int]) -> list[int]:
        if len(set(value)) != len(value):
            raise ValueError("a sequence is named twice")
        return value


class StepResponse(ResponseBody):
    step: StepNumber


# Announcements: a relay or peer serves a pool's weights at a URL. Readers treat what is there as hostile.

ANNOUNCEMENT_DOMAIN = "muster-announcements"
ANNOUNCEMENT_STRUCT = "Announcement(uint256 pool,string url,uint256 until)"
MAX_SECONDS = 3600  # How far ahead an announcement may reach
SKEW_SECONDS = 60
MAX_LISTED = 256


class Announcement(RequestBody):
    """`address` serves the pool's weights at `<url>/v1/objects/<key>` until `until` (Unix seconds); `signature` is its
    EIP-712 signature of ANNOUNCEMENT_STRUCT. `step`, which nobody signs, is the newest policy step that it holds."""

    MAX_BYTES: ClassVar[int] = 4096

    address: Address
    url: Annotated[str, Field(max_length=200, pattern=r"^https?://[!-~]+$")]
    until: int = Field(ge=0, lt=1 << 40)
    signature: Signature
    step: StepNumber | None = None

    @field_validator("url")
    @classmethod
    def _plain(cls, value: str) -> str:
        try:
            spelt = service_url(value)
        except ConfigError as error:
            raise ValueError(str(error)) from None
        if spelt != value:
            raise ValueError(f"must be spelt {spelt}")
        return value

    def check(self, pool: PoolId, now: float) -> None:
        """Raise IntegrityError unless `address` signed this for that pool, and it holds at `now` (Unix seconds)."""
        if not now < self.until <= now + MAX_SECONDS + SKEW_SECONDS:
            what = f"the announcement of {self.url} ends at {self.until}, and it is {int(now)}"
            raise IntegrityError(what, f"announce for at most {MAX_SECONDS} s, and set the clock (NTP)")
        digest = announcement_digest(pool, self.url, self.until)
        check_signer(digest, self.signature, self.address, IntegrityError, f"the announcement of {self.url}")


class AnnouncementTaken(ResponseBody):
    """It is listed; announce again within `next` seconds."""

    next: float = Field(ge=1, le=MAX_SECONDS)


class SourceList(ResponseBody):
    sources: Annotated[Rows[Announcement], Field(max_length=MAX_LISTED)]


def announcement_digest(pool: PoolId, url: str, until: int) -> bytes:
    """Return the 32 bytes that an announcement's signature covers."""
    return signing.digest(pool.domain(ANNOUNCEMENT_DOMAIN), ANNOUNCEMENT_STRUCT, pool.pool, url, until)


def announce(account: LocalAccount, pool: PoolId, url: str, until: int, step: int | None = None) -> Announcement:
    """Sign one; `url` in the spelling of `service_url`."""
    signature = signing.sign(account, announcement_digest(pool, url, until))
    return Announcement(address=account.address, url=url, until=until, signature="0x" + signature.hex(), step=step)
