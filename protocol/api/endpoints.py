"""The orchestrator's HTTP interface at a glance: every path with what is sent and what is answered."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from pydantic import TypeAdapter

from protocol.api import run, views, work
from protocol.api.base import RequestBody
from protocol.api.work import Announcement, AnnouncementTaken, SourceList

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


HEALTH: Get[run.Health] = Get("/health", TypeAdapter(run.Health))
READY: Get[run.Readiness] = Get("/ready", TypeAdapter(run.Readiness))
METRICS = "/metrics"  # `GET /metrics` is Prometheus' text format, not JSON
POOL: Get[run.PoolAccess] = Get("/v1/pool", TypeAdapter(run.PoolAccess), limit=256 << 10)
STATUS: Get[run.RunStatus] = Get("/v1/status", TypeAdapter(run.RunStatus))
DASHBOARD: Get[run.RunRecord] = Get("/v1/dashboard", TypeAdapter(run.RunRecord))
RECORD: Get[run.RunRecord] = Get("/v1/record", TypeAdapter(run.RunRecord))

OVERVIEW: Get[views.Overview] = Get("/v1/overview", TypeAdapter(views.Overview))
HISTORY: Get[views.History] = Get("/v1/history", TypeAdapter(views.History))
STEP_LIST: Get[views.Listing[views.StepEntry]] = Get("/v1/policy-steps", TypeAdapter(views.Listing[views.StepEntry]))
STEP: Get[views.StepView] = Get("/v1/policy-steps/{step}", TypeAdapter(views.StepView))
NODES: Get[views.Listing[run.NodeEntry]] = Get("/v1/nodes", TypeAdapter(views.Listing[run.NodeEntry]))
NODE: Get[run.NodeEntry] = Get("/v1/nodes/{address}", TypeAdapter(run.NodeEntry))
SUBMISSIONS: Get[views.Listing[run.SubmissionEntry]] = Get(
    "/v1/submissions", TypeAdapter(views.Listing[run.SubmissionEntry])
)
SUBMISSION: Get[views.SubmissionView] = Get("/v1/submissions/{sequence}", TypeAdapter(views.SubmissionView))
VERDICTS: Get[views.VerdictsView] = Get("/v1/submissions/{sequence}/verdicts", TypeAdapter(views.VerdictsView))
ROLLOUTS: Get[views.RolloutsView] = Get("/v1/submissions/{sequence}/rollouts", TypeAdapter(views.RolloutsView))
VALIDATORS: Get[views.Listing[run.ValidatorEntry]] = Get(
    "/v1/validators", TypeAdapter(views.Listing[run.ValidatorEntry])
)
VALIDATOR: Get[views.ValidatorView] = Get("/v1/validators/{address}", TypeAdapter(views.ValidatorView))
DISPUTES: Get[views.Listing[run.DisputeEntry]] = Get("/v1/disputes", TypeAdapter(views.Listing[run.DisputeEntry]))
CANARIES: Get[views.Listing[run.CanaryEntry]] = Get("/v1/canaries", TypeAdapter(views.Listing[run.CanaryEntry]))
CHALLENGES: Get[views.Listing[run.ChallengeEntry]] = Get(
    "/v1/challenges", TypeAdapter(views.Listing[run.ChallengeEntry])
)
SLASHES: Get[views.Listing[run.SlashEntry]] = Get("/v1/slashes", TypeAdapter(views.Listing[run.SlashEntry]))
LEDGER: Get[views.Listing[run.LedgerEntry]] = Get("/v1/ledger", TypeAdapter(views.Listing[run.LedgerEntry]))
POOLS: Get[views.Listing[views.PoolEntry]] = Get("/v1/pools", TypeAdapter(views.Listing[views.PoolEntry]))
SEARCH: Get[views.Hits] = Get("/v1/search", TypeAdapter(views.Hits))
OBJECTS = "/v1/objects"  # `GET /v1/objects/<key>` redirects to where the object can be read for some minutes
SOURCES: Get[SourceList] = Get("/v1/sources", TypeAdapter(SourceList), limit=512 << 10)
ANNOUNCEMENT = "/v1/announcement"  # Of a relay: the signed document that says whose it is (`Announcement`)

ANNOUNCE: Post[Announcement, AnnouncementTaken] = Post("/v1/sources", Announcement, TypeAdapter(AnnouncementTaken))
LEASES: Post[work.LeaseRequest, work.LeaseResponse] = Post(
    "/v1/leases", work.LeaseRequest, TypeAdapter(work.LeaseResponse)
)
UPLOADS: Post[work.UploadRequest, work.UploadResponse] = Post(
    "/v1/uploads", work.UploadRequest, TypeAdapter(work.UploadResponse)
)
RECEIPTS: Post[work.ReceiptRequest, work.ReceiptResponse] = Post(
    "/v1/receipts", work.ReceiptRequest, TypeAdapter(work.ReceiptResponse)
)
HEARTBEATS: Post[work.HeartbeatRequest, work.HeartbeatResponse] = Post(
    "/v1/heartbeats", work.HeartbeatRequest, TypeAdapter(work.HeartbeatResponse)
)
STEPS: Post[work.StepRequest, work.StepResponse] = Post("/v1/steps", work.StepRequest, TypeAdapter(work.StepResponse))
