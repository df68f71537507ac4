"""The HTTP application: what participants send, what everybody may read."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, Path, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from prometheus_client import CONTENT_TYPE_LATEST

from orchestrator.auth import HttpError, RequestGuard, Sender, SignedRoute, documented, protect
from orchestrator.dashboard import views
from orchestrator.dashboard.documents import AnswerCache
from orchestrator.dashboard.metrics import exposition
from orchestrator.dashboard.page import interface_page, live_page
from orchestrator.dashboard.views import CurrentService, Query, packed_response
from orchestrator.service import Service
from protocol import VERSION
from protocol.api import endpoints, run, work
from protocol.api.releases import Releases
from protocol.api.work import Announcement, AnnouncementTaken
from storage.keys import KEY_PATTERN, parse_key

DESCRIPTION = (
    "The pool owner's service: leases, upload tickets and receipts for the pool's participants, and the run as "
    "everybody may see it. Amounts are base units as decimal strings; times are Unix seconds."
)
DOWNLOAD_SECONDS = 300
PAGE: dict[int | str, dict[str, Any]] = {
    200: {"description": "HTML.", "content": {"text/html": {"schema": {"type": "string"}}}}
}
signed = APIRouter(route_class=SignedRoute, tags=["work"], responses=documented(400, 401, 403, 408, 409, 413, 422, 503))
router = APIRouter(responses=documented())


@signed.post(endpoints.LEASES.path, summary="Ask for a lease")
def request_lease(body: work.LeaseRequest, sender: Sender, service: CurrentService) -> work.LeaseResponse:
    """Signed by a joined node. Asking again for a counter gives the same lease, or one of a newer usable policy
    step."""
    return service.request_lease(sender, body)


@signed.post(endpoints.UPLOADS.path, summary="Ask for an upload ticket")
def request_upload(body: work.UploadRequest, sender: Sender, service: CurrentService) -> work.UploadResponse:
    """Rollouts by a joined node, verdicts by a voter of an active seat."""
    return service.uploads.ticket(sender, body)


@signed.post(endpoints.SUBMIT.path, summary="Hand in a file", responses=documented(404))
def hand_in(body: work.SubmissionRequest, sender: Sender, service: CurrentService) -> work.SubmissionResponse:
    """After the upload of a rollout file; once more to learn what became of it. Keep the receipt: it proves that the
    file was available, and lets the node submit it itself."""
    return service.relay.take(sender, body)


@signed.post(endpoints.JOINS.path, summary="Join without ether")
def join(body: work.JoinRequest, sender: Sender, service: CurrentService) -> work.MembershipResponse:
    """Signed by the node, of which nothing else need be known. The service lends the stake, if its owner allows it."""
    return service.sponsor.join(sender, body)


@signed.post(endpoints.LEAVES.path, summary="Leave without ether")
def leave(body: work.LeaveRequest, sender: Sender, service: CurrentService) -> work.MembershipResponse:
    """Signed by a joined node."""
    return service.sponsor.leave(sender, body)


@signed.post(endpoints.HEARTBEATS.path, summary="Send a heartbeat")
def post_heartbeat(body: work.HeartbeatRequest, sender: Sender, service: CurrentService) -> work.HeartbeatResponse:
    """Signed by a joined node, a bonded validator or the pool's owner."""
    return service.heartbeat(sender, body)


@signed.post(endpoints.ANNOUNCE.path, summary="Announce a source of weights")
def announce_source(body: Announcement, sender: Sender, service: CurrentService) -> AnnouncementTaken:
    """Signed by a participant, or a relay that the pool's owner named. The URL must answer with the announcement."""
    return service.sources.take(sender, body)


@signed.post(endpoints.STEPS.path, summary="Report a policy step")
def report_step(body: work.StepRequest, sender: Sender, service: CurrentService) -> work.StepResponse:
    """Signed by the pool's owner. A second report of a step replaces the first."""
    return service.report_step(sender, body)


@router.get(endpoints.HEALTH.path, tags=["run"], summary="Whether the service runs")
async def get_health() -> run.Health:
    return run.Health(ok=True, version=VERSION)


@router.get(endpoints.READY.path, tags=["run"], summary="Whether to send requests here", responses=documented(503))
def get_ready(service: CurrentService) -> run.Readiness:
    """503 while the database does not answer; `problems` do not count, for no other replica has a better chain."""
    service.db.check()
    return run.Readiness(problems=service.problems())


# Not in the OpenAPI document: it is text for Prometheus.
@router.get(endpoints.METRICS, include_in_schema=False)
def get_metrics(query: Query) -> Response:
    text = query.answers.get("metrics", lambda: exposition(query.service))
    return Response(text, media_type=CONTENT_TYPE_LATEST)


@router.get(endpoints.POOL.path, tags=["run"], summary="How to take part", responses=documented(404))
def get_pool(service: CurrentService) -> run.PoolAccess:
    """Pool, chain and contracts; check them against the chain."""
    if service.access is None:
        raise HttpError(404, "this service does not say how to take part", "ask the pool's owner")
    return service.access


@router.get(endpoints.RELEASES.path, tags=["run"], summary="Accepted versions", responses=documented(404))
def get_releases(service: CurrentService) -> Releases:
    """Signed by the pool's owner. 404: every version may work."""
    if (releases := service.releases()) is None:
        raise HttpError(404, "the pool accepts every version", "nothing has to be done")
    return releases


@router.get(
    endpoints.OBJECTS + "/{key:path}",
    tags=["objects"],
    summary="Find an object",
    status_code=307,
    response_class=Response,
    responses={
        307: {
            "description": "Where to GET it, in `Location`.",
            "headers": {"Location": {"schema": {"type": "string", "format": "uri"}}},
        },
        **documented(400, 404, 503),
    },
)
def get_object(
    key: Annotated[str, Path(json_schema_extra={"pattern": f"^({KEY_PATTERN})$"})],
    request: Request,
    service: CurrentService,
) -> RedirectResponse:
    """Redirects to a pre-signed GET of the pool's bucket; `key` is a content address."""
    # Not the path parameter: Starlette's route drops a trailing line feed.
    name = str(request.scope["path"]).removeprefix(f"{endpoints.OBJECTS}/")
    return RedirectResponse(service.store.presign_get(str(parse_key(name)), DOWNLOAD_SECONDS), 307)


@router.get("/", tags=["pages"], summary="The dashboard, for people", response_class=Response, responses=PAGE)
def get_page(request: Request) -> Response:
    packed, policy = live_page()
    return packed_response(request, packed, "text/html; charset=utf-8", {"Content-Security-Policy": policy})


@router.get("/docs", tags=["pages"], summary="This interface, for people", response_class=Response, responses=PAGE)
def get_docs(request: Request) -> HTMLResponse:
    content, policy = interface_page(request.app.openapi())
    return HTMLResponse(content, headers={"Content-Security-Policy": policy})


def create_app(
    service: Service, guard: RequestGuard, *, rate: float = 100.0, burst: float = 400.0, view_seconds: float = 0.5
) -> FastAPI:
    """Return the application. `rate`, `burst`: see `protect`; the public views are computed at most every
    `view_seconds`, however many clients ask."""

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        for task in service.tasks:
            task.start()
        yield
        for task in service.tasks:
            task.stop()

    app = FastAPI(
        title="muster orchestrator",
        version=VERSION,
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        generate_unique_id_function=lambda route: route.name,
        lifespan=lifespan,
    )
    app.state.service, app.state.answers, app.state.streams = service, AnswerCache(view_seconds), set()
    protect(app, guard, rate, burst)
    for routes in (signed, router, views.router):
        app.include_router(routes)
    return app
