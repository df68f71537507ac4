"""OpenStack Swift's proxy and its three storage servers as green threads of one process.

Adapted to eventlet's and Swift's internals of 2.38. Storage servers listen on Unix sockets in a folder of mode 0700, so
no other local user can bypass the proxy's signature check. WSGI filters close what Swift's S3 API leaves open.
"""

import http.client
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
import warnings
from calendar import timegm
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, nullcontext
from pathlib import Path
from time import time as now
from typing import Any
from urllib.parse import parse_qsl
from weakref import WeakValueDictionary

import eventlet
import eventlet.debug
from eventlet import wsgi
from eventlet.green import socket as green_socket
from eventlet.semaphore import Semaphore
from swift.common import bufferedhttp, utils
from swift.common import wsgi as swift_wsgi

from localnet.services.swift_conf import PORTS, Layout
from protocol.errors import MusterError
from storage.s3 import sign_url

_UNIX_PATH_ROOM = 85  # AF_UNIX paths have at most 107 bytes
_GRACE_SECONDS = 5


class _UnixProtocol(swift_wsgi.SwiftHttpProtocol):  # type: ignore[misc]
    def __init__(self, state: list[Any], server: Any) -> None:
        state[0] = ("127.0.0.1", 0)  # a Unix peer has no address, eventlet wants one
        super().__init__(state, server)


class SwiftServer:
    """Serves `layout` to this machine until `serve` sees SIGTERM or SIGINT."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        short = len(str(layout.run)) < _UNIX_PATH_ROOM
        self._sockets = layout.run if short else Path(tempfile.mkdtemp(prefix="muster-s3-"))
        self._paths = {port: self._sockets / f"{kind}.sock" for kind, port in PORTS.items()}
        self._servers: dict[str, tuple[Any, Any, Any]] = {}

    def start(self) -> None:
        """Listen, and make the bucket. Raises MusterError if the server does not answer."""
        os.environ["TZ"] = "UTC+0"
        time.tzset()
        eventlet.hubs.use_hub(utils.get_hub())
        eventlet.debug.hub_exceptions(False)
        warnings.filterwarnings("ignore", message="capitalize_response_headers is disabled")
        self._route_to_sockets()
        for kind in (*PORTS, "proxy"):
            self._listen(kind)
        eventlet.spawn(self._updates)
        eventlet.sleep(0)
        self._make_bucket()

    def serve(self) -> None:
        stopping = list[int]()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, _: stopping.append(number))
        while not stopping:
            eventlet.sleep(0.2)
            if any(thread.dead for _, _, thread in self._servers.values()):
                raise MusterError("one of Swift's server loops ended", "see the log above, then start again")
        self._close()

    def _route_to_sockets(self) -> None:
        def connect(connection: Any) -> None:
            connection._connected_time = time.time()
            connection.sock = green_socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.sock.connect(str(self._paths[connection.port]))

        bufferedhttp.BufferedHTTPConnection.connect = connect

    def _listen(self, kind: str) -> None:
        conf = self._layout.etc / f"{kind}-server.conf"
        app, _, logger, _ = swift_wsgi.init_request_processor(str(conf), f"{kind}-server", verbose=True)
        self._logger = logger
        if kind == "proxy":
            # Without reuse_port=False eventlet would share a taken port silently.
            listener = eventlet.listen(("127.0.0.1", self._layout.port), backlog=1024, reuse_port=False)
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            protocol = swift_wsgi.SwiftHttpProtocol
        else:
            path = self._paths[PORTS[kind]]
            path.unlink(missing_ok=True)
            listener = eventlet.listen(str(path), family=socket.AF_UNIX, backlog=1024)
            protocol = _UnixProtocol
        pool = eventlet.GreenPool(1024)
        thread = eventlet.spawn(
            wsgi.server,
            listener,
            app,
            swift_wsgi.NullLogger(),
            custom_pool=pool,
            protocol=protocol,
            socket_timeout=60,
            capitalize_response_headers=False,
            url_length_limit=16384,
            log_output=False,
        )
        self._servers[kind] = (listener, pool, thread)

    def _updates(self) -> None:
        """Bring container listings up to date that could not be written at once (a kill between the two)."""
        from swift.obj.updater import ObjectUpdater

        layout = self._layout
        device = layout.objects / "d1"
        folders = {"devices": layout.objects, "swift_dir": layout.etc, "recon_cache_path": layout.run}
        conf = {"mount_check": "false", "concurrency": "1", "node_timeout": "60", "conn_timeout": "10"}
        conf |= {name: str(folder) for name, folder in folders.items()}
        while True:
            if any(any(folder.iterdir()) for folder in device.glob("async_pending*")):
                try:
                    ObjectUpdater(conf, self._logger).object_sweep(str(device))
                except Exception as error:  # the sweep comes again in five seconds
                    print("listing update:", repr(error), file=sys.stderr, flush=True)
            eventlet.sleep(5)

    def _make_bucket(self) -> None:
        layout = self._layout
        endpoint = f"http://127.0.0.1:{layout.port}"
        url = sign_url("PUT", f"{endpoint}/{layout.bucket}", {}, 60, layout.region, layout.access)
        connection = http.client.HTTPConnection("127.0.0.1", layout.port, timeout=30)
        try:
            connection.request("PUT", url.removeprefix(endpoint), headers={"Content-Length": "0"})
            answer = connection.getresponse()
            text = answer.read()
        except OSError as error:
            raise MusterError(f"the S3 server does not answer itself: {error}", "see the log above") from None
        finally:
            connection.close()
        if answer.status != 200 and b"BucketAlready" not in text:
            refusal = f"{answer.status} {text[:200]!r}"
            raise MusterError(f"cannot make the bucket {layout.bucket}: {refusal}", "see the log above")

    def _close(self) -> None:
        """No new clients; those in flight get a few seconds."""
        self._servers["proxy"][0].close()
        end = time.time() + _GRACE_SECONDS
        while any(self._servers[kind][1].running() for kind in PORTS) and time.time() < end:
            eventlet.sleep(0.05)
        for path in self._paths.values():
            path.unlink(missing_ok=True)
        if self._sockets != self._layout.run:
            shutil.rmtree(self._sockets, ignore_errors=True)


Environ = dict[str, Any]
StartResponse = Callable[..., Any]
App = Callable[[Environ, StartResponse], Iterable[bytes]]

_FORBIDDEN = "403 Forbidden"
_BAD = "400 Bad Request"
_FUTURE_SECONDS = 900
_WRITE_SECONDS = 30


class Refusal(Exception):
    """HTTP status, S3 error code, text."""

    def __init__(self, status: str, code: str, text: str) -> None:
        self.status, self.code, self.text = status, code, text


class SignatureGuard:
    """Lets through only requests that carry exactly one SigV4 signature and mean one thing.

    Refused: unsigned requests, SigV2 and Swift's native API; query parameters given twice; Content-Length together
    with Transfer-Encoding (the signed length would not bind); pre-signed URLs dated in the future; a checksum in the
    query that differs from the header's. Writes with `If-None-Match` to one key go one at a time, so one racer wins.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        self._writes = WeakValueDictionary[str, Any]()  # semaphores of keys that are written now

    def __call__(self, env: Environ, start: StartResponse) -> Iterable[bytes]:
        if env["PATH_INFO"] == "/healthcheck" and env["REQUEST_METHOD"] in ("GET", "HEAD"):
            return self._app(env, start)
        try:
            _check(env)
            if env["REQUEST_METHOD"] in ("PUT", "POST") and env.get("HTTP_IF_NONE_MATCH"):
                return self._alone(env, start)
        except Refusal as refusal:
            text = f"<Error><Code>{refusal.code}</Code><Message>{refusal.text}</Message></Error>"
            body = f'<?xml version="1.0" encoding="UTF-8"?>\n{text}'.encode()
            headers = [("Content-Type", "application/xml"), ("Content-Length", str(len(body))), ("Connection", "close")]
            start(refusal.status, headers)
            return [body]
        return self._app(env, start)

    def _alone(self, env: Environ, start: StartResponse) -> Iterable[bytes]:
        semaphore = self._writes.setdefault(env["PATH_INFO"], Semaphore())
        if not semaphore.acquire(timeout=_WRITE_SECONDS):
            raise Refusal("409 Conflict", "ConditionalRequestConflict", "Another write is under way")
        try:
            parts: Any = self._app(env, start)
            with closing(parts) if hasattr(parts, "close") else nullcontext():
                return [b"".join(parts)]
        finally:
            semaphore.release()


