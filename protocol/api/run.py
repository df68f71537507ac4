"""A run as the orchestrator shows it to everybody: status, dashboard, record. Times are Unix seconds."""

from enum import Enum
from typing import Annotated

from pydantic import ConfigDict, Field, Strict

from protocol.api.base import Amount, Hex64, Metrics, ResponseBody, Rows, at_most
from protocol.api.work import SetResult, StepRequest


class SlashEntry(ResponseBody):
    """A penalty of a node (`who` is its address) or of a seat (its number)."""

    kind: str
    who: str
    sequence: int
    reason: str
    amount: Amount
    block: int
    time: int
    tx: str = ""


class DisputeEntry(ResponseBody):
    sequence: int
    disputer: str
    time: int
    resolved: bool
    overturned: bool
    outcome: str
    reward: Amount


class CanaryEntry(ResponseBody):
    """An opened canary with the seats it accuses; `slashed`: seat → base units."""

    sequence: int
    reason: str
    accused: Rows[int]
    concluded: bool
    upheld: bool
    slashed: Annotated[dict[str, Amount], at_most(1000)]
    time: int


class ChallengeEntry(ResponseBody):
    """A challenge against `node` for what its files `sequences` say together. The outcome is open until its newest jury
    (`trial`, of `jurors` seats) has decided, then upheld, different (its membership ends without a slash), refuted,
    dismissed or lapsed. `votes`: opened ones by code; `reason`: what their majority said; `slashed`: of the stake,
    `back`: of the bond."""

    challenge: int
    node: str
    accuser: str
    sequences: Rows[int]
    trial: int
    jurors: int
    drawn: bool
    committed: int
    votes: Annotated[dict[str, int], at_most(100)]
    outcome: str
    reason: str
    bond: Amount
    back: Amount
    slashed: Amount
    time: int


class HeldEntry(ResponseBody):
    """How many nodes, validators and relays have this policy step as their newest."""

    step: int
    nodes: int
    validators: int
    relays: int


class NodeState(Enum):
    """WAITING: known from the chain, no heartbeat yet. HEALTHY. UNHEALTHY: one or two missed. DEAD: three or more.
    EJECTED, LEFT: by the chain, whatever it sends."""

    WAITING = "waiting"
    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    DEAD = "dead"
    LEFT = "left"
    EJECTED = "ejected"


State = Annotated[NodeState, Strict(False)]
States = Annotated[dict[str, State], at_most(100_000)]


class Health(ResponseBody):
    ok: bool
    version: str


class Readiness(ResponseBody):
    """Requests may be sent to this replica; `problems`: what is still wrong."""

    problems: Rows[str]


class PoolAccess(ResponseBody):
    """What somebody needs to take part in a pool who knows its service's URL alone. All of it can be checked:
    `deployment` is the deployment file's text, which the chain at `rpc` bears out, and the chain names the service."""

    pool: int
    rpc: Rows[str]
    config_hash: Hex64
    deployment: str
    lends: bool = Field(False, description="Whether the service lends newcomers their stake, and pays for joining.")


class WaitEntry(ResponseBody):
    who: str
    what: str
    since: float


class InFlightEntry(ResponseBody):
    """Files in flight: open leases, waiting for a verdict, accepted and not yet trained on. `needed`: what later
    training steps can use at most; `expected`: how many will be of use, by how recent files of the same nodes fared."""

    leased: int
    pending: int
    accepted: int
    needed: int
    expected: float

    @property
    def total(self) -> int:
        return self.leased + self.pending + self.accepted


class RunStatus(ResponseBody):
    """Where a run stands. `nodes` and `validators`: address → state; `held`: who has which step, newest first;
    `chain_error`: why the chain could not be followed at the last try; `step` is null before the first policy step."""

    pool: int
    phase: str
    step: int | None
    steps: int
    head: int
    time: float
    waits: Rows[WaitEntry]
    in_flight: InFlightEntry
    chain_error: str
    held: Rows[HeldEntry] = Field(default_factory=list)
    nodes: States
    validators: States


class RewardEntry(ResponseBody):
    """The mean task reward of the files a step was trained on, and what was measured of it: `heldout` is the average of
    the first set, `sets` has all."""

    step: int
    reward: float | None
    heldout: float | None
    sets: Rows[SetResult] = Field(default_factory=list)


class ReportEntry(StepRequest):
    """The trainer's report on a step, and when it came."""

    model_config = ConfigDict(extra="ignore")
    reported: float


class PublishedEntry(ResponseBody):
    """When and in which block a policy step was published, by which transaction; `manifest` names its weights."""

    step: int
    time: int
    block: int
    tx: str = ""
    manifest: str = ""


