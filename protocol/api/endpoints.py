"""The orchestrator's HTTP interface at a glance: every path with what is sent and what is answered."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from pydantic import TypeAdapter

from protocol.api.base import RequestBody
from protocol.api.run import Health, PoolAccess, RunRecord, RunStatus
from protocol.api.uploads import ReceiptRequest, ReceiptResponse, UploadRequest, UploadResponse
from protocol.api.work import (
    HeartbeatRequest,
    HeartbeatResponse,
    SlotRequest,
    SlotResponse,
    StepRequest,
    StepResponse,
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
    """A signed request (docs/protocol.md, section 9). An answer has at most `limit` bytes."""

    path: str
    body: type[Q]
    answer: TypeAdapter[A]
    limit: int = 64 << 10


HEALTH: Get[Health] = Get("/health", TypeAdapter(Health))
POOL: Get[PoolAccess] = Get("/v1/pool", TypeAdapter(PoolAccess), limit=256 << 10)
STATUS: Get[RunStatus] = Get("/v1/status", TypeAdapter(RunStatus))
DASHBOARD: Get[RunRecord] = Get("/v1/dashboard", TypeAdapter(RunRecord))
RECORD: Get[RunRecord] = Get("/v1/record", TypeAdapter(RunRecord))
OBJECTS = "/v1/objects"
"""`GET /v1/objects/<key>` redirects to where the object can be read for some minutes."""

SLOTS: Post[SlotRequest, SlotResponse] = Post("/v1/slots", SlotRequest, TypeAdapter(SlotResponse))
UPLOADS: Post[UploadRequest, UploadResponse] = Post("/v1/uploads", UploadRequest, TypeAdapter(UploadResponse))
RECEIPTS: Post[ReceiptRequest, ReceiptResponse] = Post("/v1/receipts", ReceiptRequest, TypeAdapter(ReceiptResponse))
HEARTBEATS: Post[HeartbeatRequest, HeartbeatResponse] = Post(
    "/v1/heartbeats", HeartbeatRequest, TypeAdapter(HeartbeatResponse)
)
STEPS: Post[StepRequest, StepResponse] = Post("/v1/steps", StepRequest, TypeAdapter(StepResponse))
