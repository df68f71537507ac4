"""The orchestrator's HTTP interface at a glance: every path with what is sent and what is answered."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from pydantic import TypeAdapter

from protocol.announcements import Announcement, AnnouncementTaken, SourceList
from protocol.api.base import RequestBody
from protocol.api.run import (
    CanaryEntry,
    CaseEntry,
    DisputeEntry,
    Health,
    LedgerEntry,
    NodeEntry,
    PoolAccess,
    Readiness,
    RunRecord,
    RunStatus,
    SlashEntry,
    SubmissionEntry,
    ValidatorEntry,
)
from protocol.api.views import (
    Difficulties,
    History,
    Hits,
    Listing,
    Overview,
    PoolEntry,
    RolloutsView,
    StepEntry,
    StepView,
    SubmissionView,
    ValidatorView,
    VerdictsView,
)
from protocol.api.work import (
    HeartbeatRequest,
    HeartbeatResponse,
    LeaseRequest,
    LeaseResponse,
    ReceiptRequest,
    ReceiptResponse,
    StepRequest,
    StepResponse,
    UploadRequest,
    UploadResponse,
)

Q = TypeVar("Q", bound=RequestBody)
A = TypeVar("A")


@dataclass(frozen=True)
class Get(Generic[A]):
    """A public document: anybody may read it, no signature is needed. An answer has at most `limit` bytes."""

    path: str
    answer: TypeAdapter[A]
    limit: int = 32 << 20


@dataclass(frozen=True)
class Post(Generic[Q, A]):
    """A signed request (docs/reference/protocol.md, section 9). An answer has at most `limit` bytes."""

    path: str
    body: type[Q]
    answer: TypeAdapter[A]
    limit: int = 64 << 10


HEALTH: Get[Health] = Get("/health", TypeAdapter(Health))
READY: Get[Readiness] = Get("/ready", TypeAdapter(Readiness))
METRICS = "/metrics"
"""`GET /metrics` is Prometheus' text format, not JSON."""
POOL: Get[PoolAccess] = Get("/v1/pool", TypeAdapter(PoolAccess), limit=256 << 10)
STATUS: Get[RunStatus] = Get("/v1/status", TypeAdapter(RunStatus))
DASHBOARD: Get[RunRecord] = Get("/v1/dashboard", TypeAdapter(RunRecord))
RECORD: Get[RunRecord] = Get("/v1/record", TypeAdapter(RunRecord))

OVERVIEW: Get[Overview] = Get("/v1/overview", TypeAdapter(Overview))
HISTORY: Get[History] = Get("/v1/history", TypeAdapter(History))
DIFFICULTY: Get[Difficulties] = Get("/v1/difficulty", TypeAdapter(Difficulties))
STEP_LIST: Get[Listing[StepEntry]] = Get("/v1/policy-steps", TypeAdapter(Listing[StepEntry]))
STEP: Get[StepView] = Get("/v1/policy-steps/{step}", TypeAdapter(StepView))
NODES: Get[Listing[NodeEntry]] = Get("/v1/nodes", TypeAdapter(Listing[NodeEntry]))
NODE: Get[NodeEntry] = Get("/v1/nodes/{address}", TypeAdapter(NodeEntry))
SUBMISSIONS: Get[Listing[SubmissionEntry]] = Get("/v1/submissions", TypeAdapter(Listing[SubmissionEntry]))
SUBMISSION: Get[SubmissionView] = Get("/v1/submissions/{sequence}", TypeAdapter(SubmissionView))
VERDICTS: Get[VerdictsView] = Get("/v1/submissions/{sequence}/verdicts", TypeAdapter(VerdictsView))
ROLLOUTS: Get[RolloutsView] = Get("/v1/submissions/{sequence}/rollouts", TypeAdapter(RolloutsView))
VALIDATORS: Get[Listing[ValidatorEntry]] = Get("/v1/validators", TypeAdapter(Listing[ValidatorEntry]))
VALIDATOR: Get[ValidatorView] = Get("/v1/validators/{address}", TypeAdapter(ValidatorView))
DISPUTES: Get[Listing[DisputeEntry]] = Get("/v1/disputes", TypeAdapter(Listing[DisputeEntry]))
CANARIES: Get[Listing[CanaryEntry]] = Get("/v1/canaries", TypeAdapter(Listing[CanaryEntry]))
CASES: Get[Listing[CaseEntry]] = Get("/v1/cases", TypeAdapter(Listing[CaseEntry]))
SLASHES: Get[Listing[SlashEntry]] = Get("/v1/slashes", TypeAdapter(Listing[SlashEntry]))
LEDGER: Get[Listing[LedgerEntry]] = Get("/v1/ledger", TypeAdapter(Listing[LedgerEntry]))
POOLS: Get[Listing[PoolEntry]] = Get("/v1/pools", TypeAdapter(Listing[PoolEntry]))
SEARCH: Get[Hits] = Get("/v1/search", TypeAdapter(Hits))
OBJECTS = "/v1/objects"
"""`GET /v1/objects/<key>` redirects to where the object can be read for some minutes."""
SOURCES: Get[SourceList] = Get("/v1/sources", TypeAdapter(SourceList), limit=512 << 10)
ANNOUNCEMENT = "/v1/announcement"
"""Of a relay: the signed document that says whose it is (`protocol.announcements`)."""

ANNOUNCE: Post[Announcement, AnnouncementTaken] = Post("/v1/sources", Announcement, TypeAdapter(AnnouncementTaken))
LEASES: Post[LeaseRequest, LeaseResponse] = Post("/v1/leases", LeaseRequest, TypeAdapter(LeaseResponse))
UPLOADS: Post[UploadRequest, UploadResponse] = Post("/v1/uploads", UploadRequest, TypeAdapter(UploadResponse))
RECEIPTS: Post[ReceiptRequest, ReceiptResponse] = Post("/v1/receipts", ReceiptRequest, TypeAdapter(ReceiptResponse))
HEARTBEATS: Post[HeartbeatRequest, HeartbeatResponse] = Post(
    "/v1/heartbeats", HeartbeatRequest, TypeAdapter(HeartbeatResponse)
)
STEPS: Post[StepRequest, StepResponse] = Post("/v1/steps", StepRequest, TypeAdapter(StepResponse))
