"""S3 servers as strangers run them, and certificates of a company's own authority."""

import hashlib
import json
import ssl
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import httpx
import pytest

from chain.rpc import FailoverProvider
from cli.diagnose.checks import bucket, judged
from protocol.errors import ConfigError, MusterError, UnreachableError
from protocol.http.reach import ANYWHERE
from protocol.http.transport import bounded_transport, tls_context
from runtime.signed_client import SignedClient
from storage.keys import MissingObjectError, object_key
from storage.s3 import Bucket
from storage.transfers import TicketRefusedError, download, http_client, upload
from tests.cli.muster import s3_settings
from tests.conftest import CHAIN_ID
from tests.outside.lines import Handler, Line
from tests.protocol.http.authority import make_authority
from tests.storage.mirror import NEAR, Answer, mirror, send
from tests.storage.refusals import DATA, KEY, Refusal, bucket_at, ticket


def body_of(handler: BaseHTTPRequestHandler) -> bytes:
    return handler.rfile.read(int(handler.headers.get("Content-Length") or 0))


def counted(answer: Answer, requests: list[str]) -> Answer:
    """`answer`, which also notes the methods of requests."""

    def noted(handler: BaseHTTPRequestHandler) -> None:
        requests.append(handler.command)
        answer(handler)

    return noted


def puts(url: str) -> list[Callable[[], bool]]:
    """DATA stored with the bucket's key, and with a ticket."""
    return [lambda: bucket_at(url).put(KEY, DATA), lambda: upload(ticket(url), DATA, NEAR)]


def _redirect(line: Line, folder: Path) -> None:
    given = line["input"]["every answer"]
    target = given["Location"].rstrip("…")

    def answer(handler: BaseHTTPRequestHandler) -> None:
        body_of(handler)
        page = b"" if handler.command == "HEAD" else given["body"].encode()
        send(handler, given["status"], page, Location=target)

    calls: list[Callable[[Bucket], object]] = [
        lambda bucket: bucket.put(KEY, DATA),
        lambda bucket: bucket.get(KEY),
        lambda bucket: bucket.size(KEY),
        lambda bucket: list(bucket.list("shards/")),
    ]
    with mirror(answer) as url:
        for call in calls:
            with pytest.raises(ConfigError) as caught:
                call(bucket_at(url))
            assert f"redirects to {target} ({given['status']}); set the endpoint" in str(caught.value)
            assert "\n" not in str(caught.value)
        settings = folder / "s3.json"
        settings.write_text(json.dumps(s3_settings(folder, url)))
        found = judged("s3", lambda: bucket(settings))
    assert found.line().startswith(f"FAILED  s3           S3 at {url} redirects to {target}")


def _forbidden(line: Line, folder: Path) -> None:
    """Without the right to list, S3 answers 403 for what is not there."""
    given, stored = line["input"], list[bytes]()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        data = body_of(handler)
        if handler.command == "PUT":
            stored.append(data)
            send(handler, given["PUT"])
        else:
            Refusal("AWS", given["HEAD/GET of what is not there"], "AccessDenied", "Access Denied").answer(handler)

    data = bytes(5 << 20)
    key = object_key("shards", hashlib.sha256(data).digest())
    with mirror(answer) as url:
        bucket = bucket_at(url)
        assert bucket.size(key) is None
        with pytest.raises(MissingObjectError):
            bucket.get(key)
        assert bucket.put(key, data)
    assert stored == [data]


def _permanent(line: Line, folder: Path) -> None:
    given, requests = line["input"]["PUT"], list[str]()
    refusal = Refusal("Ceph", given["status"], given["code"], "A header implies functionality that is not implemented")
    with mirror(counted(refusal.answer, requests)) as url:
        for call in puts(url):
            with pytest.raises(
                MusterError, match=r"does not implement .*If-None-Match and SHA-256 checksums"
            ) as caught:
                call()
            assert not isinstance(caught.value, (UnreachableError, TicketRefusedError)), "these are tried again"
    assert requests == ["PUT", "PUT"]


def _reason(line: Line, folder: Path) -> None:
    given = line["input"]["PUT"]
    refusal = Refusal("", given["status"], "InvalidRequest", given["message"])
    with mirror(refusal.answer) as url:
        for call in puts(url):
            with pytest.raises(MusterError) as caught:
                call()
            assert given["message"] in str(caught.value)


def _no_bucket(line: Line, folder: Path) -> None:
    given = line["input"]["GET"]
    refusal = Refusal("", given["status"], given["code"], "The specified bucket does not exist")
    calls: list[Callable[[Bucket], object]] = [lambda bucket: bucket.get(KEY), lambda bucket: bucket.size(KEY)]
    with mirror(refusal.answer) as url:
        for call in calls:
            with pytest.raises(ConfigError, match="has no bucket muster"):
                call(bucket_at(url))


def _put_redirect(line: Line, folder: Path) -> None:
    """A signature is for one host: the ticket would be refused elsewhere."""
    given, requests = line["input"]["PUT"], list[str]()
    target = "https://muster.s3.eu-west-3.amazonaws.com/"

    def answer(handler: BaseHTTPRequestHandler) -> None:
        body_of(handler)
        send(handler, given["status"], Location=target)

    with mirror(counted(answer, requests)) as url:
        with pytest.raises(UnreachableError, match="the bucket is new") as caught:
            upload(ticket(url), DATA, NEAR)
        assert f"redirects the upload to {target}" in str(caught.value)
    assert requests == ["PUT"]


def _authority(line: Line, folder: Path) -> None:
    """The setting is honoured by all clients, and without it none trusts the server."""
    (setting,) = line["input"]
    certificate, key = make_authority(folder)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)

    def answer(handler: BaseHTTPRequestHandler) -> None:
        if handler.command != "POST":
            send(handler, 200, DATA)
            return
        asked = json.loads(body_of(handler))
        block = {"number": "0x1", "timestamp": "0x1"}
        answers = [
            {"id": one["id"], "result": hex(CHAIN_ID) if one["method"] == "eth_chainId" else block}
            for one in (asked if isinstance(asked, list) else [asked])
        ]
        send(handler, 200, json.dumps(answers if isinstance(asked, list) else answers[0]).encode())

    clients: list[Callable[[str], object]] = [
        lambda url: httpx.Client(transport=bounded_transport(), trust_env=False).get(url),
        lambda url: FailoverProvider([url], CHAIN_ID, patience=0.1).check(),
        lambda url: SignedClient(url).request("GET", "/"),
        lambda url: download(f"{url}/{KEY}", KEY, len(DATA), http_client(ANYWHERE)),
        lambda url: bucket_at(url).get(KEY),
    ]
    with mirror(answer, tls) as url, pytest.MonkeyPatch.context() as environment:
        for trusted in (False, True):
            environment.delenv(setting, raising=False)
            if trusted:
                environment.setenv(setting, str(certificate))
            tls_context.cache_clear()
            try:
                for client in clients if trusted else clients[:2]:
                    if trusted:
                        client(url)
                        continue
                    with pytest.raises((httpx.ConnectError, UnreachableError), match="CERTIFICATE_VERIFY_FAILED"):
                        client(url)
            finally:
                tls_context.cache_clear()


HANDLERS: dict[str, Handler] = {
    "s3-redirect-kills-the-process": _redirect,
    "s3-403-for-missing": _forbidden,
    "s3-permanent-taken-for-temporary": _permanent,
    "s3-reason-lost": _reason,
    "s3-no-such-bucket-as-missing": _no_bucket,
    "s3-307-on-put": _put_redirect,
    "proxy-and-ca-of-half-the-clients": _authority,
}
