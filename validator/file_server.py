"""A small HTTP server of kept files for strangers: `GET …/rollouts/<sha256>.parquet`, one answer a connection.

It knows one kind of request and looks up what that names by its hash, never by a path. What it spends on strangers is
bounded: connections at once, in all and of one address; requests of one address; seconds until a request is read and
until its answer is taken.
"""

import io
import ipaddress
import logging
import re
import socket
import socketserver
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import BinaryIO

from protocol.errors import ConfigError
from storage.keys import parse_key

log = logging.getLogger("muster.validator")
_REQUEST = re.compile(rb"GET /(?:[!-~]{0,400}/)?(rollouts/[0-9a-f]{64}\.parquet) HTTP/1\.[01]\r\n")
_MOST_REQUEST_BYTES = 8192
_REQUEST_SECONDS, _ANSWER_SECONDS, _LEAST_PACE = 5.0, 10.0, 1 << 16
_MOST, _MOST_OF_ONE, _MINUTE, _MOST_A_MINUTE = 32, 8, 60.0, 60
_PIECE = 1 << 18
_STATUS = {200: "OK", 400: "Bad Request", 404: "Not Found"}
Open = Callable[[bytes], BinaryIO | None]


def _party(address: str) -> str:
    """Whom an address stands for: whoever has one IPv6 address has all 2⁶⁴ of its network. Empty: this machine."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is None:
            return "" if ip.is_loopback else f"{int(ip) >> 64:x}/64"
        ip = ip.ipv4_mapped
    return "" if ip.is_loopback else str(ip)


class Admission:
    """Who may be served now. An address of this machine is a proxy's, behind which are all others: only the limit in
    all holds for it. An IPv6 network of 64 bits counts as one address. `clock` gives seconds. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._inside: Counter[str] = Counter()
        self._asked: Counter[str] = Counter()
        self._since = clock()

    def enter(self, address: str) -> bool:
        """Whether a connection from an address is taken; `leave` ends it."""
        address = _party(address)
        with self._lock:
            if self._clock() - self._since >= _MINUTE:
                self._asked.clear()
                self._since = self._clock()
            self._asked[address] += 1
            ours = not address
            full = self._inside.total() >= _MOST or (not ours and self._inside[address] >= _MOST_OF_ONE)
            if full or (not ours and self._asked[address] > _MOST_A_MINUTE):
                return False
            self._inside[address] += 1
            return True

    def leave(self, address: str) -> None:
        address = _party(address)
        with self._lock:
            self._inside[address] -= 1
            if not self._inside[address]:
                del self._inside[address]


class FileServer:
    """Listens at `listen` (HOST:PORT) until `stop`; `find` opens the file of a SHA-256, or gives None. Raises
    ConfigError when it cannot listen there."""

    def __init__(self, listen: str, find: Open) -> None:
        host, _, port = listen.rpartition(":")
        try:
            self._server = _Server((host.strip("[]"), int(port)), find)
        except (OSError, ValueError, OverflowError) as error:
            what = getattr(error, "strerror", None) or str(error)
            raise ConfigError(f"cannot listen at {listen}: {what}", "correct `serve.listen`") from None
        self.port = int(self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, name="kept files", daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address, daemon_threads, block_on_close, request_queue_size = True, True, False, 64

    def __init__(self, address: tuple[str, int], find: Open) -> None:
        self.find, self._admission = find, Admission()
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, _Exchange)

    def process_request(self, request: socket.socket, client_address: tuple[str, int]) -> None:  # type: ignore[override]
        if self._admission.enter(client_address[0]):
            try:
                super().process_request(request, client_address)
            except BaseException:  # no thread to be had: its room is free again
                self._admission.leave(client_address[0])
                raise
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: socket.socket, client_address: tuple[str, int]) -> None:  # type: ignore[override]
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._admission.leave(client_address[0])

    def handle_error(self, request: object, client_address: object) -> None:
        log.debug("a request for a kept file failed", exc_info=True)


class _Exchange(socketserver.BaseRequestHandler):
    """One request, one answer."""

    def handle(self) -> None:
        connection: socket.socket = self.request
        match = _REQUEST.match(self._head(connection))
        if match is None:
            return self._answer(connection, 400, io.BytesIO())
        assert isinstance(self.server, _Server)
        file = self.server.find(parse_key(match[1].decode()).digest)
        if file is None:
            return self._answer(connection, 404, io.BytesIO())
        with file:
            return self._answer(connection, 200, file)

    @staticmethod
    def _head(connection: socket.socket) -> bytes:
        """The request up to the end of its headers, or what came of it in time."""
        end, got = time.monotonic() + _REQUEST_SECONDS, b""
        while b"\r\n\r\n" not in got and len(got) < _MOST_REQUEST_BYTES:
            connection.settimeout(max(0.001, end - time.monotonic()))
            chunk = connection.recv(4096)
            if not chunk:
                break
            got += chunk
        return got

    @staticmethod
    def _answer(connection: socket.socket, status: int, file: BinaryIO) -> None:
        """Piece by piece: those who read slowly, all at once, must not fill the memory with large files."""
        size = file.seek(0, io.SEEK_END)
        file.seek(0)
        end = time.monotonic() + _ANSWER_SECONDS + size / _LEAST_PACE
        head = f"HTTP/1.1 {status} {_STATUS[status]}\r\nContent-Length: {size}\r\nConnection: close\r\n\r\n"
        piece = head.encode()
        while piece:
            connection.settimeout(max(0.001, end - time.monotonic()))
            connection.sendall(piece)
            piece = file.read(_PIECE)
