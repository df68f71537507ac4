"""How muster's HTTP clients connect and read: deadlines that hold against a peer that drips, and judged addresses."""

import socket
import ssl
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

import httpcore
import httpx

from protocol.errors import IntegrityError
from protocol.http.reach import ANYWHERE, Reach

MOST_CONNECTIONS = 32
_READ_SECONDS = 30.0
_IDLE_SECONDS = 5.0
_PIECE = 64 << 10
_LARGE = 4 << 20
"""Of a body with more than this still to come it is cheaper to read the connection than to keep it."""
_READ = 512 << 10
_GATHERING = 0.2
"""Seconds that bytes may wait for more of them."""
_DEADLINE: ContextVar[float] = ContextVar("deadline", default=float("inf"))


@contextmanager
def until(deadline: float) -> Iterator[None]:
    """Every read, write and connection of a bounded client inside ends at `deadline` (monotonic seconds), or earlier
    if another deadline holds around it."""
    token = _DEADLINE.set(min(deadline, _DEADLINE.get()))
    try:
        yield
    finally:
        _DEADLINE.reset(token)


@cache
def tls_context() -> ssl.SSLContext:
    """One for all clients of this process: reading the authorities' certificates takes 45 ms."""
    return httpx.create_ssl_context(trust_env=False)


def bounded_transport(reach: Reach = ANYWHERE, connections: int | None = MOST_CONNECTIONS) -> httpx.HTTPTransport:
    """A transport that obeys `until`, connects within `reach` only, with at most that many `connections` at once (None:
    any number), and takes no proxy from the environment."""
    transport = httpx.HTTPTransport(verify=tls_context(), trust_env=False)
    # httpx has no public way to pass httpcore's network backend on.
    transport._pool = httpcore.ConnectionPool(
        ssl_context=tls_context(),
        max_connections=connections,
        keepalive_expiry=_IDLE_SECONDS,
        network_backend=_Backend(reach),
    )
    return transport


def exchange(client: httpx.Client, request: httpx.Request, limit: int, seconds: float) -> httpx.Response:
    """Send a request and read the whole answer, at most `limit` bytes once unpacked, within `seconds` (if the client
    has a bounded transport). Raises httpx.HTTPError, or IntegrityError for a longer answer or one that is packed
    otherwise than by gzip."""
    request.headers["Accept-Encoding"] = "gzip"
    with until(time.monotonic() + seconds):
        answer = client.send(request, stream=True)
        try:
            data = bytearray()
            for chunk in _unpacked(answer):
                data += chunk
                if len(data) > limit:
                    raise IntegrityError(f"{request.url} answers more than {limit} bytes", "check the service")
        finally:
            answer.close()
    headers = [(name, value) for name, value in answer.headers.items() if name.lower() != "content-encoding"]
    return httpx.Response(answer.status_code, headers=headers, content=bytes(data), request=request)


def pieces(answer: httpx.Response) -> Iterator[bytes | memoryview]:
    """The body of a streamed answer as it is, a piece at a time, which is overwritten by the next.

    httpx copies every byte several times, 64 KiB at a time. What it has not read of a large body of a known length
    comes straight from the connection, which ends with it. Raises httpx.HTTPError.
    """
    raw = answer.iter_raw()
    first = next(raw, b"")  # with it, httpx has handed over all that it has read
    yield first
    length = "" if "transfer-encoding" in answer.headers else answer.headers.get("content-length", "")
    left = int(length) - len(first) if length.isascii() and length.isdigit() and len(length) < 16 else 0
    stream = answer.extensions.get("network_stream")
    line = stream.get_extra_info("socket") if left > _LARGE and stream is not None else None
    if isinstance(line, socket.socket):
        yield from _straight(line, left, answer.request.extensions.get("timeout", {}).get("read"))
    else:
        yield from raw


def _straight(line: socket.socket, left: int, timeout: float | None) -> Iterator[memoryview]:
    """The next `left` bytes of a connection."""
    gathers = not isinstance(line, ssl.SSLSocket)
    with memoryview(bytearray(_READ)) as room:
        while left:
            try:
                got = _gathered(line, room[:left], timeout) if gathers else 0
                if not got:
                    line.settimeout(_left(timeout))
                    got = line.recv_into(room[:left])
            except (TimeoutError, httpcore.ReadTimeout) as error:
                raise httpx.ReadTimeout(str(error)) from None
            except OSError as error:
                raise httpx.ReadError(str(error)) from None
            if not got:
                raise httpx.RemoteProtocolError(f"the connection ended {left} bytes before the answer")
            left -= got
            yield room[:got]


def _gathered(line: socket.socket, room: memoryview, timeout: float | None) -> int:
    """Fill `room`, as far as that is possible in a moment: every read costs as much as many kilobytes do. 0 if nothing
    came, or the connection ended."""
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, len(room))
    line.settimeout(min(_GATHERING, _left(timeout)))
    try:
        return line.recv_into(room)
    except TimeoutError:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
        return 0


def _unpacked(answer: httpx.Response) -> Iterator[bytes]:
    """The answer's bytes, a little at a time: httpx would unpack all of what a few packed bytes stand for at once, and
    what was packed several times over again."""
    packed = answer.headers.get("content-encoding", "identity").strip().lower()
    if packed == "identity":
        yield from answer.iter_raw()
        return
    if packed != "gzip":
        raise IntegrityError(
            f"{answer.request.url} answers in the encoding {packed[:40]!r}", "gzip alone was asked for"
        )
    unpacking = zlib.decompressobj(wbits=31)
    for chunk in answer.iter_raw():
        while chunk and not unpacking.eof:
            try:
                yield unpacking.decompress(chunk, _PIECE)
            except zlib.error:
                raise IntegrityError(f"{answer.request.url} answers with damaged gzip", "check the service") from None
            chunk = unpacking.unconsumed_tail


class _Stream(httpcore.NetworkStream):
    """A connection whose every read and write ends at the deadline, however slowly the peer drips."""

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
    def __init__(self, reach: Reach) -> None:
        super().__init__()
        self._reach = reach

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        failure: Exception = httpcore.ConnectError(f"{host} has no address")
        try:
            addresses = self._reach.addresses(host, port)
        except OSError as error:
            raise httpcore.ConnectError(str(error)) from None
        for address in addresses:
            try:
                stream = super().connect_tcp(address, port, _left(timeout), local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
                continue
            return _Stream(stream)
        raise failure


def _left(timeout: float | None) -> float:
    left = _DEADLINE.get() - time.monotonic()
    if left <= 0:
        raise httpcore.ReadTimeout("out of time")
    return min(left, _READ_SECONDS if timeout is None else timeout)
