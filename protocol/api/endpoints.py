"""The orchestrator's HTTP interface at a glance: every path with what is sent and what is answered."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from pydantic import TypeAdapter

from protocol.api import run, views, work
from protocol.api.base import RequestBody
from protocol.api.releases import Releases
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


def _get(path: str, answer: type[A], limit: int = 32 << 20) -> Get[A]:
    return Get(path, TypeAdapter(answer), limit)


def _post(path: str, body: type[Q], answer: type[A]) -> Post[Q, A]:
    return Post(path, body, TypeAdapter(answer))


HEALTH = _get("/health", run.Health)
READY = _get("/ready", run.Readiness)
METRICS = "/metrics"  # `GET /metrics` is Prometheus' text format, not JSON
POOL = _get("/v1/pool", run.PoolAccess, limit=256 << 10)
RELEASES = _get("/v1/releases", Releases, limit=64 << 10)
STATUS = _get("/v1/status", run.RunStatus)
DASHBOARD = _get("/v1/dashboard", run.RunRecord)
RECORD = _get("/v1/record", run.RunRecord)

OVERVIEW = _get("/v1/overview", views.Overview)
HISTORY = _get("/v1/history", views.History)
STEP_LIST = _get("/v1/policy-steps", views.Listing[views.StepEntry])
STEP = _get("/v1/policy-steps/{step}", views.StepView)
NODES = _get("/v1/nodes", views.Listing[run.NodeEntry])
NODE = _get("/v1/nodes/{address}", run.NodeEntry)
OPERATOR = _get("/v1/operators/{address}", views.OperatorView)
SUBMISSIONS = _get("/v1/submissions", views.Listing[run.SubmissionEntry])
SUBMISSION = _get("/v1/submissions/{sequence}", views.SubmissionView)
VERDICTS = _get("/v1/submissions/{sequence}/verdicts", views.VerdictsView)
ROLLOUTS = _get("/v1/submissions/{sequence}/rollouts", views.RolloutsView)
VALIDATORS = _get("/v1/validators", views.Listing[run.ValidatorEntry])
VALIDATOR = _get("/v1/validators/{address}", views.ValidatorView)
DISPUTES = _get("/v1/disputes", views.Listing[run.DisputeEntry])
CANARIES = _get("/v1/canaries", views.Listing[run.CanaryEntry])
CHALLENGES = _get("/v1/challenges", views.Listing[run.ChallengeEntry])
SLASHES = _get("/v1/slashes", views.Listing[run.SlashEntry])
LEDGER = _get("/v1/ledger", views.Listing[run.LedgerEntry])
POOLS = _get("/v1/pools", views.Listing[views.PoolEntry])
SEARCH = _get("/v1/search", views.Hits)
OBJECTS = "/v1/objects"  # `GET /v1/objects/<key>` redirects to where the object can be read for some minutes
SOURCES = _get("/v1/sources", SourceList, limit=512 << 10)
ANNOUNCEMENT = "/v1/announcement"  # Of a relay: the signed document that says whose it is (`Announcement`)

ANNOUNCE = _post("/v1/sources", Announcement, AnnouncementTaken)
LEASES: Post[work.LeaseRequest, work.LeaseResponse] = Post(
    "/v1/leases", work.LeaseRequest, TypeAdapter(work.LeaseResponse)
)
UPLOADS: Post[work.UploadRequest, work.UploadResponse] = Post(
    "/v1/uploads", work.UploadRequest, TypeAdapter(work.UploadResponse)
)
SUBMIT = _post("/v1/submissions", work.SubmissionRequest, work.SubmissionResponse)
JOINS = _post("/v1/joins", work.JoinRequest, work.MembershipResponse)
LEAVES = _post("/v1/leaves", work.LeaveRequest, work.MembershipResponse)
HEARTBEATS = _post("/v1/heartbeats", work.HeartbeatRequest, work.HeartbeatResponse)
STEPS = _post("/v1/steps", work.StepRequest, work.StepResponse)