class ParticipantEntry(ResponseBody):
    """Somebody and its newest heartbeat; `last_seen` is null before the first. `at_step`: the policy step that it works
    for; `weights`: the newest one that it has; `trouble`: what it lacks, in its own words."""

    address: str
    state: State
    name: str = ""
    engine: str = ""
    version: str = ""
    phase: str = ""
    trouble: str = ""
    at_step: int | None = None
    weights: int | None = None
    last_seen: float | None = None
    metrics: Metrics = Field(default_factory=dict)


class NodeEntry(ParticipantEntry):
    """A node that joined the pool: its files by outcome, units and pay; `ejected` is the reason."""

    operator: str
    accepted: int
    rejected: int
    pending: int
    units: int
    earned: Amount
    claimed: Amount
    slashed: Amount
    ejected: str | None


class SeatEntry(ResponseBody):
    """A seat; its bond unlocks at `release_at`, 0 before it unbonds."""

    seat: int
    voter: str
    bond: Amount
    active: bool
    release_at: int = 0


class ValidatorEntry(ParticipantEntry):
    """An owner of seats, with the votes revealed, fees and penalties in this pool."""

    seats: Rows[SeatEntry]
    votes: int
    fees: Amount
    penalised: Amount


class OtherEntry(ParticipantEntry):
    """A process that is neither node nor validator: the trainer."""

    role: str


class SubmissionEntry(ResponseBody):
    """A submitted file. `trained`: the newest step that trained on it; more than one should not happen. `tx` submitted
    it; `sha256` is the file's."""

    sequence: int
    node: str
    step: int
    counter: int
    units: int
    rows: int
    block: int
    time: int
    decided: int | None
    status: str
    reason: str
    disputed: bool
    trained: int | None
    trained_twice: bool
    tx: str = ""
    sha256: str = ""


class LedgerEntry(ResponseBody):
    """One account of the pool's ledger. `payee` receives the money: a node's operator, a seat's owner. pending:
    submitted and undecided; locked: accepted, not vested; vested: can be claimed now; claimed, fees: paid out."""

    address: str
    role: str
    payee: str
    earned: Amount = 0
    pending: Amount = 0
    locked: Amount = 0
    vested: Amount = 0
    claimed: Amount = 0
    fees: Amount = 0
    slashed: Amount = 0


class EscrowEntry(ResponseBody):
    """Base units of one pool, by the events: deposits (funded + recovered from erring stakes) = free + reserved (files
    without a final outcome) + unpaid (accepted, not claimed) + owed_fees (of open committees) + claimed + fees + burnt
    + refunded. held: what the contract must hold for the pool."""

    funded: Amount
    recovered: Amount
    reserved: Amount
    unpaid: Amount
    owed_fees: Amount
    claimed: Amount
    fees: Amount
    burnt: Amount
    refunded: Amount
    free: Amount
    held: Amount


class Reconciliation(ResponseBody):
    """The ledger compared with the chain at `block`; `findings` name what differs. `ledger_matches_chain`: accounts,
    balances and transfers equal what the events say. `escrow_balanced`: the contract holds exactly what all pools need.
    `gifts`: base units sent to the contract without funding a pool, which nobody can take."""

    block: int
    ledger_matches_chain: bool
    escrow_balanced: bool
    findings: Rows[str]
    gifts: int = 0


class ReconciliationEntry(Reconciliation):
    """The newest comparison; `current`: nothing has changed since."""

    current: bool


class RunOutline(ResponseBody):
    """Where a run stands. Without a pool on chain `owner`, `step` and `escrow` are null."""

    name: str
    model: str
    task: str
    pool: int
    owner: str | None
    phase: str
    time: float
    started: float
    step: int | None
    usable_step: int | None
    steps: int
    in_flight: InFlightEntry
    escrow: EscrowEntry | None
    reconciliation: ReconciliationEntry | None
    waits: Rows[WaitEntry]


class RunRecord(RunOutline):
    """A run: `/v1/record` has all files and reports, `/v1/dashboard` the newest."""

    head: int
    chain_error: str
    rewards: Rows[RewardEntry]
    reports: Rows[ReportEntry]
    published: Rows[PublishedEntry]
    nodes: Rows[NodeEntry]
    validators: Rows[ValidatorEntry]
    others: Rows[OtherEntry]
    submissions: Rows[SubmissionEntry]
    counts: Annotated[dict[str, int], at_most(100)]
    slashes: Rows[SlashEntry]
    disputes: Rows[DisputeEntry]
    canaries: Rows[CanaryEntry]
    ledger: Rows[LedgerEntry]
    chain_id: int = 0
    challenges: Rows[ChallengeEntry] = Field(default_factory=list)
