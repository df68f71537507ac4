"""How muster's HTTP clients connect and read: deadlines that hold against slow peers, checked addresses, proxies."""

import ipaddress
import ssl
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any
from urllib.request import getproxies, proxy_bypass

import httpcore
import httpx

from protocol.errors import IntegrityError
from protocol.http.reach import ANYWHERE, Reach

MOST_CONNECTIONS = 32
_READ_SECONDS = 30.0
_IDLE_SECONDS = 5.0
_PIECE = 64 << 10
_DEADLINE: ContextVar[float] = ContextVar("deadline", default=float("inf"))


@contextmanager
def until(deadline: float) -> Iterator[None]:
    """End every read, write and connection of a bounded client in the block at `deadline` (monotonic seconds), or at
    an earlier one around it."""
    token = _DEADLINE.set(min(deadline, _DEADLINE.get()))
    try:
        yield
    finally:
        _DEADLINE.reset(token)


@cache
def tls_context() -> ssl.SSLContext:
    """Return the context of all clients of this process, since reading the certificates takes 45 ms. SSL_CERT_FILE or
    SSL_CERT_DIR in the environment replace the authorities."""
    return httpx.create_ssl_context(trust_env=True)


def bounded_transport(reach: Reach = ANYWHERE, connections: int | None = MOST_CONNECTIONS) -> httpx.BaseTransport:
    """Return a transport that obeys `until` and connects within `reach` only, with at most `connections` at once (None:
    any number), through the proxies that the environment names."""
    return _Transports(reach, connections)


class _Transports(httpx.BaseTransport):
    """A direct transport, and one for each scheme that has a proxy."""

    def __init__(self, reach: Reach, connections: int | None) -> None:
        self._reach, self._direct = reach, _transport(reach, connections)
        self._proxies: dict[str, httpx.HTTPTransport] = {}
        named = getproxies()
        for scheme in ("http", "https"):
            url = named.get(scheme) or named.get("all", "")
            if url.partition("://")[0] in ("http", "https"):
                self._proxies[scheme] = _transport(ANYWHERE, connections, httpx.Proxy(url))

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        host, proxy = request.url.raw_host.decode("ascii"), self._proxies.get(request.url.scheme)
        if proxy is None or _is_local(host) or proxy_bypass(host):
            return self._direct.handle_request(request)
        if not self._reach.private:
            # The proxy resolves the name again, and may see another network: a stranger's URL has to be public here.
            try:
                self._reach.addresses(host, request.url.port or 0)
            except OSError as error:
                what = f"{host} is not known here, and a proxy is not trusted with it: {error}"
                raise httpx.ConnectError(what, request=request) from None
        return proxy.handle_request(request)

    def close(self) -> None:
        for transport in (self._direct, *self._proxies.values()):
            transport.close()


def _transport(reach: Reach, connections: int | None, proxy: httpx.Proxy | None = None) -> httpx.HTTPTransport:
    limits = httpx.Limits(max_connections=connections, keepalive_expiry=_IDLE_SECONDS)
    transport = httpx.HTTPTransport(verify=tls_context(), trust_env=False, limits=limits, proxy=proxy)
    # httpx has no public way to pass httpcore's network backend on.
    transport._pool._network_backend = _Backend(reach)
    return transport


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def exchange(client: httpx.Client, request: httpx.Request, limit: int, seconds: float) -> httpx.Response:
    """Send a request by a client with a bounded transport and return its whole answer, at most `limit` bytes once
    unpacked, within `seconds`. Raises httpx.HTTPError, or IntegrityError for another length or encoding."""
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
    headers = [(name, value) for name, value in answer.headers.raw if name.lower() != b"content-encoding"]
    return httpx.Response(answer.status_code, headers=headers, content=bytes(data), request=request)


def _unpacked(answer: httpx.Response) -> Iterator[bytes]:
    """Yield the answer's bytes, at most _PIECE at a time and unpacked once: httpx would unpack a bomb whole."""
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
    """A connection whose every read and write ends at the deadline, however slowly the peer sends."""

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
