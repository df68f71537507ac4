"""The orchestrator's routes (docs/orchestrator.md): who may call each, what it takes and answers."""

import gzip
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.concurrency import run_in_threadpool

from orchestrator.guard import Sender
from orchestrator.http_errors import HttpError, documented
from orchestrator.metrics import exposition
from orchestrator.page import interface_page, live_page
from orchestrator.service import Service
from orchestrator.signed_route import SignedRoute
from orchestrator.status import dashboard, record, status
from orchestrator.views.answers import AnswerCache
from protocol.announcements import Announcement, AnnouncementTaken, SourceList
from protocol.api import endpoints, run, uploads, work
from protocol.api.base import ResponseBody
from protocol.version import VERSION
from storage.keys import KEY_PATTERN


def source_list(service: Service) -> SourceList:
    """The document of `get_sources`."""
    return SourceList(sources=service.sources.live())


SIGNED = (400, 401, 403, 408, 409, 413, 422)
LOCATION = {"Location": {"schema": {"type": "string", "format": "uri"}}}
PAGE: dict[int | str, dict[str, Any]] = {
    200: {"description": "HTML.", "content": {"text/html": {"schema": {"type": "string"}}}}
}
router = APIRouter(responses=documented())
signed = APIRouter(route_class=SignedRoute, tags=["work"], responses=documented(*SIGNED))


def _service(request: Request) -> Service:
    return request.app.state.service  # type: ignore[no-any-return]


def _public(request: Request) -> "Public":
    return Public(request.app.state.answers, request.app.state.service)


@dataclass(frozen=True)
class Public:
    """The newest answer of each public document, as JSON."""

    answers: AnswerCache
    service: Service

    def answer(self, view: Callable[[Service], ResponseBody]) -> Response:
        content = self.answers.get(view.__name__, lambda: view(self.service).model_dump_json())
        return Response(content, media_type="application/json")

    def metrics(self) -> Response:
        content = self.answers.get("metrics", lambda: exposition(self.service))
        return Response(content, media_type=CONTENT_TYPE_LATEST)


Orchestrator = Annotated[Service, Depends(_service)]
PublicViews = Annotated[Public, Depends(_public)]


@signed.post(endpoints.SLOTS.path, summary="Ask for a work slot")
async def ask_for_slot(body: work.SlotRequest, sender: Sender, service: Orchestrator) -> work.SlotResponse:
    """Signed by a node key joined to the pool. Asking again for the same counter gives the same lease or, when a newer
    policy step is usable, a new lease for it."""
    return await service.slot(sender, body)


@signed.post(endpoints.UPLOADS.path, summary="Ask for an upload ticket", responses=documented(503))
def ask_for_upload(body: uploads.UploadRequest, sender: Sender, service: Orchestrator) -> uploads.UploadResponse:
    """Rollouts by a joined node, verdicts by a voter of an active seat."""
    return service.uploads.ticket(sender, body)


@signed.post(endpoints.RECEIPTS.path, summary="Ask for a receipt", responses=documented(404, 503))
def ask_for_receipt(body: uploads.ReceiptRequest, sender: Sender, service: Orchestrator) -> uploads.ReceiptResponse:
    """After the upload of a rollout file. Keep it: it proves that the file was available."""
    return service.uploads.receipt(sender, body)


@signed.post(endpoints.HEARTBEATS.path, summary="Tell that a process lives")
async def take_heartbeat(body: work.HeartbeatRequest, sender: Sender, service: Orchestrator) -> work.HeartbeatResponse:
    """Signed by a joined node, a bonded validator or the pool's owner."""
    quick = service.quick_heartbeat(sender, body)
    return quick if quick is not None else await run_in_threadpool(service.heartbeat, sender, body)


@signed.post(endpoints.ANNOUNCE.path, summary="Announce a source of weights", responses=documented(503))
def take_announcement(body: Announcement, sender: Sender, service: Orchestrator) -> AnnouncementTaken:
    """Signed by a participant, or a relay that the pool's owner named. The URL must answer with the announcement."""
    return service.sources.take(sender, body)


