"""The orchestrator's routes (docs/orchestrator.md): who may call each, what it takes and answers."""

import threading
import time
from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from fastapi.openapi.models import APIKey, APIKeyIn
from fastapi.responses import HTMLResponse, RedirectResponse
from fastapi.security.base import SecurityBase
from starlette.concurrency import run_in_threadpool

from orchestrator.bodies import StrictRoute
from orchestrator.docs_page import docs_page
from orchestrator.guard import RequestGuard
from orchestrator.http_errors import HttpError, documented
from orchestrator.limits import Buckets
from orchestrator.page import live_page
from orchestrator.service import Service
from orchestrator.status import dashboard, record, status
from protocol.api.base import ResponseBody
from protocol.api.endpoints import (
    DASHBOARD,
    HEALTH,
    HEARTBEATS,
    OBJECTS,
    RECEIPTS,
    RECORD,
    SLOTS,
    STATUS,
    STEPS,
    UPLOADS,
)
from protocol.api.run import Health, RunRecord, RunStatus
from protocol.api.uploads import ReceiptRequest, ReceiptResponse, UploadRequest, UploadResponse
from protocol.api.work import (
    HeartbeatRequest,
    HeartbeatResponse,
    SlotRequest,
    SlotResponse,
    StepRequest,
    StepResponse,
)

VERSION = "0.1.0"
SIGNED = (400, 401, 403, 408, 409, 413, 422)
LOCATION = {"Location": {"schema": {"type": "string", "format": "uri"}}}
PAGE = {200: {"description": "HTML.", "content": {"text/html": {"schema": {"type": "string"}}}}, **documented()}
router = APIRouter(route_class=StrictRoute)


class RequestSignature(SecurityBase):
    """The dependency that gives a signed request's sender, its checksum address. Raises RequestRefused, or HttpError
    429 for a sender that asks too often."""

    def __init__(self) -> None:
        self.scheme_name = "RequestSignature"
        self.model = APIKey(
            **{"in": APIKeyIn.header},
            name="X-Muster-Signature",
            description="EIP-712 signature of method, path, body, audience, time and nonce, together with the headers "
            "X-Muster-Address, X-Muster-Time and X-Muster-Nonce (docs/protocol.md, section 9).",
        )

    async def __call__(self, request: Request) -> str:
        body = await request.body()
        return await run_in_threadpool(_verified, request, body)


def _verified(request: Request, body: bytes) -> str:
    guard: RequestGuard = request.app.state.guard
    signers: Buckets = request.app.state.signers
    raw = request.scope.get("raw_path") or request.scope["path"].encode()
    query = request.scope.get("query_string", b"")
    path = (raw + (b"?" + query if query else b"")).decode("latin-1")
    address = guard.verify(request.method, path, request.headers.items(), body)
    if not signers.take(address, time.monotonic()):
        raise HttpError(429, f"{address} asks too often", "slow down", 1)
    return address


def _service(request: Request) -> Service:
    return request.app.state.service  # type: ignore[no-any-return]


class Views:
    """The newest answer of each public view, as JSON; computed at most every `seconds`, however many look."""

    def __init__(self, service: Service, seconds: float) -> None:
        self._service, self._seconds = service, seconds
        self._lock = threading.Lock()
        self._answers: dict[str, tuple[float, str]] = {}

    def answer(self, view: Callable[[Service], ResponseBody]) -> Response:
        with self._lock:
            made, content = self._answers.get(view.__name__, (-self._seconds, ""))
            now = time.monotonic()
            if not content or now - made >= self._seconds:
                content = view(self._service).model_dump_json()
                self._answers[view.__name__] = (now, content)
        return Response(content, media_type="application/json")


def _views(request: Request) -> Views:
    return request.app.state.views  # type: ignore[no-any-return]


Sender = Annotated[str, Depends(RequestSignature())]
Orchestrator = Annotated[Service, Depends(_service)]
PublicViews = Annotated[Views, Depends(_views)]


@router.post(SLOTS.path, tags=["work"], summary="Ask for a work slot", responses=documented(*SIGNED))
def ask_for_slot(body: SlotRequest, sender: Sender, service: Orchestrator) -> SlotResponse:
    """Signed by a node key joined to the pool. Asking again for the same counter gives the same lease or, when a newer
    policy step is usable, a new lease for it."""
    return service.slot(sender, body)


@router.post(UPLOADS.path, tags=["work"], summary="Ask for an upload ticket", responses=documented(*SIGNED, 503))
def ask_for_upload(body: UploadRequest, sender: Sender, service: Orchestrator) -> UploadResponse:
    """Rollouts by a joined node, verdicts by a voter of an active seat."""
    return service.uploads.ticket(sender, body)


@router.post(RECEIPTS.path, tags=["work"], summary="Ask for a receipt", responses=documented(*SIGNED, 404, 503))
def ask_for_receipt(body: ReceiptRequest, sender: Sender, service: Orchestrator) -> ReceiptResponse:
    """After the upload of a rollout file. Keep it: it proves that the file was available."""
    return service.uploads.receipt(sender, body)


@router.post(HEARTBEATS.path, tags=["work"], summary="Tell that a process lives", responses=documented(*SIGNED))
def take_heartbeat(body: HeartbeatRequest, sender: Sender, service: Orchestrator) -> HeartbeatResponse:
    """Signed by a joined node, a bonded validator or the pool's owner."""
    return service.heartbeat(sender, body)


@router.post(STEPS.path, tags=["work"], summary="Report a policy step", responses=documented(*SIGNED))
def take_step_report(body: StepRequest, sender: Sender, service: Orchestrator) -> StepResponse:
    """Signed by the pool's owner. The same step again replaces the former report."""
    return service.step(sender, body)


@router.get(HEALTH.path, tags=["run"], summary="Whether the service runs", responses=documented())
async def health() -> Health:
    return Health(ok=True, version=VERSION)


@router.get(STATUS.path, tags=["run"], summary="Where the run stands", responses=documented(), response_model=RunStatus)
def get_status(views: PublicViews) -> Response:
    return views.answer(status)


@router.get(
    DASHBOARD.path, tags=["run"], summary="The run, newest files only", responses=documented(), response_model=RunRecord
)
def get_dashboard(views: PublicViews) -> Response:
    return views.answer(dashboard)


@router.get(RECORD.path, tags=["run"], summary="The whole run so far", responses=documented(), response_model=RunRecord)
def get_record(views: PublicViews) -> Response:
    return views.answer(record)


@router.get(
    OBJECTS + "/{key:path}",
    tags=["objects"],
    summary="Find an object",
    status_code=307,
    response_class=Response,
    responses={307: {"description": "Where to GET it, in `Location`.", "headers": LOCATION}, **documented(400, 503)},
)
def get_object(key: str, request: Request, service: Orchestrator) -> RedirectResponse:
    """Redirects to a pre-signed GET of the pool's bucket; `key` is a content address."""
    # Not the path parameter: its pattern lets a trailing line feed pass unseen.
    return RedirectResponse(service.location(str(request.scope["path"]).removeprefix(f"{OBJECTS}/")), 307)


@router.get("/", tags=["pages"], summary="The dashboard, for people", response_class=Response, responses=PAGE)
def get_page() -> HTMLResponse:
    content, policy = live_page()
    return HTMLResponse(content, headers={"Content-Security-Policy": policy})


@router.get("/docs", tags=["pages"], summary="This interface, for people", response_class=Response, responses=PAGE)
def get_docs(request: Request) -> HTMLResponse:
    content, policy = docs_page(request.app.openapi())
    return HTMLResponse(content, headers={"Content-Security-Policy": policy})
