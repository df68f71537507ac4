"""The server's side of signed requests: who sent this, and is it the first time we see it?"""

import sqlite3
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import APIKeyHeader
from starlette.concurrency import run_in_threadpool

from orchestrator.http_errors import HttpError
from orchestrator.limits import Buckets
from protocol.errors import ConfigError
from protocol.http.signing import WINDOW, Realm, RequestRefused, parse_headers, verify_request

_KEEP = 10 * WINDOW
"""Seconds a nonce is remembered: longer than it could be replayed, even if the clock is set back a few minutes."""


class NonceStore:
    """Nonces already used, in an SQLite file that survives restarts. Safe to share between threads."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._next_prune = 0.0
        try:
            self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=10)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.execute(
                "CREATE TABLE IF NOT EXISTS nonces (address TEXT, nonce BLOB, expires REAL, "
                "PRIMARY KEY (address, nonce)) WITHOUT ROWID"
            )
            self._db.execute("CREATE INDEX IF NOT EXISTS nonces_expiry ON nonces (expires)")
        except sqlite3.DatabaseError as error:
            raise ConfigError(f"cannot use the nonce store {path}: {error}", "move the file away and restart") from None

    def use(self, address: str, nonce: bytes, now: float) -> bool:
        """Record a nonce; False if the address used it before."""
        with self._lock:
            if now >= self._next_prune:
                self._db.execute("DELETE FROM nonces WHERE expires < ?", (now,))
                self._next_prune = now + WINDOW
            done = self._db.execute("INSERT OR IGNORE INTO nonces VALUES (?, ?, ?)", (address, nonce, now + _KEEP))
            return done.rowcount == 1

    def close(self) -> None:
        with self._lock:
            self._db.close()


class RequestGuard:
    """Verifies requests for one service.

    `allowed` may refuse an address (403) before its nonce is stored, so that strangers cannot fill the store.
    """

    def __init__(
        self,
        realm: Realm,
        nonces: NonceStore,
        allowed: Callable[[str], bool] = lambda address: True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._realm = realm
        self._nonces = nonces
        self._allowed = allowed
        self._clock = clock

    def verify(self, method: str, path: str, headers: Iterable[tuple[str, str]], body: bytes) -> str:
        """The checksum address that signed the request. `headers` are all pairs, repeated ones included
        (`request.headers.items()` in starlette); `path` is the raw path with its query.

        Raises RequestRefused with `status` 401 (not proven), 403 (not allowed) or 409 (seen before).
        """
        given = parse_headers(headers)
        now = self._clock()
        address = verify_request(self._realm, method, path, body, given, now)
        if not self._allowed(address):
            raise RequestRefused(f"{address} may not do this", "register and join first", status=403)
        if not self._nonces.use(address, given.nonce, now):
            raise RequestRefused("this request was sent before", "sign it anew with another nonce", status=409)
        return address


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


Sender = Annotated[str, Depends(RequestSignature())]
