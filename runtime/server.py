"""Uvicorn with the limits that it lacks against slow, silent or greedy clients. A connection ends when a request's head
takes longer than HEAD_SECONDS or is longer than HEAD_BYTES, when the client goes on sending after its answer, or when
it takes almost nothing of an answer for STUCK_SECONDS. Applications bound bodies themselves."""

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Iterator
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from protocol.errors import ConfigError
from protocol.files import allow_files
from protocol.http.limits import rate_limit_key

log = logging.getLogger("muster.http")
HEAD_BYTES = 64 << 10  # longest request line with headers
HEAD_SECONDS = 15.0  # longest time from a connection's start, or the first byte after an answer, to a complete head
STUCK_SECONDS = 30.0  # a connection whose client takes less than LEAST_RATE bytes a second for this long is ended
LEAST_RATE = 16 << 10
PIPELINED = 4  # requests that may wait behind the one that is being answered
_SPARE = 32  # connections beyond the limit that still get a 503; all others are closed without an answer
SPARE_FILES = 256  # open files besides those of connections: databases, the chain, logs
_LINES_A_MINUTE = 20
_TOO_LONG = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class ServerOptions(uvicorn.Config):
    """Uvicorn's configuration and `per_client`, the most connections of one client address (a /64 of IPv6 is one)."""

    per_client: int | None = None


def server_options(
    app: Any,
    connections: int,
    per_client: int | None = None,
    trusted_proxies: tuple[str, ...] = (),
    workers: int = 1,
) -> ServerOptions:
    """Return the options that serve an ASGI application, or the factory at an import path `module:factory`, with at
    most `connections` connections per process. Only reverse proxies at `trusted_proxies` may say who their client is
    (X-Forwarded-For): believing anybody else would undo the limits per client."""
    options = ServerOptions(
        app,
        factory=isinstance(app, str),
        workers=workers,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(trusted_proxies),
        forwarded_allow_ips=list(trusted_proxies),
        timeout_keep_alive=15,
        timeout_graceful_shutdown=3,
        timeout_worker_healthcheck=60,
        limit_concurrency=connections,
        http=BoundedProtocol,
        ws="none",  # an upgraded connection would escape the limits
    )
    options.per_client = per_client
    uvicorn_log = logging.getLogger("uvicorn.error")
    if not any(isinstance(log_filter, _RateLimitedLog) for log_filter in uvicorn_log.filters):
        uvicorn_log.addFilter(_RateLimitedLog())
    return options


class _RateLimitedLog(logging.Filter):
    """Pass at most _LINES_A_MINUTE records a minute: strangers must not fill the disk."""

    def __init__(self) -> None:
        super().__init__()
        self._since, self._count = 0.0, 0

    def filter(self, record: logging.LogRecord) -> bool:
        now = time.monotonic()
        if now - self._since >= 60:
            self._since, self._count = now, 0
        self._count += 1
        return self._count <= _LINES_A_MINUTE or record.levelno >= logging.CRITICAL


def bound(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 takes any free one. Raises ConfigError when the address cannot be used."""
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


def address_of(listener: socket.socket) -> str:
    """Return the `host:port` that a socket listens on."""
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class HttpServer(uvicorn.Server):
    """A server that leaves signals to `runtime.process` and may open two files for each connection."""

    def __init__(self, options: ServerOptions) -> None:
        super().__init__(options)
        allow_files(2 * (options.limit_concurrency or 0) + SPARE_FILES)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class HttpDaemon:
    """Serves at a bound `listener` until it is stopped, then closes what was `opened` for it."""

    def __init__(self, options: ServerOptions, listener: socket.socket, opened: contextlib.ExitStack) -> None:
        self._server, self._listener, self._opened = HttpServer(options), listener, opened

    def run(self) -> int:
        with self._opened:
            self._server.run(sockets=[self._listener])
        log.info("stopped")
        return 0

    def stop(self) -> None:
        self._server.should_exit = True


class BoundedProtocol(HttpToolsProtocol):
    """Uvicorn's HTTP/1.1 connection with deadlines for its client."""

    _in_head = True
    _received = _parsed = 0
    _deadline: asyncio.TimerHandle | None = None
    _check: asyncio.TimerHandle | None = None
    _unsent: int | None = None
    """Bytes that the client had not taken at the last check, if it was slow then."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.key = rate_limit_key(self.client[0]) if self.client else ""
        if self._is_one_too_many():
            transport.abort()
            return
        self._expect_head()
        self._check = self.loop.call_later(STUCK_SECONDS, self._check_progress)

    def _is_one_too_many(self) -> bool:
        limit, per_client = self.limit_concurrency, getattr(self.config, "per_client", None)
        if limit is not None and len(self.connections) > limit + _SPARE:
            return True
        if per_client is None:
            return False
        return bool(sum(getattr(connection, "key", None) == self.key for connection in self.connections) > per_client)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_head()
        if self._check is not None:
            self._check.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._in_head:
            self._received += len(data)
            if self._received > HEAD_BYTES:
                self.transport.write(_TOO_LONG)
                self.transport.close()
            else:
                self._expect_head()
        elif self.cycle is not None and self.cycle.response_complete and self.timeout_keep_alive_task is None:
            # Empty lines, or the rest of a body that nobody reads: uvicorn takes them for a sign of life.
            self._expect_head()

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= PIPELINED:
            raise ValueError("too many pipelined requests")
        super().on_message_begin()
        self._in_head, self._received, self._parsed = True, 0, 0

    def on_url(self, url: bytes) -> None:
        self._parse(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # uvicorn would keep trailers without end
            self._parse(len(name) + len(value))
            super().on_header(name, value)

    def _parse(self, size: int) -> None:
        """Count a head that arrives whole, in one read of up to 256 KiB. Raises ValueError, which ends it."""
        self._parsed += size
        if self._parsed > HEAD_BYTES:
            raise ValueError("the head is too long")

    def on_headers_complete(self) -> None:
        self._end_head()
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        if self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete:
            self.transport.abort()  # the client would read the 400 as a part of the answer under way
        elif self._in_head and self._parsed > HEAD_BYTES:
            self.transport.write(_TOO_LONG)
            self.transport.close()
        else:
            super().send_400_response(msg)

    def resume_writing(self) -> None:
        self._unsent = None
        super().resume_writing()

    def _check_progress(self) -> None:
        """End the connection if its client has taken almost nothing since the last check, even one that is closing."""
        unsent = self.transport.get_write_buffer_size()
        if self._unsent is not None and unsent and self._unsent - unsent < LEAST_RATE * STUCK_SECONDS:
            self.transport.abort()
            return
        self._unsent = unsent if self.transport.is_closing() or self.flow.write_paused else None
        self._check = self.loop.call_later(STUCK_SECONDS, self._check_progress)

    def _expect_head(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _end_head(self) -> None:
        self._in_head = False
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