@signed.post(endpoints.STEPS.path, summary="Report a policy step")
def take_step_report(body: work.StepRequest, sender: Sender, service: Orchestrator) -> work.StepResponse:
    """Signed by the pool's owner. The same step again replaces the former report."""
    return service.step(sender, body)


@router.get(endpoints.HEALTH.path, tags=["run"], summary="Whether the service runs")
async def health() -> run.Health:
    return run.Health(ok=True, version=VERSION)


@router.get(endpoints.READY.path, tags=["run"], summary="Whether to send requests here", responses=documented(503))
def get_ready(service: Orchestrator) -> run.Readiness:
    """503 while the database does not answer. What troubles the chain is told, but no reason: no other replica has a
    better one."""
    service.db.answers()
    return run.Readiness(problems=[service.watch.error] if service.watch.error else [])


# Not in the OpenAPI document: it is text for Prometheus.
@router.get(endpoints.METRICS, include_in_schema=False)
def get_metrics(views: PublicViews) -> Response:
    return views.metrics()


@router.get(
    endpoints.POOL.path,
    tags=["run"],
    summary="How to take part",
    response_model=run.PoolAccess,
    responses=documented(404),
)
def get_pool(service: Orchestrator) -> run.PoolAccess:
    """Pool, chain and contracts; check them against the chain."""
    if service.access is None:
        raise HttpError(404, "this service does not say how to take part", "ask the pool's owner")
    return service.access


@router.get(endpoints.STATUS.path, tags=["run"], summary="Where the run stands", response_model=run.RunStatus)
def get_status(views: PublicViews) -> Response:
    return views.answer(status)


@router.get(endpoints.DASHBOARD.path, tags=["run"], summary="The run, newest files only", response_model=run.RunRecord)
def get_dashboard(views: PublicViews) -> Response:
    return views.answer(dashboard)


@router.get(endpoints.RECORD.path, tags=["run"], summary="The whole run so far", response_model=run.RunRecord)
def get_record(views: PublicViews) -> Response:
    return views.answer(record)


@router.get(endpoints.SOURCES.path, tags=["objects"], summary="Who else serves the weights", response_model=SourceList)
def get_sources(views: PublicViews) -> Response:
    """Strangers' signed words. Check every byte that comes from there."""
    return views.answer(source_list)


@router.get(
    endpoints.OBJECTS + "/{key:path}",
    tags=["objects"],
    summary="Find an object",
    status_code=307,
    response_class=Response,
    responses={
        307: {"description": "Where to GET it, in `Location`.", "headers": LOCATION},
        **documented(400, 404, 503),
    },
)
def get_object(
    key: Annotated[str, Path(json_schema_extra={"pattern": f"^({KEY_PATTERN})$"})],
    request: Request,
    service: Orchestrator,
) -> RedirectResponse:
    """Redirects to a pre-signed GET of the pool's bucket; `key` is a content address."""
    # Not the path parameter: its route lets a trailing line feed pass unseen.
    return RedirectResponse(service.location(str(request.scope["path"]).removeprefix(f"{endpoints.OBJECTS}/")), 307)


@router.get("/", tags=["pages"], summary="The dashboard, for people", response_class=Response, responses=PAGE)
def get_page(request: Request) -> HTMLResponse:
    packed, policy = live_page()
    headers = {"Content-Security-Policy": policy, "Vary": "Accept-Encoding"}
    if "gzip" not in request.headers.get("accept-encoding", ""):
        return HTMLResponse(gzip.decompress(packed), headers=headers)
    return HTMLResponse(packed, headers=headers | {"Content-Encoding": "gzip"})


@router.get("/docs", tags=["pages"], summary="This interface, for people", response_class=Response, responses=PAGE)
def get_docs(request: Request) -> HTMLResponse:
    content, policy = interface_page(request.app.openapi())
    return HTMLResponse(content, headers={"Content-Security-Policy": policy})
