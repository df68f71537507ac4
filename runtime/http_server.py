"""HTTP/1.1 as uvicorn speaks it, with bounds that it lacks: how long a request's head may be, and may take."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from protocol.errors import ConfigError

HEAD_BYTES = 64 << 10
"""Request line and headers."""
HEAD_SECONDS = 15.0
"""From a connection's start, or the first byte after an answer, until a head is complete."""
_TOO_LONG = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


def server_options(app: Any, connections: int) -> uvicorn.Config:
    """How an ASGI application is served, to at most so many connections at once."""
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        # Anyone may send X-Forwarded-For: believing it would undo the limits per address.
        proxy_headers=False,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=3,
        limit_concurrency=connections,
        http=BoundedProtocol,
        loop="uvloop",
    )


def bound(host: str, port: int) -> socket.socket:
    """A listening socket, taken before anything else, so that a second instance stops at once. Raises ConfigError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(2048)
    except OSError as error:
        listener.close()
        what = f"cannot listen on {host}:{port}: {error.strerror}"
        raise ConfigError(what, "stop what uses it, or change `port`") from None
    return listener


class HttpServer(uvicorn.Server):
    """Leaves signals to `runtime.process`."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class BoundedProtocol(HttpToolsProtocol):
    """Ends a connection whose request's head is too long or too slow: uvicorn would keep what came, and wait."""

    _in_head = True
    _received = 0
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._deadline = self.loop.call_later(HEAD_SECONDS, transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_head()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._in_head and not self.transport.is_closing():
            self._received += len(data)
            if self._received > HEAD_BYTES:
                self.transport.write(_TOO_LONG)
                self.transport.close()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._received = True, 0
        if self._deadline is None:
            self._deadline = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def on_headers_complete(self) -> None:
        self._end_head()
        super().on_headers_complete()

    def _end_head(self) -> None:
        self._in_head = False
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
