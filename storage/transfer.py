"""What uploads and downloads share: one HTTP client's settings, bounded tries, errors in plain words."""

import random
import time
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import urlsplit

import httpx

from protocol.errors import MusterError, UnreachableError
from protocol.http.reach import PUBLIC, Reach
from protocol.http.transport import bounded_transport, until

T = TypeVar("T")
TRIES = 4
_PAUSE = 0.25
_CONNECT_SECONDS = 5.0
_READ_SECONDS = 30.0


def http_client(reach: Reach = PUBLIC) -> httpx.Client:
    """A client for object transfers: bounded waits, addresses within `reach` only, no proxies from the environment,
    redirects followed by us."""
    timeout = httpx.Timeout(_READ_SECONDS, connect=_CONNECT_SECONDS)
    return httpx.Client(transport=bounded_transport(reach), timeout=timeout, follow_redirects=False, trust_env=False)


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
        try:
            with until(deadline):
                return attempt()
        except Again as error:
            reason = str(error)
        except (httpx.HTTPError, httpx.StreamError) as error:
            reason = str(error) or type(error).__name__
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
        raise MusterError(f"{url[:80]!r} is not an http(s) URL", "name another")
    return url
