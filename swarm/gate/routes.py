"""The gate's HTTP interface: one signed request of members, and what everybody may read."""

import re
from typing import Annotated

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.responses import RedirectResponse

from orchestrator.auth import (
    BodyMemory,
    HttpError,
    RequestGuard,
    RequestLimits,
    Sender,
    SignedRoute,
    add_error_handlers,
    documented,
)
from protocol.api import endpoints, work
from protocol.api.run import Health
from protocol.api.swarm import ENVELOPES, SHARE, EnvelopeListing, EnvelopeUpload
from protocol.http.limits import Buckets
from protocol.version import VERSION
from swarm.gate.service import SwarmGate

signed = APIRouter(route_class=SignedRoute, responses=documented(400, 401, 403, 408, 409, 413, 422, 503))
router = APIRouter(responses=documented())
_ENVELOPE = re.compile(r"/v1/objects/envelopes/([0-9a-f]{64})\.json")


def _gate(request: Request) -> SwarmGate:
    return request.app.state.service  # type: ignore[no-any-return]


Gate = Annotated[SwarmGate, Depends(_gate)]


@signed.post(SHARE.path, summary="Ask to upload an envelope, and again once it is there")
def post_envelope(body: EnvelopeUpload, sender: Sender, service: Gate) -> work.UploadResponse:
    return service.upload(sender, body)


@router.get(ENVELOPES.path, summary="Which envelopes lie there", response_model=EnvelopeListing)
def get_envelopes(service: Gate, after: str | None = None) -> Response:
    return Response(service.listing(after).model_dump_json(), media_type="application/json")


@router.get(endpoints.OBJECTS + "/{key:path}", summary="Find an envelope", status_code=307, response_class=Response)
def get_object(key: str, request: Request, service: Gate) -> RedirectResponse:
    # Not the path parameter: its route lets a trailing line feed pass unseen.
    named = _ENVELOPE.fullmatch(str(request.scope["path"]))
    if named is None:
        raise HttpError(404, "there is no such envelope", "see docs/swarm.md")
    return RedirectResponse(service.location(named[1]), 307)


@router.get(endpoints.HEALTH.path, summary="Does it answer?", response_model=Health)
def get_health() -> Health:
    return Health(ok=True, version=VERSION)


def create_app(gate: SwarmGate, guard: RequestGuard, rate: float, burst: float) -> FastAPI:
    """`rate` requests a second and `burst` at once are answered per client address, half of it per signer."""
    app = FastAPI(title="muster swarm gate", version=VERSION, docs_url=None, redoc_url=None)
    app.state.service, app.state.guard = gate, guard
    app.state.signers, app.state.body_memory = Buckets(rate / 2, burst / 2), BodyMemory()
    add_error_handlers(app)
    app.include_router(signed)
    app.include_router(router)
    app.add_middleware(RequestLimits, clients=Buckets(rate, burst))
    return app
