"""What uploads and downloads share: one HTTP client's settings, bounded tries, errors in plain words."""

import random
import ssl
import time
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpcore
import httpx

from protocol.errors import MusterError, UnreachableError

T = TypeVar("T")
TRIES = 4
_PAUSE = 0.25
_CONNECT_SECONDS = 5.0
_READ_SECONDS = 30.0
_DEADLINE: ContextVar[float] = ContextVar("deadline", default=float("inf"))


class _Stream(httpcore.NetworkStream):
    """A connection whose every read and write ends at the transfer's deadline, however slowly the peer drips."""

    def __init__(self, inner: httpcore.NetworkStream) -> None:
        self._inner = inner

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._inner.read(max_bytes, _left(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, _left(timeout))

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        return _Stream(self._inner.start_tls(ssl_context, server_hostname, _left(timeout)))

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


class _Backend(httpcore.SyncBackend):
    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        return _Stream(super().connect_tcp(host, port, _left(timeout), local_address, socket_options))


def _left(timeout: float | None) -> float:
    left = _DEADLINE.get() - time.monotonic()
    if left <= 0:
        raise httpcore.ReadTimeout("out of time")
    return min(left, _READ_SECONDS if timeout is None else timeout)


def http_client() -> httpx.Client:
    """A client for object transfers: bounded waits, no proxies from the environment, redirects followed by us."""
    transport = httpx.HTTPTransport(trust_env=False)
    # httpx has no public way to pass httpcore's network backend on.
    transport._pool = httpcore.ConnectionPool(
        ssl_context=httpx.create_ssl_context(trust_env=False), max_connections=32, network_backend=_Backend()
    )
    timeout = httpx.Timeout(_READ_SECONDS, connect=_CONNECT_SECONDS)
    return httpx.Client(transport=transport, timeout=timeout, follow_redirects=False, trust_env=False)


class Again(Exception):
    """A try that failed in a way that may pass: another is worth it."""


def tries(what: str, url: str, attempt: Callable[[], T], deadline: float, count: int = TRIES) -> T:
    """`attempt` up to `count` times, with growing pauses, until `deadline` (monotonic seconds).

    Retried are Again and httpx's transport errors. Raises UnreachableError naming host and last reason.
    """
    reason = ""
    for number in range(count):
        if number:
            pause = _PAUSE * 2 ** (number - 1) * random.uniform(0.5, 1.5)
            time.sleep(max(0.0, min(pause, deadline - time.monotonic())))
        if time.monotonic() > deadline:
            reason = reason or "out of time"
            break
        token = _DEADLINE.set(deadline)
        try:
            return attempt()
        except Again as error:
            reason = str(error)
        except (httpx.HTTPError, httpx.StreamError) as error:
            reason = str(error) or type(error).__name__
        finally:
            _DEADLINE.reset(token)
    raise UnreachableError(f"cannot {what} at {host(url)}: {reason}", "check that it runs and can be reached")


def host(url: str) -> str:
    """Scheme, host and port of a URL, without path and query: fit for logs (a signature is a secret)."""
    try:
        parts = urlsplit(url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"[:200]
    except ValueError:
        return "a URL that is none"


def check_url(url: str) -> str:
    """The URL if it is a plain http(s) URL. Raises MusterError."""
    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, TypeError, ValueError):
        parsed = httpx.URL("")
    if parsed.scheme not in ("http", "https") or not parsed.host or len(url) > 8192:
        raise MusterError(f"not an http(s) URL: {url[:80]!r}", "ask the pool's service for another")
    return url
