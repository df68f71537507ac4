"""The HTTP application: routes, limits per caller, headers and errors around the service."""

import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

from fastapi import FastAPI, Request, Response

from orchestrator.guard import RequestGuard
from orchestrator.http_errors import add_error_handlers, error_response
from orchestrator.limits import Buckets
from orchestrator.routes import router, signed
from orchestrator.service import Service
from orchestrator.views.answers import AnswerCache
from orchestrator.views.dashboard import Dashboard
from orchestrator.views.events import router as events
from orchestrator.views.routes import router as views
from protocol.version import VERSION

log = logging.getLogger("muster.http")
Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]
SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
DESCRIPTION = (
    "The pool owner's service: work slots, upload tickets and receipts for the pool's participants, and the run as "
    "everybody may see it. Amounts are grains as decimal strings; times are Unix seconds."
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
    app.state.signers = Buckets(rate / 2, burst / 2)
    app.state.dashboard, app.state.answers = Dashboard(service, view_seconds), AnswerCache(view_seconds)
    app.state.streams = set()
    add_error_handlers(app)
    _add_limits(app, Buckets(rate, burst))
    app.include_router(signed)
    app.include_router(router)
    app.include_router(views)
    app.include_router(events)
    return app


def _add_limits(app: FastAPI, clients: Buckets) -> None:
    @app.middleware("http")
    async def limit(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        client = request.client.host if request.client else "unknown"
        if not clients.take(client, time.monotonic()):
            response = error_response(429, "too many requests from this address", "slow down", 1)
        else:
            try:
                response = await call_next(request)
            except Exception:
                log.exception("%s %s failed", request.method, request.url.path)
                response = error_response(500, "the service failed", "see its log; nothing was lost, try again", 5)
        for name, value in SECURITY_HEADERS.items():
            response.headers.setdefault(name, value)
        return response
