"""Who may send what, checked in this order: the limit of the client's address, the body's size and time, signature,
membership, nonce, the signer's limit, strict JSON, model."""

import asyncio
import hashlib
import inspect
import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from fastapi.security import APIKeyHeader
from prometheus_client import Histogram
from pydantic import TypeAdapter, ValidationError
from sqlalchemy import delete
from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from orchestrator.db import Database, NonceRow
from protocol.api.base import MAX_FIELDS, ErrorBody, RequestBody
from protocol.encoding import parse_json
from protocol.errors import MusterError, UnreachableError, first_problem
from protocol.http.limits import Buckets, client_key
from protocol.http.signing import WINDOW, AuthScope, RequestRefused, parse_headers, verify_request

log = logging.getLogger("muster.http")
_MEANINGS = {
    400: "The request cannot be understood.",
    401: "The signature is missing, wrong or too old.",
    403: "The sender may not do this, or not now.",
    404: "There is no such thing.",
    408: "The body did not arrive in time.",
    409: "Sent before, or in conflict with what is stored.",
    413: "The body, or the object to upload, is too large.",
    422: "The body is not one strict JSON object of the documented shape.",
    429: "Too many requests; `Retry-After` says when to try again.",
    500: "The service failed; try again.",
    503: "Database, storage or chain does not answer; `Retry-After` says when to try again.",
}
_HINTS = {404: "see /docs for this service's interface", 405: "use the documented method"}


class HttpError(MusterError):
    """A 4xx or 5xx answer; `retry_after` in seconds."""

    def __init__(self, status: int, what: str, hint: str = "", retry_after: int | None = None) -> None:
        super().__init__(what, hint)
        self.status = status
        self.retry_after = retry_after


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return FastAPI's `responses` for the errors that a route may answer; every route may answer 429 and 500."""
    return {status: {"model": ErrorBody, "description": _MEANINGS[status]} for status in sorted({*statuses, 429, 500})}


def error_response(status: int, what: str, hint: str, retry_after: int | None = None) -> Response:
    """Return an ErrorBody; characters that UTF-8 cannot encode are replaced."""
    content = ErrorBody(error=what.encode("utf-8", "replace").decode(), hint=hint).model_dump_json()
    headers = {"Retry-After": str(retry_after)} if retry_after is not None else {}
    if status in (408, 413):  # the body was not read to its end, which may never come
        headers["Connection"] = "close"
    return Response(content, status, headers, "application/json")


