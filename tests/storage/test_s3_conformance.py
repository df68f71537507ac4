"""What muster relies on an S3 server to refuse, asked of the real one over raw HTTP."""

import base64
import contextlib
import hashlib
import http.client
import os
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest

from protocol.api.work import UploadTicket
from storage.keys import object_key
from storage.s3 import Bucket, sign_url
from tests.localnet.services.running import ServiceProcess, settings_of

DATA = os.urandom(20_000)
OTHER = os.urandom(20_000)
SHA = hashlib.sha256(DATA).digest()
KEY = object_key("rollouts", SHA)


def ask(
    service: ServiceProcess, method: str, url: str, headers: Mapping[str, str] | None = None, body: bytes | None = None
) -> tuple[int, bytes]:
    """One request with exactly these headers; 0 if the server cuts the connection."""
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=20)
    try:
        connection.putrequest(method, url.removeprefix(service.url), skip_accept_encoding=True)
        for name, value in (headers or {}).items():
            connection.putheader(name, value)
        if body is not None and "content-length" not in (headers or {}) and "transfer-encoding" not in (headers or {}):
            connection.putheader("content-length", str(len(body)))
        connection.endheaders()
        with contextlib.suppress(OSError):
            connection.send(body or b"")
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException):
        return 0, b""
    finally:
        connection.close()


@pytest.fixture
def ticket(bucket: Bucket) -> UploadTicket:
    bucket._client.delete_object(Bucket="muster", Key=KEY)
    return bucket.presign_put(KEY, len(DATA), SHA)


def chunked(data: bytes) -> bytes:
    return b"%x\r\n" % len(data) + data + b"\r\n0\r\n\r\n"


@pytest.mark.parametrize(
    ("without", "changed", "body"),
    [
        ("content-length", {"transfer-encoding": "chunked"}, chunked(DATA)),
        ("if-none-match", {}, DATA),
        ("x-amz-checksum-sha256", {}, DATA),
        ("", {}, OTHER),
        ("", {"x-amz-checksum-sha256": base64.b64encode(hashlib.sha256(OTHER).digest()).decode()}, OTHER),
        ("", {"content-length": str(len(DATA) - 1)}, DATA[:-1]),
        ("", {"content-length": str(len(DATA) + 1)}, DATA + b"x"),
        ("", {"transfer-encoding": "chunked"}, chunked(OTHER)),
        ("", {"x-amz-copy-source": f"/muster/{object_key('shards', SHA)}"}, DATA),
        ("", {"x-amz-acl": "public-read"}, DATA),
    ],
)
def test_what_differs_from_the_ticket_is_refused(
    s3: ServiceProcess, bucket: Bucket, ticket: UploadTicket, without: str, changed: dict[str, str], body: bytes
) -> None:
    bucket.put(object_key("shards", SHA), DATA)
    headers = {name: value for name, value in ticket.headers.items() if name != without} | changed
    status, text = ask(s3, "PUT", ticket.url, headers, body)
    assert status == 0 or 400 <= status < 500, (status, text)
    assert bucket.size(KEY) is None


def test_nothing_opens_the_servers_log_but_that_it_is_ready(s3: ServiceProcess) -> None:
    assert s3.log.read_text().startswith(f"READY {s3.url} bucket=muster ")


def test_tampered_urls(s3: ServiceProcess, bucket: Bucket) -> None:
    bucket.put(KEY, DATA)
    good = bucket.presign_get(KEY, expires=300)
    assert ask(s3, "GET", good) == (200, DATA)
    flipped = good[:-1] + ("0" if good[-1] != "0" else "1")
    for url in (
        flipped,
        good.replace("X-Amz-Expires=300", "X-Amz-Expires=3000"),
        good + "&X-Amz-Expires=3000",
        good + "&response-content-type=text%2Fhtml",
        good[: good.index("&X-Amz-Signature")],
        good.replace(KEY, object_key("rollouts", b"x" * 32)),
        good.replace("us-east-1", "eu-west-9"),
        f"{s3.url}/muster/{KEY}",
        f"{s3.url}/muster?list-type=2",
        f"{s3.url}/",
    ):
        status, body = ask(s3, "GET", url)
        assert 400 <= status < 500, url
        assert DATA not in body


def test_overwrite_race_has_one_winner(s3: ServiceProcess, bucket: Bucket) -> None:
    """Six writers of one key with different bytes under If-None-Match: exactly one is stored."""
    access = settings_of(s3).access()
    url = sign_url("PUT", f"{s3.url}/muster/race-{os.getpid()}", {"if-none-match": "*"}, 60, "us-east-1", access)
    start, statuses = threading.Barrier(6), []

    def write(number: int) -> None:
        start.wait()
        statuses.append(ask(s3, "PUT", url, {"if-none-match": "*"}, bytes([number]) * 20_000)[0])

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(write, range(6)))
    assert sorted(statuses) == [200] + [412] * 5
