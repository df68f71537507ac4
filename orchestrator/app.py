"""The HTTP face of the orchestrator (docs/orchestrator.md): routes, signatures, limits, errors."""

import logging
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeVar

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from orchestrator.bodies import (
    Body,
    HeartbeatRequest,
    HttpError,
    ReceiptRequest,
    SlotRequest,
    StepRequest,
    UploadRequest,
    parse,
)
from orchestrator.guard import Guard
from orchestrator.limits import Buckets, read_body
from orchestrator.page import live_page
from orchestrator.service import Service
from orchestrator.status import dashboard, record, status
from protocol.errors import MusterError, UnreachableError
from protocol.http.signing import RequestRefused

log = logging.getLogger("muster.http")
VERSION = "0.1.0"
BODY_LIMIT = 64 << 10
STEP_BODY_LIMIT = 1 << 20
B = TypeVar("B", bound=Body)
Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]
SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def create_app(
    service: Service,
    guard: Guard,
    *,
    rate: float = 100.0,
    burst: float = 400.0,
    view_seconds: float = 0.5,
    lifespan: Lifespan | None = None,
) -> FastAPI:
    """The application. `rate` requests a second and `burst` at once are answered per client address, half of it per
    signer; the public views are computed at most every `view_seconds`, however many look."""
    app = FastAPI(
        title="muster orchestrator", version=VERSION, docs_url=None, redoc_url=None, lifespan=lifespan or _idle
    )
    _add_errors(app)
    _add_limits(app, Buckets(rate, burst))
    signers = Buckets(rate / 2, burst / 2)
    _add_signed(app, service, guard, signers)
    _add_public(app, service, view_seconds)
    return app


@asynccontextmanager
async def _idle(_app: FastAPI) -> AsyncIterator[None]:
    yield


def _add_signed(app: FastAPI, service: Service, guard: Guard, signers: Buckets) -> None:
    def signed(path: str, model: type[B], act: Callable[[str, B], dict[str, Any]], limit: int = BODY_LIMIT) -> None:
        async def route(request: Request) -> Response:
            body = await read_body(request, limit)
            return JSONResponse(await run_in_threadpool(answer, request, body))

        def answer(request: Request, body: bytes) -> dict[str, Any]:
            parsed = parse(model, body)
            address = guard.verify(request.method, _raw_path(request), request.headers.items(), body)
            if not signers.take(address, time.monotonic()):
                raise HttpError(429, f"{address} asks too often", "slow down", 1)
            return act(address, parsed)

        app.add_api_route(path, route, methods=["POST"], include_in_schema=False)

    signed("/v1/slots", SlotRequest, service.slot)
    signed("/v1/uploads", UploadRequest, service.upload)
    signed("/v1/receipts", ReceiptRequest, service.receipt)
    signed("/v1/heartbeats", HeartbeatRequest, service.heartbeat)
    signed("/v1/steps", StepRequest, service.step, STEP_BODY_LIMIT)


def _add_public(app: FastAPI, service: Service, view_seconds: float) -> None:
    views = Views(service, view_seconds)

    @app.get("/health")
    async def health() -> Response:
        return JSONResponse({"ok": True, "version": VERSION})

    @app.get("/v1/status")
    def get_status() -> Response:
        return views.answer(status)

    @app.get("/v1/dashboard")
    def get_dashboard() -> Response:
        return views.answer(dashboard)

    @app.get("/v1/record")
    def get_record() -> Response:
        return views.answer(record)

    @app.get("/v1/objects/{key:path}")
    def get_object(request: Request) -> Response:
        # Not the path parameter: its pattern lets a trailing line feed pass unseen.
        key = str(request.scope["path"]).removeprefix("/v1/objects/")
        return RedirectResponse(service.location(key), status_code=307)

    @app.get("/")
    def page() -> Response:
        content, policy = live_page()
        return HTMLResponse(content, headers={"Content-Security-Policy": policy})


class Views:
    """The newest answer of each public view, as bytes."""

    def __init__(self, service: Service, seconds: float) -> None:
        self._service, self._seconds = service, seconds
        self._lock = threading.Lock()
        self._answers: dict[str, tuple[float, bytes]] = {}

    def answer(self, view: Callable[[Service], dict[str, Any]]) -> Response:
        with self._lock:
            made, content = self._answers.get(view.__name__, (-self._seconds, b""))
            now = time.monotonic()
            if not content or now - made >= self._seconds:
                content = bytes(JSONResponse(view(self._service)).body)
                self._answers[view.__name__] = (now, content)
        return Response(content, media_type="application/json")


def _raw_path(request: Request) -> str:
    raw = request.scope.get("raw_path") or request.scope["path"].encode()
    query = request.scope.get("query_string", b"")
    return (raw + (b"?" + query if query else b"")).decode("latin-1")  # type: ignore[no-any-return]


def _add_limits(app: FastAPI, clients: Buckets) -> None:
    @app.middleware("http")
    async def limit(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        client = request.client.host if request.client else "unknown"
        if not clients.take(client, time.monotonic()):
            response = _error(429, "too many requests from this address", "slow down", 1)
        else:
            try:
                response = await call_next(request)
            except Exception:
                log.exception("%s %s failed", request.method, request.url.path)
                response = _error(500, "the service failed", "see its log; nothing was lost, try again", 5)
        for name, value in SECURITY_HEADERS.items():
            response.headers.setdefault(name, value)
        return response


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(MusterError)
    async def muster(_request: Request, error: Exception) -> Response:
        assert isinstance(error, MusterError)
        if isinstance(error, HttpError):
            return _error(error.status, error.what, error.hint, error.retry_after)
        if isinstance(error, RequestRefused):
            return _error(error.status, error.what, error.hint)
        if isinstance(error, UnreachableError):
            log.warning("%s", error)
            return _error(503, "the storage or chain behind this service does not answer", "try again", 2)
        return _error(400, error.what, error.hint)

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        mends = {404: "see docs/orchestrator.md", 405: "use the documented method"}
        return _error(error.status_code, str(error.detail).lower(), mends.get(error.status_code, ""))


def _error(status_code: int, what: str, hint: str, retry_after: int | None = None) -> Response:
    text = what.encode("utf-8", "replace").decode()
    headers = {"Retry-After": str(retry_after)} if retry_after is not None else None
    return JSONResponse({"error": text, "mend": hint}, status_code=status_code, headers=headers)