def protect(app: FastAPI, guard: "RequestGuard", rate: float, burst: float) -> None:
    """Let `guard` verify signed requests, answer `rate` requests a second and `burst` at once per client address, half
    of it per signer, and turn every exception of a route into an ErrorBody."""
    app.state.guard, app.state.signers, app.state.body_memory = guard, Buckets(rate / 2, burst / 2), BodyMemory()
    app.add_middleware(RequestLimits, clients=Buckets(rate, burst))

    @app.exception_handler(MusterError)
    async def muster_error(_request: Request, error: MusterError) -> Response:
        if isinstance(error, UnreachableError):
            log.warning("%s", error)
            return error_response(503, "the storage or chain behind this service does not answer", "try again", 2)
        status = error.status if isinstance(error, HttpError | RequestRefused) else 400
        retry_after = error.retry_after if isinstance(error, HttpError) else None
        return error_response(status, error.what, error.hint, retry_after)

    @app.exception_handler(SQLAlchemyError)
    async def database_error(request: Request, error: SQLAlchemyError) -> Response:
        log.warning("%s: the database fails: %s", request.url.path, error)
        return error_response(503, "the database behind this service does not answer", "try again", 2)

    @app.exception_handler(RequestValidationError)
    async def invalid(_request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        return _invalid_field([{**first, "loc": first["loc"][1:]}])

    @app.exception_handler(HTTPException)
    async def http_error(request: Request, error: HTTPException) -> Response:
        response = error_response(error.status_code, str(error.detail).lower(), _HINTS.get(error.status_code, ""))
        if error.status_code == 405:
            # Starlette names the methods of the first matching route only.
            routes = (route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE)
            methods = {method for route in routes for method in getattr(route, "methods", None) or ()}
            response.headers["Allow"] = ", ".join(sorted(methods))
        return response


def _invalid_field(problems: Sequence[Any]) -> Response:
    field, problem = first_problem(problems, "the body")
    return error_response(422, f"field `{field}`: {problem}", "see /docs for the documented shape")


# requests

BODY_SECONDS = 15.0
# Bytes of a body that every connection may send without a share of BodyMemory.
SMALL_BODY = 4096
# How long a used nonce is remembered: longer than a request is valid, even if the clock is set back some minutes.
NONCE_SECONDS = 10 * WINDOW
REQUEST_SECONDS = Histogram(
    "muster_request_seconds",
    "Time to answer, by route and kind of status.",
    ["route", "status"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0),
)
SECURITY_HEADERS = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store"}


class RequestLimits:
    """Middleware: a token bucket per client address, security headers, request metrics, 500 for what nobody foresaw."""

    def __init__(self, app: ASGIApp, clients: Buckets) -> None:
        self._app, self._clients = app, clients

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.monotonic(), 0

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status, headers = message["status"], MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        app = self._app
        if not self._clients.take(client_key(scope), began):
            app = error_response(429, "too many requests from this address", "slow down", 1)
        try:
            await app(scope, receive, send_with_headers)
        except Exception:
            log.exception("%s %s failed", scope["method"], scope["path"])
            if status:
                raise
            failed = error_response(500, "the service failed", "see its log; nothing was lost, try again", 5)
            await failed(scope, receive, send_with_headers)
        finally:
            # The documented path, not the requested one: strangers choose paths, and every label costs memory.
            route = getattr(scope.get("route"), "path", "none")
            REQUEST_SECONDS.labels(route, f"{status // 100}xx").observe(time.monotonic() - began)


@dataclass
class BodyMemory:
    """Memory for bodies that are being received, beyond SMALL_BODY bytes each: `total` bytes for everybody,
    `per_client` for one client. For the event loop's thread."""

    total: int = 256 << 20
    per_client: int = 16 << 20
    held: Counter[str] = field(default_factory=Counter)

    def take(self, client: str, size: int) -> bool:
        """Reserve `size` bytes; return False if there is no room for them."""
        if self.held[client] + size > self.per_client or self.held.total() + size > self.total:
            return False
        self.held[client] += size
        return True

    def give_back(self, client: str, size: int) -> None:
        self.held -= Counter({client: size})


async def read_body(request: Request, limit: int) -> bytes:
    """Return the request's body. Raises HttpError 400 (connection lost), 408 (too slow), 413 (more than `limit` bytes)
    or 429 (no BodyMemory left)."""
    too_large = HttpError(413, f"the body is larger than {limit} bytes", "send less")
    declared = request.headers.get("content-length", "0")
    if not declared.isdecimal() or len(declared) > 18 or int(declared) > limit:
        raise too_large
    memory: BodyMemory = request.app.state.body_memory
    client, body, held = client_key(request.scope), bytearray(), 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > limit:
                    raise too_large
                excess = max(0, len(body) - SMALL_BODY - held)
                if excess and not memory.take(client, excess):
                    raise HttpError(429, "too many long bodies are being received", "send one after another", 2)
                held += excess
    except TimeoutError:
        raise HttpError(408, f"the body did not arrive within {BODY_SECONDS:.0f} s", "try again") from None
    except ClientDisconnect:
        raise HttpError(400, "the connection ended before the body", "try again") from None
    finally:
        memory.give_back(client, held)
    return bytes(body)


def strict_object(data: bytes) -> dict[str, Any]:
    """Parse one JSON object. Raises HttpError 422 for anything else, duplicate or too many fields, NaN, deep
    nesting."""
    try:
        parse_json(data)  # bounds the depth; the standard parser would exhaust the interpreter's stack
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_unique_fields)
    except ValueError as error:
        raise HttpError(422, f"the body is not strict JSON: {str(error)[:200]}", "send one JSON object") from None
    if not isinstance(value, dict):
        raise HttpError(422, "the body is not a JSON object", "send one JSON object")
    return value


def _unique_fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a field appears twice")
    if len(fields) > MAX_FIELDS:  # pydantic would describe every unknown one
        raise ValueError(f"an object has more than {MAX_FIELDS} fields")
    return fields


