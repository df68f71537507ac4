"""WSGI filters around OpenStack Swift's S3 API: refusals that Swift 2.38 leaves open, and a cache in this process."""

import json
import time
from calendar import timegm
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import parse_qsl

from eventlet.semaphore import Semaphore

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
App = Callable[[Environ, StartResponse], Iterable[bytes]]

_FORBIDDEN = "403 Forbidden"
_BAD = "400 Bad Request"
_FUTURE_SECONDS = 900
_WRITE_SECONDS = 30


class Refusal(Exception):
    """HTTP status, S3 error code, text."""

    def __init__(self, status: str, code: str, text: str) -> None:
        self.status, self.code, self.text = status, code, text


class SignatureGuard:
    """Lets through only requests that carry exactly one SigV4 signature and mean one thing.

    Refused: unsigned requests, SigV2 and Swift's native API; query parameters given twice; Content-Length together
    with Transfer-Encoding (the signed length would not bind); pre-signed URLs dated in the future; a checksum in the
    query that differs from the header's. Writes with `If-None-Match` to one key go one at a time, so one racer wins.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        self._writes: dict[str, tuple[Any, list[int]]] = {}

    def __call__(self, env: Environ, start: StartResponse) -> Iterable[bytes]:
        if env["PATH_INFO"] == "/healthcheck" and env["REQUEST_METHOD"] in ("GET", "HEAD"):
            return self._app(env, start)
        try:
            _check(env)
            if env["REQUEST_METHOD"] in ("PUT", "POST") and env.get("HTTP_IF_NONE_MATCH"):
                return self._alone(env, start)
        except Refusal as refusal:
            return _refuse(start, refusal)
        return self._app(env, start)

    def _alone(self, env: Environ, start: StartResponse) -> Iterable[bytes]:
        key = env["PATH_INFO"]
        semaphore, users = self._writes.setdefault(key, (Semaphore(), [0]))
        users[0] += 1
        try:
            if not semaphore.acquire(timeout=_WRITE_SECONDS):
                raise Refusal("409 Conflict", "ConditionalRequestConflict", "Another write is under way")
            try:
                parts = self._app(env, start)
                try:
                    return [b"".join(parts)]
                finally:
                    close = getattr(parts, "close", None)
                    if close:
                        close()
            finally:
                semaphore.release()
        finally:
            users[0] -= 1
            if not users[0]:
                self._writes.pop(key, None)


def _check(env: Environ) -> None:
    pairs = parse_qsl(env.get("QUERY_STRING", ""), keep_blank_values=True, encoding="latin-1")
    query = dict(pairs)
    presigned = "X-Amz-Signature" in query and "X-Amz-Credential" in query
    in_header = env.get("HTTP_AUTHORIZATION", "").startswith("AWS4-HMAC-SHA256 ")
    if presigned == in_header:
        raise Refusal(_FORBIDDEN, "AccessDenied", "Exactly one SigV4 signature is needed")
    if len(query) != len(pairs):
        raise Refusal(_BAD, "InvalidArgument", "A query parameter is given twice")
    if env.get("HTTP_TRANSFER_ENCODING") and env.get("CONTENT_LENGTH"):
        raise Refusal(_BAD, "InvalidRequest", "Transfer-Encoding with Content-Length")
    if presigned:
        _check_date(query.get("X-Amz-Date", ""))
        _move_checksums(env, query)


def _check_date(stamp: str) -> None:
    try:
        signed_at = timegm(time.strptime(stamp, "%Y%m%dT%H%M%SZ"))
    except ValueError:
        raise Refusal(_FORBIDDEN, "AccessDenied", "X-Amz-Date is not a date") from None
    if signed_at > time.time() + _FUTURE_SECONDS:
        raise Refusal(_FORBIDDEN, "AccessDenied", "Request is not yet valid")


def _move_checksums(env: Environ, query: Mapping[str, str]) -> None:
    """Some SDKs sign x-amz-checksum-* in the query, where Swift would not look."""
    for name, value in query.items():
        if name.lower().startswith("x-amz-checksum-"):
            header = "HTTP_" + name.upper().replace("-", "_")
            if env.setdefault(header, value) != value:
                raise Refusal(_BAD, "InvalidRequest", "Two different checksums")


def _refuse(start: StartResponse, refusal: Refusal) -> Iterable[bytes]:
    text = f"<Error><Code>{refusal.code}</Code><Message>{refusal.text}</Message></Error>"
    body = f'<?xml version="1.0" encoding="UTF-8"?>\n{text}'.encode()
    headers = [("Content-Type", "application/xml"), ("Content-Length", str(len(body))), ("Connection", "close")]
    start(refusal.status, headers)
    return [body]


class LocalMemcache:
    """The few memcache calls Swift's proxy makes, answered in this process: two look-ups less per request."""

    _ENTRIES = 10_000

    def __init__(self, app: App) -> None:
        self._app = app
        self._entries: dict[str, tuple[str, float]] = {}

    def __call__(self, env: Environ, start: StartResponse) -> Iterable[bytes]:
        env["swift.cache"] = self
        return self._app(env, start)

    def get(self, key: str, raise_on_error: bool = False) -> Any:
        value, end = self._entries.get(key, ("null", 0.0))
        return json.loads(value) if not end or end > time.time() else None

    def set(self, key: str, value: Any, serialize: bool = True, time: float = 0, **_: Any) -> None:
        if len(self._entries) >= self._ENTRIES:
            self._entries.clear()
        self._entries[key] = (json.dumps(value), _after(time))

    def delete(self, key: str, server_key: str | None = None) -> None:
        self._entries.pop(key, None)

    def incr(self, key: str, delta: int = 1, time: float = 0) -> int:
        value = int(self.get(key) or 0) + delta
        self.set(key, value, time=time)
        return value


def _after(seconds: float) -> float:
    return time.time() + seconds if seconds else 0.0


def guard_factory(global_conf: Mapping[str, str], **local: str) -> Callable[[App], SignatureGuard]:
    return SignatureGuard


def cache_factory(global_conf: Mapping[str, str], **local: str) -> Callable[[App], LocalMemcache]:
    return LocalMemcache
