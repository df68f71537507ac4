"""What uploads and downloads share: the HTTP client's settings, bounded retries, and one-line errors."""

import time
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import urlsplit

import httpx
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, stop_before_delay, wait_exponential_jitter

from protocol.errors import MusterError, UnreachableError
from protocol.http.reach import PUBLIC, Reach
from protocol.http.transport import MOST_CONNECTIONS, bounded_transport, until

T = TypeVar("T")
TRIES = 4
_PAUSE = 0.25
_CONNECT_SECONDS = 5.0
_READ_SECONDS = 30.0


def http_client(reach: Reach = PUBLIC, connections: int | None = MOST_CONNECTIONS) -> httpx.Client:
    """A client for object transfers: bounded waits, addresses within `reach` only, at most that many `connections` at
    once (None: any number), no proxies from the environment, redirects followed by us."""
    timeout = httpx.Timeout(_READ_SECONDS, connect=_CONNECT_SECONDS)
    transport = bounded_transport(reach, connections)
    return httpx.Client(transport=transport, timeout=timeout, follow_redirects=False, trust_env=False)


class Again(Exception):
    """A failure that may be gone at the next attempt."""


_TEMPORARY = (Again, httpx.HTTPError, httpx.StreamError)


def tries(what: str, url: str, attempt: Callable[[], T], deadline: float, most: int = TRIES) -> T:
    """Call `attempt` up to `most` times, with growing pauses, until `deadline` (monotonic seconds).

    Again and httpx's transport errors are retried. Raises UnreachableError naming the host and the last reason.
    """
    left = max(0.0, deadline - time.monotonic())
    retrying = Retrying(
        retry=retry_if_exception_type(_TEMPORARY),
        wait=wait_exponential_jitter(multiplier=_PAUSE, jitter=_PAUSE),
        stop=stop_after_attempt(most) | stop_before_delay(left),
        reraise=True,
    )

    def once() -> T:
        with until(deadline):
            return attempt()

    try:
        return retrying(once)
    except _TEMPORARY as error:
        reason = str(error) or type(error).__name__
    raise UnreachableError(f"cannot {what} at {host(url)}: {reason}", "check that it runs and can be reached")


def host(url: str) -> str:
    """Scheme, host and port of a URL, without path and query: fit for logs (a signature is a secret)."""
    try:
        parts = urlsplit(url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"[:200]
    except ValueError:
        return "a malformed URL"


def check_url(url: str) -> str:
    """The URL if it is a plain http(s) URL. Raises MusterError."""
    try:
        parsed = httpx.URL(url)
        plain = parsed.scheme in ("http", "https") and bool(parsed.host)  # a malformed name is found out by reading it
    except (httpx.InvalidURL, TypeError, ValueError):
        plain = False
    if not plain or len(url) > 8192:
        raise MusterError(f"{url[:80]!r} is not an http(s) URL", "name another")
    return url
