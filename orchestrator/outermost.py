"""What surrounds every request: the limit per address, headers for browsers, the answer to what nobody foresaw, counts.

Plain ASGI: Starlette's own base for middleware costs as much as checking a signature.
"""

import logging
import time
from functools import cache

from prometheus_client import Histogram
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from orchestrator.http_errors import error_response
from orchestrator.metrics import REQUEST_SECONDS, route_of
from protocol.http.limits import Buckets, caller

log = logging.getLogger("muster.http")
SECURITY_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)


class RequestLimits:
    """Answers at most what the buckets of `clients` allow each address."""

    def __init__(self, app: ASGIApp, clients: Buckets) -> None:
        self._app, self._clients = app, clients

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.monotonic(), 0

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                given = message["headers"]
                names = {name for name, _ in given}
                message["headers"] = [*given, *[pair for pair in SECURITY_HEADERS if pair[0] not in names]]
            await send(message)

        refusal = None if self._clients.take(caller(scope), began) else _too_many()
        try:
            await (refusal or self._app)(scope, receive, answer)
        except Exception:
            log.exception("%s %s failed", scope["method"], scope["path"])
            if status:
                raise
            failed = error_response(500, "the service failed", "see its log; nothing was lost, try again", 5)
            await failed(scope, receive, answer)
        finally:
            _counter(route_of(scope), status // 100).observe(time.monotonic() - began)


@cache
def _counter(route: str, kind: int) -> Histogram:
    return REQUEST_SECONDS.labels(route, f"{kind}xx")


def _too_many() -> Response:
    return error_response(429, "too many requests from this address", "slow down", 1)
