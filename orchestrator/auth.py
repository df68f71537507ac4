"""Who may send what: rate limits, bounded bodies, signatures, nonces and strict JSON.

A signed request passes these checks in this order: the limit of its client address, the size and time limit of its
body, the signature, membership, the nonce, the limit of its signer, strict JSON, its model.
"""

import asyncio
import hashlib
import inspect
import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from typing import Annotated, Any, Protocol

from fastapi import Depends, Request, Response
from fastapi.routing import APIRoute
from fastapi.security import APIKeyHeader
from prometheus_client import Histogram
from pydantic import TypeAdapter, ValidationError
from sqlalchemy import delete
from sqlalchemy.dialects import postgresql, sqlite
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from orchestrator.db import Database, NonceRow
from orchestrator.errors import HttpError, error_response
from protocol.api.base import MAX_FIELDS, RequestBody
from protocol.encoding import parse_json
from protocol.errors import first_problem
from protocol.http.limits import Buckets, client_key
from protocol.http.signing import WINDOW, AuthScope, RequestRefused, parse_headers, verify_request

log = logging.getLogger("muster.http")
BODY_SECONDS = 15.0
SMALL_BODY = 4096
"""Bytes of a body that every connection may send without a share of BodyMemory."""
NONCE_SECONDS = 10 * WINDOW
"""How long a used nonce is remembered: longer than a request is valid, even if the clock is set back some minutes."""
REQUEST_SECONDS = Histogram(
    "muster_request_seconds",
    "Time to answer, by route and kind of status.",
    ["route", "status"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0),
)
SECURITY_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)


class RequestLimits:
    """Middleware: a token bucket per client address, security headers, request metrics, and 500 for what no handler
    foresaw."""

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
                status = message["status"]
                names = {name for name, _ in message["headers"]}
                missing = [pair for pair in SECURITY_HEADERS if pair[0] not in names]
                message["headers"] = [*message["headers"], *missing]
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


class BodyMemory:
    """Memory for bodies that are being received, beyond SMALL_BODY bytes each: `total` bytes for everybody,
    `per_client` for one client. Their senders have not proven anything yet. For the event loop's thread."""

    def __init__(self, total: int = 256 << 20, per_client: int = 16 << 20) -> None:
        self._total, self._per_client = total, per_client
        self.held: Counter[str] = Counter()

    def take(self, client: str, size: int) -> bool:
        """Reserve `size` bytes; return False if there is no room for them."""
        if self.held[client] + size > self._per_client or self.held.total() + size > self._total:
            return False
        self.held[client] += size
        return True

    def give_back(self, client: str, size: int) -> None:
        self.held[client] -= size
        if not self.held[client]:
            del self.held[client]


async def read_body(request: Request, limit: int) -> bytes:
    """Return the request's body, at most `limit` bytes that arrive within 15 s.

    Raises HttpError 400 (connection lost), 408 (too slow), 413 (too long) or 429 (no BodyMemory left).
    """
    declared = request.headers.get("content-length", "0")
    if not declared.isdigit() or len(declared) > 18 or int(declared) > limit:
        raise _too_large(limit)
    memory: BodyMemory = request.app.state.body_memory
    client, body, held = client_key(request.scope), bytearray(), 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > limit:
                    raise _too_large(limit)
                excess = len(body) - SMALL_BODY - held
                if excess > 0:
                    if not memory.take(client, excess):
                        raise HttpError(429, "too many long bodies are being received", "send one after another", 2)
                    held += excess
    except TimeoutError:
        raise HttpError(408, f"the body did not arrive within {BODY_SECONDS:.0f} s", "try again") from None
    except ClientDisconnect:
        raise HttpError(400, "the connection ended before the body", "try again") from None
    finally:
        if held:
            memory.give_back(client, held)
    return bytes(body)


def _too_large(limit: int) -> HttpError:
    return HttpError(413, f"the body is larger than {limit} bytes", "send less")


def strict_object(data: bytes) -> dict[str, Any]:
    """Parse one JSON object. Raises HttpError 422 for duplicate or too many fields, NaN, lone surrogates, deep nesting
    and anything that is not an object."""
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


