"""A mirror over plain HTTP that may be honest, slow, or hostile."""

import re
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from protocol.api.endpoints import OBJECTS
from protocol.http.reach import ANYWHERE
from storage.sources import MultiSource
from storage.transfers import HttpObjects, http_client

NEAR = http_client(ANYWHERE)
"""For servers of tests, which are on this machine."""
Answer = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def mirror(answer: Answer, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Base URL of a server that answers every GET, HEAD, POST and PUT with `answer`."""

    class MirrorHandler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        do_HEAD = do_POST = do_PUT = do_GET

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), MirrorHandler)
    server.daemon_threads = True
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def sources(*answers: str | Answer, timeout: float = 10.0) -> Iterator[MultiSource]:
    """Fetch from relays at these URLs, and from mirrors that answer so: "0", "1", …, asked in this order while nothing
    is known of them."""
    with ExitStack() as stack:
        urls = [one if isinstance(one, str) else stack.enter_context(mirror(one)) for one in answers]
        objects = HttpObjects(urls, timeout=timeout)
        stack.callback(objects.close)
        each = objects.each()
        yield MultiSource({str(number): each[url] for number, url in enumerate(urls)})


@contextmanager
def bucket(objects: Mapping[str, bytes]) -> Iterator[str]:
    """Base URL of a pool's service that has these objects."""

    def serve(handler: BaseHTTPRequestHandler) -> None:
        found = objects.get(handler.path.removeprefix(f"{OBJECTS}/"))
        send(handler, *((200, found) if found is not None else (404,)))

    with mirror(serve) as url:
        yield url


def send(handler: BaseHTTPRequestHandler, status: int, body: bytes = b"", **headers: str) -> None:
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(body)))
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(body)


def begin(handler: BaseHTTPRequestHandler, data: bytes) -> int:
    """Send the head of an answer with `data` from the byte on that is asked for; return that byte's number."""
    match = re.fullmatch(r"bytes=([0-9]+)-", handler.headers.get("Range", ""))
    start = int(match[1]) if match else 0
    handler.send_response(206 if start else 200)
    handler.send_header("Content-Length", str(len(data) - start))
    if start:
        handler.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
    handler.end_headers()
    return start


def redirect_to(target: str, status: int = 302) -> Answer:
    return lambda handler: send(handler, status, Location=target)


def _forever(handler: BaseHTTPRequestHandler, data: bytes, pause: float) -> None:
    with suppress(OSError):
        while True:
            handler.wfile.write(data)
            time.sleep(pause)


def endless(handler: BaseHTTPRequestHandler) -> None:
    """Never stops sending."""
    handler.send_response(200)
    handler.end_headers()
    _forever(handler, b"x" * 65536, 0.0)


def drip(handler: BaseHTTPRequestHandler) -> None:
    """One byte now and then."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    _forever(handler, b"x", 0.2)


def drip_headers(handler: BaseHTTPRequestHandler) -> None:
    """Headers without end, one now and then."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
    _forever(handler, b"X-More: 1\r\n", 0.1)
