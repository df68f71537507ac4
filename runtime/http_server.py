"""HTTP/1.1 as uvicorn speaks it, with bounds that it lacks: how long a request's head may be, and may take; how long a
client may keep a connection that it sends nothing of use on, or takes nothing from; how many are of one address.
"""

import asyncio
import contextlib
import logging
import resource
import socket
import time
import weakref
from collections.abc import Iterator
from functools import partial
from typing import Any, BinaryIO

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from protocol.errors import ConfigError
from protocol.http.asgi import SEND_FILE, WHOLE_BODY
from protocol.http.limits import party

log = logging.getLogger("muster.http")
HEAD_BYTES = 64 << 10
"""Request line and headers."""
HEAD_SECONDS = 15.0
"""From a connection's start, or the first byte after an answer, until a head is complete."""
STUCK_SECONDS = 30.0
"""A connection whose client takes less than LEAST_RATE for so long is ended, whatever is still to be sent."""
LEAST_RATE = 16 << 10
PIPELINED = 4
"""Requests that may wait behind one that is being answered."""
_SPARE = 32
"""Connections beyond the limit that are told so; all others are ended unheard."""
SPARE_FILES = 256
"""Besides those of connections: databases, the chain, what the rest of the process has open."""
_LINES_A_MINUTE = 20
_TOO_LONG = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class ServerOptions(uvicorn.Config):
    """`of_one`: connections that one address may have at once; a network of 2⁶⁴ IPv6 addresses counts as one. `files`:
    whether applications may send files."""

    of_one: int | None = None
    files = False


def server_options(app: Any, connections: int, of_one: int | None = None, files: bool = False) -> uvicorn.Config:
    """How an ASGI application is served, to at most so many connections at once, and so many `of_one` address. With
    `files` it finds the extension SEND_FILE in its scope, for the price of a slower loop."""
    options = ServerOptions(
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
        # Nothing of ours speaks it, and a connection that was handed over is no longer bounded.
        ws="none",
        loop="asyncio" if files else "uvloop",  # uvloop cannot send files
    )
    options.of_one, options.files = of_one, files
    few = logging.getLogger("uvicorn.error")
    if not any(isinstance(one, _FewLines) for one in few.filters):
        few.addFilter(_FewLines())
    return options


class _FewLines(logging.Filter):
    """What strangers can make a server say as often as they like must not fill the disk."""

    def __init__(self) -> None:
        super().__init__()
        self._since, self._said = 0.0, 0

    def filter(self, record: logging.LogRecord) -> bool:
        now = time.monotonic()
        if now - self._since >= 60:
            self._since, self._said = now, 0
        self._said += 1
        return self._said <= _LINES_A_MINUTE or record.levelno >= logging.CRITICAL


def bound(host: str, port: int, shared: bool = False) -> socket.socket:
    """A listening socket, taken before anything else, so that a second instance stops at once. `shared`: with others
    that ask for the same, among whom Linux deals connections. Raises ConfigError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind((host, port))
        listener.listen(2048)
    except OSError as error:
        listener.close()
        raise _taken(host, port, error) from None
    return listener


def held(host: str, port: int) -> socket.socket:
    """What keeps services that share a port among their own processes from sharing it with each other: a name in the
    kernel (Linux), as far-reaching as ports are, until the processes of this one have ended. Raises ConfigError when
    anybody has the port."""
    bound(host, port).close()
    name = socket.socket(socket.AF_UNIX)
    try:
        name.bind(f"\0muster port {port}")
    except OSError as error:
        name.close()
        raise _taken(host, port, error) from None
    return name


def _taken(host: str, port: int, error: OSError) -> ConfigError:
    return ConfigError(f"cannot listen on {host}:{port}: {error.strerror}", "stop what uses it, or change `port`")


def allow_files(count: int) -> None:
    """Let this process open so many files, as far as the system does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    if most < count:
        log.warning("the system allows %d open files: fewer connections than %d can be served", most, count)