class UsedNonces(Protocol):
    """A memory of nonces."""

    def use(self, address: str, nonce: bytes, now: float) -> bool:
        """Record a nonce; return False if the address used it before."""
        ...


class NonceStore:
    """Nonces in the database: a request is accepted once, whichever replica it is sent to. Thread-safe."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._insert = sqlite.insert if db.is_sqlite else postgresql.insert

    def use(self, address: str, nonce: bytes, now: float) -> bool:
        key = hashlib.blake2b(bytes.fromhex(address[2:]) + nonce, digest_size=16).hexdigest()
        row = self._insert(NonceRow).values(id=key, expires=now + NONCE_SECONDS)
        with self._db.session() as session:
            return session.execute(row.on_conflict_do_nothing().returning(NonceRow.id)).first() is not None

    def prune(self, now: float) -> None:
        """Forget nonces of requests that are too old to be accepted."""
        with self._db.session() as session:
            session.execute(delete(NonceRow).where(NonceRow.expires < now))


class RequestGuard:
    """Verifies signed requests for one service.

    `allowed` may refuse an address (403) before its nonce is stored, so that strangers cannot fill the store.
    """

    def __init__(
        self,
        auth_scope: AuthScope,
        nonces: UsedNonces,
        allowed: Callable[[str], bool] = lambda address: True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._auth_scope, self._nonces, self._allowed, self._clock = auth_scope, nonces, allowed, clock

    def verify(self, method: str, path: str, headers: Iterable[tuple[str, str]], body: bytes) -> str:
        """Return the checksum address that signed a request. `headers` are all pairs, repeated ones included
        (`request.headers.items()` in Starlette); `path` is the raw path with its query.

        Raises RequestRefused with `status` 401 (not proven), 403 (not allowed) or 409 (seen before).
        """
        given, now = parse_headers(headers), self._clock()
        address = verify_request(self._auth_scope, method, path, body, given, now)
        if not self._allowed(address):
            raise RequestRefused(f"{address} may not do this", "register and join first", status=403)
        if not self._nonces.use(address, given.nonce, now):
            raise RequestRefused("this request was sent before", "sign it again with a new nonce", status=409)
        return address


class RequestSignature(APIKeyHeader):
    """The dependency that returns a signed request's sender, its checksum address. Raises RequestRefused, or HttpError
    429 for a signer that asks too often."""

    def __init__(self) -> None:
        super().__init__(
            name="X-Muster-Signature",
            description="EIP-712 signature of method, path, body, audience, time and nonce, together with the headers "
            "X-Muster-Address, X-Muster-Time and X-Muster-Nonce (protocol reference, signed requests).",
        )

    async def __call__(self, request: Request) -> str:
        return await run_in_threadpool(self.verify, request, await request.body())

    def verify(self, request: Request, body: bytes) -> str:
        """Return the sender of a request whose body was read."""
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
    """A POST route whose function takes `body` (a RequestBody), `sender` (a `Sender`) and `service`. It runs in a
    thread."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        signature = inspect.signature(self.endpoint)
        model: type[RequestBody] = signature.parameters["body"].annotation
        answer_type: TypeAdapter[Any] = TypeAdapter(signature.return_annotation)

        def respond(request: Request, raw: bytes) -> Response:
            sender = SIGNATURE.verify(request, raw)
            answer = self.endpoint(body=_parsed(model, raw), sender=sender, service=request.app.state.service)
            return Response(answer_type.dump_json(answer), media_type="application/json")

        async def handle(request: Request) -> Response:
            return await run_in_threadpool(respond, request, await read_body(request, model.MAX_BYTES))

        return handle


def _parsed(model: type[RequestBody], raw: bytes) -> RequestBody:
    try:
        return model.model_validate(strict_object(raw))
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False, include_context=False)
        field, problem = first_problem(problems, "the body")
        raise HttpError(422, f"field `{field}`: {problem}", "see /docs for the documented shape") from None