class NonceStore:
    """Nonces in the database: a request is accepted once, whichever replica it is sent to. Thread-safe."""

    def __init__(self, db: Database) -> None:
        self._db, table = db, NonceRow.__table__
        # Built once, and of the table: an ORM's insert costs twice as much, and this is done for every request.
        self._insert = db.insert(table).on_conflict_do_nothing().returning(table.c.id)

    def use(self, address: str, nonce: bytes, now: float) -> bool:
        """Record a nonce; return False if the address used it before."""
        key = hashlib.blake2b(bytes.fromhex(address[2:]) + nonce, digest_size=16).hexdigest()
        with self._db.session() as session:
            return session.execute(self._insert, {"id": key, "expires": now + NONCE_SECONDS}).first() is not None

    def prune(self, now: float) -> None:
        """Forget nonces of requests that are too old to be accepted."""
        with self._db.session() as session:
            session.execute(delete(NonceRow).where(NonceRow.expires < now))


@dataclass(frozen=True)
class RequestGuard:
    """Verifies signed requests for one service. `use_nonce` is a NonceStore's `use` or alike. `allowed` may refuse an
    address (403) before its nonce is stored, so that strangers cannot fill the store, but on the paths that are
    `open_to_all`."""

    auth_scope: AuthScope
    use_nonce: Callable[[str, bytes, float], bool]
    allowed: Callable[[str], bool] = lambda address: True
    open_to_all: Collection[str] = ()
    clock: Callable[[], float] = time.time

    def verify(self, method: str, path: str, headers: Iterable[tuple[str, str]], body: bytes) -> str:
        """Return the checksum address that signed a request. `headers` are all pairs, repeated ones included; `path` is
        the raw path with its query. Raises RequestRefused: 401 (not proven), 403 (not allowed) or 409 (seen before)."""
        given, now = parse_headers(headers), self.clock()
        address = verify_request(self.auth_scope, method, path, body, given, now)
        if path.partition("?")[0] not in self.open_to_all and not self.allowed(address):
            raise RequestRefused(f"{address} may not do this", "register and join first", status=403)
        if not self.use_nonce(address, given.nonce, now):
            raise RequestRefused("this request was sent before", "sign it again with a new nonce", status=409)
        return address


class RequestSignature(APIKeyHeader):
    """What a SignedRoute verifies, named in the OpenAPI document."""

    def __init__(self) -> None:
        super().__init__(
            name="X-Muster-Signature",
            description="EIP-712 signature of method, path, body, audience, time and nonce, together with the headers "
            "X-Muster-Address, X-Muster-Time and X-Muster-Nonce (protocol reference, signed requests).",
        )

    def verify(self, request: Request, body: bytes) -> str:
        """Return the sender of a request whose body was read. Raises RequestRefused, or HttpError 429."""
        scope, guard, signers = request.scope, request.app.state.guard, request.app.state.signers
        query = scope.get("query_string", b"")
        path = ((scope.get("raw_path") or scope["path"].encode()) + (b"?" + query if query else b"")).decode("latin-1")
        address: str = guard.verify(request.method, path, request.headers.items(), body)
        if not signers.take(address, time.monotonic()):
            raise HttpError(429, f"{address} asks too often", "slow down", 1)
        return address


SIGNATURE = RequestSignature()
Sender = Annotated[str, Depends(SIGNATURE)]


class SignedRoute(APIRoute):
    """A POST route whose function takes `body`, `sender` (a `Sender`) and `service`, and runs in a thread."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        signature = inspect.signature(self.endpoint)
        model: type[RequestBody] = signature.parameters["body"].annotation
        answer_type: TypeAdapter[Any] = TypeAdapter(signature.return_annotation)

        def respond(request: Request, raw: bytes) -> Response:
            sender, fields = SIGNATURE.verify(request, raw), strict_object(raw)
            try:
                body = model.model_validate(fields)
            except ValidationError as error:
                return _invalid_field(error.errors(include_url=False, include_input=False, include_context=False))
            answer = self.endpoint(body=body, sender=sender, service=request.app.state.service)
            return Response(answer_type.dump_json(answer), media_type="application/json")

        async def handle(request: Request) -> Response:
            return await run_in_threadpool(respond, request, await read_body(request, model.MAX_BYTES))

        return handle
