"""The server's side of signed requests: who sent this, and is it the first time we see it?"""

import time
from collections.abc import Callable, Iterable
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import APIKeyHeader
from starlette.types import Scope

from orchestrator.http_errors import HttpError
from orchestrator.nonces import NonceQueue, UsedNonces
from protocol.http.limits import Buckets
from protocol.http.signing import Credentials, Realm, RequestRefused, parse_headers, verify_request


class RequestGuard:
    """Verifies requests for one service.

    `allowed` may refuse an address (403) before its nonce is stored, so that strangers cannot fill the store.
    """

    def __init__(
        self,
        realm: Realm,
        nonces: UsedNonces,
        allowed: Callable[[str], bool] = lambda address: True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._realm = realm
        self._nonces = NonceQueue(nonces)
        self._allowed = allowed
        self._clock = clock

    def verify(self, method: str, path: str, headers: Iterable[tuple[str, str]], body: bytes) -> str:
        """The checksum address that signed the request. `headers` are all pairs, repeated ones included
        (`request.headers.items()` in starlette); `path` is the raw path with its query.

        Raises RequestRefused with `status` 401 (not proven), 403 (not allowed) or 409 (seen before).
        """
        given, now = self._proven(method, path, headers, body)
        return _first(given, self._nonces.store.use_many([(given.address, given.nonce)], now)[0])

    async def admit(self, method: str, path: str, headers: Iterable[tuple[str, str]], body: bytes) -> str:
        """As `verify`, in the event loop's thread: a signature takes a tenth of a millisecond, less than a thread."""
        given, now = self._proven(method, path, headers, body)
        return _first(given, await self._nonces.use(given.address, given.nonce, now))

    def _proven(
        self, method: str, path: str, headers: Iterable[tuple[str, str]], body: bytes
    ) -> tuple[Credentials, float]:
        given, now = parse_headers(headers), self._clock()
        address = verify_request(self._realm, method, path, body, given, now)
        if not self._allowed(address):
            raise RequestRefused(f"{address} may not do this", "register and join first", status=403)
        return given, now


def _first(given: Credentials, fresh: bool) -> str:
    if not fresh:
        raise RequestRefused("this request was sent before", "sign it anew with another nonce", status=409)
    return given.address


class RequestSignature(APIKeyHeader):
    """The dependency that gives a signed request's sender, its checksum address. Raises RequestRefused, or HttpError
    429 for a sender that asks too often."""

    def __init__(self) -> None:
        super().__init__(
            name="X-Muster-Signature",
            description="EIP-712 signature of method, path, body, audience, time and nonce, together with the headers "
            "X-Muster-Address, X-Muster-Time and X-Muster-Nonce (docs/protocol.md, section 9).",
        )

    async def __call__(self, request: Request) -> str:
        return await self.proven(request.scope, await request.body())

    async def proven(self, scope: Scope, body: bytes) -> str:
        """The sender of a request whose body was read."""
        state = scope["app"].state
        guard: RequestGuard = state.guard
        signers: Buckets = state.signers
        raw = scope.get("raw_path") or scope["path"].encode()
        query = scope.get("query_string", b"")
        path = (raw + (b"?" + query if query else b"")).decode("latin-1")
        address = await guard.admit(scope["method"], path, _credentials(scope), body)
        if not signers.take(address, time.monotonic()):
            raise HttpError(429, f"{address} asks too often", "slow down", 1)
        return address


def _credentials(scope: Scope) -> list[tuple[str, str]]:
    """The pairs of headers that a signature may be in, repeated ones included."""
    found = ((name.decode("latin-1"), value) for name, value in scope["headers"] if name[:9].lower() == b"x-muster-")
    return [(name, value.decode("latin-1")) for name, value in found]


SENDER = RequestSignature()
Sender = Annotated[str, Depends(SENDER)]
