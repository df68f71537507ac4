"""The HTTP application: routes, limits per caller, headers and errors around the service."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from fastapi import FastAPI

from orchestrator.bodies import BodyRoom
from orchestrator.guard import RequestGuard
from orchestrator.http_errors import add_error_handlers
from orchestrator.outermost import RequestLimits
from orchestrator.routes import router, signed
from orchestrator.service import Service
from orchestrator.signed_route import ShortWay
from orchestrator.views.answers import AnswerCache
from orchestrator.views.dashboard import Dashboard
from orchestrator.views.events import router as events
from orchestrator.views.routes import router as views
from protocol.http.limits import Buckets
from protocol.version import VERSION

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]
DESCRIPTION = (
    "The pool owner's service: work slots, upload tickets and receipts for the pool's participants, and the run as "
    "everybody may see it. Amounts are base units as decimal strings; times are Unix seconds."
)


def create_app(
    service: Service,
    guard: RequestGuard,
    *,
    rate: float = 100.0,
    burst: float = 400.0,
    view_seconds: float = 0.5,
    lifespan: Lifespan | None = None,
) -> FastAPI:
    """The application. `rate` requests a second and `burst` at once are answered per client address, half of it per
    signer; the public views are computed at most every `view_seconds`, however many look."""
    app = FastAPI(
        title="muster orchestrator",
        version=VERSION,
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        generate_unique_id_function=lambda route: route.name,
        lifespan=lifespan,
    )
    app.state.service, app.state.guard = service, guard
    app.state.signers, app.state.room = Buckets(rate / 2, burst / 2), BodyRoom()
    app.state.dashboard, app.state.answers = Dashboard(service, view_seconds), AnswerCache(view_seconds)
    app.state.streams = set()
    add_error_handlers(app)
    app.include_router(signed)
    app.include_router(router)
    app.include_router(views)
    app.include_router(events)
    app.add_middleware(ShortWay, routes=app.routes)
    app.add_middleware(RequestLimits, clients=Buckets(rate, burst))
    return app