class HttpServer(uvicorn.Server):
    """Leaves signals to `runtime.process`. Lets its process open a file for each connection, and as many more as
    sending files takes: the one that is sent, and the one that it is still being written to."""

    def __init__(self, options: uvicorn.Config) -> None:
        super().__init__(options)
        each = 3 if getattr(options, "files", False) else 1
        allow_files(each * (options.limit_concurrency or 0) + SPARE_FILES)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class BoundedProtocol(HttpToolsProtocol):
    """Ends a connection whose request's head is too long or too slow, that goes on sending when nothing more is asked
    for, or that takes nothing: uvicorn would keep what came, and wait."""

    _in_head = True
    _received = 0
    _deadline: asyncio.TimerHandle | None = None
    _look: asyncio.TimerHandle | None = None
    _left: int | None = None
    """Bytes that the client had still to take at the last look, if it had been slow to."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.party = party(self.client[0]) if self.client else ""
        if self._is_one_too_many():
            transport.abort()
            return
        self._expect_head()
        self._look = self.loop.call_later(STUCK_SECONDS, self._look_again)

    def _is_one_too_many(self) -> bool:
        limit, of_one = self.limit_concurrency, getattr(self.config, "of_one", None)
        if limit is not None and len(self.connections) > limit + _SPARE:
            return True
        if of_one is None:
            return False  # without a look at all the others
        mine = sum(getattr(one, "party", None) == self.party for one in self.connections)
        return bool(mine > of_one)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_head()
        if self._look is not None:
            self._look.cancel()
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
                # Only now: most heads come whole, and a timer for each would cost as much as reading it.
                self._expect_head()
        elif self.cycle is not None and self.cycle.response_complete and self.timeout_keep_alive_task is None:
            # Empty lines, or the rest of a body that nobody reads any more: uvicorn takes them for a sign of life.
            self._expect_head()

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= PIPELINED:
            raise ValueError("requests without end, before the first is answered")
        super().on_message_begin()
        self._in_head, self._received = True, 0

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # what follows a body would be kept without end
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._end_head()
        scope: dict[str, Any] = self.scope  # type: ignore[assignment]
        super().on_headers_complete()
        # Its scope holds what is made here: holding it in turn would keep each body until the next collection.
        cycle = weakref.proxy(self.cycle)
        extensions: dict[str, Any] = {WHOLE_BODY: lambda: cycle.message_event.is_set() and not cycle.more_body}
        if getattr(self.config, "files", False):
            extensions[SEND_FILE] = partial(self._send_file, cycle)
        scope["extensions"] = extensions

    async def _send_file(self, cycle: RequestResponseCycle, file: BinaryIO, start: int, size: int) -> None:
        """SEND_FILE."""
        if size > cycle.expected_content_length or cycle.disconnected or self.transport.is_closing():
            raise ConnectionResetError("nobody reads this answer, or it would be too long")
        step = max(1, int(LEAST_RATE * STUCK_SECONDS))
        for at in range(start, start + size, step):
            cycle.expected_content_length -= await self._send_slice(file, at, min(step, start + size - at))

    async def _send_slice(self, file: BinaryIO, start: int, size: int) -> int:
        """The kernel has what the client has still to take, so `_look_again` knows nothing of it."""
        try:
            async with asyncio.timeout(STUCK_SECONDS):
                sent = await self.loop.sendfile(self.transport, file, start, size, fallback=False)
        except TimeoutError:
            self.transport.abort()
            raise
        except asyncio.SendfileNotAvailableError:
            raise
        except RuntimeError as error:  # the transport was closed
            raise ConnectionResetError(str(error)) from None
        if sent < size:
            raise OSError("the file is shorter than it was")
        return sent

    def send_400_response(self, msg: str) -> None:
        if self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete:
            self.transport.abort()  # these words would be taken for a part of another answer
        else:
            super().send_400_response(msg)

    def resume_writing(self) -> None:
        self._left = None
        super().resume_writing()

    def _look_again(self) -> None:
        """End the connection if its client has hardly taken anything since the last look, also one that was closed: the
        system waits without end until the client takes the rest."""
        left = self.transport.get_write_buffer_size()
        if self._left is not None and left and self._left - left < LEAST_RATE * STUCK_SECONDS:
            self.transport.abort()
            return
        self._left = left if self.transport.is_closing() or self.flow.write_paused else None
        self._look = self.loop.call_later(STUCK_SECONDS, self._look_again)

    def _expect_head(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _end_head(self) -> None:
        self._in_head = False
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
