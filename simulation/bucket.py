"""An S3 bucket with the semantics that the roles rely on: a key is written once, and read as it was written.

`SimulatedBucket` takes the place of `storage.s3.Bucket`; holders of pre-signed URLs send HTTP.
"""

import base64
import hashlib
import hmac
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs

import httpx

from protocol.api.work import UploadTicket
from protocol.errors import UnreachableError
from simulation.network import Network
from simulation.scheduler import Process, Scheduler
from storage.keys import MissingObjectError, check_content, check_document_path, parse_key
from storage.s3 import MAX_OBJECT_BYTES, S3Settings

HOST = "s3"
_OWNER = "x-owner"  # the header that stands for a request signed with the access key
_TRIES, _PAUSE, _SECONDS = 3, 1.0, 30.0


class Store:
    """The server. `objects`: by key."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.objects: dict[str, bytes] = {}
        self.clock = clock
        self.secret = b"of the access key"

    def handle(self, request: httpx.Request) -> httpx.Response:
        key = request.url.path.removeprefix("/")
        if _OWNER not in request.headers and not self._signed(request, key):
            return _refusal(403, "AccessDenied", "Request has expired")
        if request.method == "PUT":
            return self._put(request, key)
        if request.method == "LIST":
            return httpx.Response(200, content="\n".join(sorted(k for k in self.objects if k.startswith(key))).encode())
        data = self.objects.get(key)
        if data is None:
            return _refusal(404, "NoSuchKey", "The specified key does not exist.")
        return _part(request, data)

    def _put(self, request: httpx.Request, key: str) -> httpx.Response:
        body = request.content
        checksum = base64.b64encode(hashlib.sha256(body).digest()).decode()
        if request.headers.get("x-amz-checksum-sha256") != checksum:
            return _refusal(400, "BadDigest", "The checksum did not match.")
        if key in self.objects:
            return _refusal(412, "PreconditionFailed", "The key exists.")
        self.objects[key] = body
        return httpx.Response(200)

    def _signed(self, request: httpx.Request, key: str) -> bool:
        query = parse_qs(request.url.query.decode())
        expires, signature = query.get("expires", ["0"])[0], query.get("signature", [""])[0]
        size = request.headers.get("content-length", "") if request.method == "PUT" else ""
        given = request.headers.get("x-amz-checksum-sha256", "")
        return self.clock() <= int(expires) and signature == self.sign(request.method, key, size, given, int(expires))

    def sign(self, method: str, key: str, size: str, checksum: str, expires: int) -> str:
        content = "\n".join((method, key, size, checksum, str(expires)))
        return hmac.new(self.secret, content.encode(), "sha256").hexdigest()


def _refusal(status: int, code: str, message: str) -> httpx.Response:
    return httpx.Response(status, content=f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode())


def _part(request: httpx.Request, data: bytes) -> httpx.Response:
    wanted = request.headers.get("range", "")
    if not wanted.startswith("bytes="):
        return httpx.Response(200, content=data)
    first = int(wanted.removeprefix("bytes=").partition("-")[0])
    if first >= len(data):
        return _refusal(416, "InvalidRange", "The range is not satisfiable.")
    headers = {"content-range": f"bytes {first}-{len(data) - 1}/{len(data)}"}
    return httpx.Response(206, headers=headers, content=data[first:])


class SimulatedBucket:
    """As `storage.s3.Bucket`, whose errors it raises."""

    network: Network
    store: Store

    def __init__(self, settings: S3Settings, access: Any = None) -> None:
        self.settings = settings

    def put(self, key: str, data: bytes) -> bool:
        check_content(key, data)
        return self._put(str(parse_key(key)), data)

    def put_first(self, document_path: str, data: bytes) -> bool:
        return self._put(check_document_path(document_path), data)

    def get(self, key: str, limit: int = MAX_OBJECT_BYTES) -> bytes:
        parse_key(key)
        answer = self._send("GET", key)
        if answer.status_code == 404:
            raise MissingObjectError(f"no object {key} in bucket {self.settings.bucket}")
        check_content(key, answer.content)
        return answer.content

    def read_document(self, document_path: str, limit: int) -> bytes | None:
        answer = self._send("GET", check_document_path(document_path))
        return None if answer.status_code == 404 else answer.content

    def size(self, key: str) -> int | None:
        parse_key(key)
        answer = self._send("GET", key)
        return None if answer.status_code == 404 else len(answer.content)

    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        keys = self._send("LIST", prefix).text.splitlines()
        yield from (key for key in keys if key > after)

    def presign_put(self, key: str, size: int, sha256: bytes, expires: int = 900) -> UploadTicket:
        checksum, until = base64.b64encode(sha256).decode(), int(time.time()) + expires
        headers = {"content-length": str(size), "if-none-match": "*", "x-amz-checksum-sha256": checksum}
        return UploadTicket(url=self._url("PUT", key, str(size), checksum, until), headers=headers, expires=until)

    def presign_get(self, key: str, expires: int = 900) -> str:
        return self._url("GET", key, "", "", int(time.time()) + expires)

    def _url(self, method: str, key: str, size: str, checksum: str, until: int) -> str:
        signature = self.store.sign(method, str(parse_key(key)), size, checksum, until)
        return f"http://{HOST}/{key}?expires={until}&signature={signature}"

    def _put(self, key: str, data: bytes) -> bool:
        checksum = base64.b64encode(hashlib.sha256(data).digest()).decode()
        return self._send("PUT", key, data, {"x-amz-checksum-sha256": checksum}).status_code == 200

    def _send(self, method: str, key: str, data: bytes = b"", headers: dict[str, str] | None = None) -> httpx.Response:
        sent, failure = (headers or {}) | {_OWNER: "1"}, ""
        timeout = {"timeout": {"connect": 5.0, "read": _SECONDS}}
        for attempt in range(_TRIES):
            request = httpx.Request(method, f"http://{HOST}/{key}", headers=sent, content=data, extensions=timeout)
            try:
                answer = self.network.exchange(request)
                answer.read()
                return answer
            except httpx.HTTPError as error:
                failure = str(error)
                time.sleep(_PAUSE * (attempt + 1))
        raise UnreachableError(f"S3 at http://{HOST} does not answer: {failure}", "start it or correct the endpoint")


def serve(network: Network, scheduler: Scheduler) -> tuple[Store, Callable[[], Process]]:
    """Start a bucket; return it, and what starts its server again after a kill."""
    store = Store(lambda: scheduler.now)
    SimulatedBucket.network, SimulatedBucket.store = network, store

    def start() -> Process:
        process = Process("s3")
        network.serve(HOST, process, store.handle)
        return process

    start()
    return store, start