def _check(env: Environ) -> None:
    pairs = parse_qsl(env.get("QUERY_STRING", ""), keep_blank_values=True, encoding="latin-1")
    query = dict(pairs)
    presigned = "X-Amz-Signature" in query and "X-Amz-Credential" in query
    in_header = env.get("HTTP_AUTHORIZATION", "").startswith("AWS4-HMAC-SHA256 ")
    if presigned == in_header:
        raise Refusal(_FORBIDDEN, "AccessDenied", "Exactly one SigV4 signature is needed")
    if len(query) != len(pairs):
        raise Refusal(_BAD, "InvalidArgument", "A query parameter is given twice")
    if env.get("HTTP_TRANSFER_ENCODING") and env.get("CONTENT_LENGTH"):
        raise Refusal(_BAD, "InvalidRequest", "Transfer-Encoding with Content-Length")
    if not presigned:
        return
    try:
        signed_at = timegm(time.strptime(query.get("X-Amz-Date", ""), "%Y%m%dT%H%M%SZ"))
    except ValueError:
        raise Refusal(_FORBIDDEN, "AccessDenied", "X-Amz-Date is not a date") from None
    if signed_at > time.time() + _FUTURE_SECONDS:
        raise Refusal(_FORBIDDEN, "AccessDenied", "Request is not yet valid")
    # Some SDKs sign x-amz-checksum-* in the query, where Swift would not look.
    for name, value in query.items():
        if name.lower().startswith("x-amz-checksum-"):
            header = "HTTP_" + name.upper().replace("-", "_")
            if env.setdefault(header, value) != value:
                raise Refusal(_BAD, "InvalidRequest", "Two different checksums")


class LocalMemcache:
    """The few memcache calls Swift's proxy makes, answered in this process: two look-ups less per request."""

    _ENTRIES = 10_000

    def __init__(self, app: App) -> None:
        self._app = app
        self._entries: dict[str, tuple[str, float]] = {}

    def __call__(self, env: Environ, start: StartResponse) -> Iterable[bytes]:
        env["swift.cache"] = self
        return self._app(env, start)

    def get(self, key: str, raise_on_error: bool = False) -> Any:
        value, end = self._entries.get(key, ("null", 0.0))
        return json.loads(value) if not end or end > now() else None

    def set(self, key: str, value: Any, serialize: bool = True, time: float = 0, **_: Any) -> None:
        if len(self._entries) >= self._ENTRIES:
            self._entries.clear()
        self._entries[key] = (json.dumps(value), now() + time if time else 0.0)

    def delete(self, key: str, server_key: str | None = None) -> None:
        self._entries.pop(key, None)


def guard_factory(global_conf: Mapping[str, str], **local: str) -> Callable[[App], SignatureGuard]:
    return SignatureGuard


def cache_factory(global_conf: Mapping[str, str], **local: str) -> Callable[[App], LocalMemcache]:
    return LocalMemcache
