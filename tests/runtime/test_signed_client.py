"""The signed client against a real server that verifies with the guard."""

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from orchestrator.auth import NonceStore, RequestGuard
from orchestrator.db import Database, default_url
from protocol.accounts import Account
from protocol.api.base import RequestBody, ResponseBody
from protocol.api.endpoints import HEALTH, STATUS, Get, Post
from protocol.errors import IntegrityError, UnreachableError
from protocol.http.signing import AuthScope, RequestRefused
from runtime.signed_client import ClientLimits, RequestSigner, ServiceError, SignedClient
from tests.conftest import free_port
from tests.storage.mirror import drip, drip_headers, mirror, send

POOLS = "0x000000000000000000000000000000000000bEEF"
ACCOUNT = Account.create()
Answer = tuple[int, dict[str, str], bytes]


class Said(RequestBody):
    b: int = 0
    a: str = ""


class Echo(ResponseBody):
    sender: str
    path: str
    body: str


SAY: Post[Said, Echo] = Post("/v1/leases", Said, TypeAdapter(Echo))


def echo_at(path: str) -> Get[Echo]:
    return Get(path, TypeAdapter(Echo))


class EchoService:
    """Echoes at `url` who sent what; `script` may answer first."""

    def __init__(self, folder: Path) -> None:
        self.script: list[Callable[[], Answer | None]] = []
        self.requests: list[tuple[str, str, str]] = []
        self.nonces, self.url = NonceStore(Database(default_url(folder))), ""

    def __call__(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        status, headers, data = self.answer(handler.command, handler.path, list(handler.headers.items()), body)
        if status == 0:
            handler.close_connection = True
            return
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            send(handler, status, data, **headers)

    def answer(self, method: str, path: str, headers: list[tuple[str, str]], body: bytes) -> Answer:
        guard = RequestGuard(AuthScope.of(self.url, 31337, POOLS), self.nonces.use)
        try:
            sender = guard.verify(method, path, headers, body)
        except RequestRefused as error:
            return error.status, {}, json.dumps({"error": error.what, "hint": error.hint}).encode()
        self.requests.append((method, path, dict(headers)["X-Muster-Nonce"]))
        scripted = self.script.pop(0)() if self.script else None
        echo = {"sender": sender, "path": path, "body": body.decode()}
        return scripted or (200, {"Content-Type": "application/json"}, json.dumps(echo).encode())


@pytest.fixture
def service(tmp_path: Path) -> Iterator[EchoService]:
    made = EchoService(tmp_path)
    with mirror(made) as made.url:
        yield made


def signer(url: str, chain_id: int = 31337) -> RequestSigner:
    return RequestSigner(ACCOUNT, AuthScope.of(url, chain_id, POOLS))


def client(service: EchoService, **limits: Any) -> SignedClient:
    return SignedClient(service.url + "/", signer(service.url), ClientLimits(**limits))


def test_requests_arrive_as_they_were_signed(service: EchoService) -> None:
    talk = client(service)
    answer = talk.post(SAY, Said(b=1, a="ä"))
    assert answer == Echo(sender=ACCOUNT.address, path="/v1/leases", body='{"a":"ä","b":1}')
    assert talk.get(echo_at("/v1/status?q=a b%26c&n=3")).path.startswith("/v1/status?q=a")
    assert talk.get(echo_at("/v1/odd%20path/ü")).sender == ACCOUNT.address


def test_each_try_is_signed_anew(service: EchoService) -> None:
    service.script = [lambda: (503, {}, b""), lambda: (429, {"Retry-After": "0"}, b""), lambda: (0, {}, b"")]
    assert client(service).post(SAY, Said()).sender == ACCOUNT.address
    assert len({nonce for _, _, nonce in service.requests}) == 4


def test_a_refusal_is_told_once(service: EchoService) -> None:
    service.script = [lambda: (422, {}, b'{"detail": [{"msg": "bad"}]}')]
    with pytest.raises(ServiceError, match=r"answered 422.*bad") as refused:
        client(service).post(SAY, Said())
    assert refused.value.status == 422
    service.script = [lambda: (403, {}, b'{"error": "not a member", "hint": "join first"}')]
    with pytest.raises(ServiceError, match="answered 403: not a member; join first"):
        client(service).post(SAY, Said())
    service.requests.pop()
    assert len(service.requests) == 1
    service.script = [lambda: (403, {}, b'{"error": "\\u001b[2J\\nall is well", "hint": "' + b"x" * 9000 + b'"}')]
    with pytest.raises(ServiceError, match=r"answered 403: \?\[2J\?all is well; x{100}") as caught:
        client(service).post(SAY, Said())
    assert len(str(caught.value)) < 700
    wrong = SignedClient(service.url, signer(service.url, 1))
    with pytest.raises(ServiceError, match=r"answered 401: the signature is not .* chain 31337"):
        wrong.get(STATUS)
    unsigned = SignedClient(service.url)
    with pytest.raises(ServiceError, match="is missing"):
        unsigned.get(STATUS)


def test_an_unreachable_service_is_named_in_time() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    began = time.monotonic()
    with pytest.raises(UnreachableError, match=rf"{url} does not answer GET /health .*check the URL"):
        SignedClient(url, signer(url), ClientLimits(attempts=3)).get(HEALTH)
    assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    ("slow", "limits"),
    [(lambda _: time.sleep(60), {"timeout": 0.3}), (drip, {"exchange": 0.5}), (drip_headers, {"exchange": 0.5})],
    ids=["silent", "drips", "drips headers"],
)
def test_a_service_that_never_answers_or_only_drips_is_left(
    slow: Callable[[BaseHTTPRequestHandler], None], limits: dict[str, Any]
) -> None:
    began = time.monotonic()
    with mirror(slow) as url, pytest.raises(UnreachableError, match="ReadTimeout"):
        SignedClient(url, limits=ClientLimits(attempts=2, **limits)).get(HEALTH)
    assert time.monotonic() - began < 50


def test_a_service_that_asks_for_a_pause_in_no_number_is_asked_again(service: EchoService) -> None:
    service.script = [lambda: (503, {"Retry-After": "\xb2"}, b"")]
    assert client(service, attempts=2).request("GET", HEALTH.path).status_code == 200


def test_redirects_are_handed_over_not_followed(service: EchoService) -> None:
    service.script = [lambda: (307, {"Location": "http://bucket/x?sig=1"}, b"")] * 2
    answer = client(service).request("GET", "/v1/objects/x")
    assert (answer.status_code, answer.headers["location"]) == (307, "http://bucket/x?sig=1")
    with pytest.raises(IntegrityError, match="does not answer JSON"):
        client(service).get(STATUS)


def test_answers_that_are_no_answers(service: EchoService) -> None:
    service.script = [
        lambda: (200, {}, b"[" * 500_000),
        lambda: (200, {}, b"<html>"),
        lambda: (204, {}, b""),
        lambda: (200, {}, b"x" * (33 << 20)),
    ]
    talk = client(service)
    for _ in range(3):
        with pytest.raises(IntegrityError, match=rf"{service.url}/health does not answer JSON"):
            talk.get(HEALTH)
    with pytest.raises(IntegrityError, match="more than"):
        talk.get(HEALTH)
    with pytest.raises(IntegrityError, match=rf"{service.url}/health sends an invalid answer: `ok`: Field required"):
        talk.get(HEALTH)
