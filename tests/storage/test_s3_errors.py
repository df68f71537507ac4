"""Refusals of S3 servers by their meaning: what AWS, R2, B2, MinIO and Ceph answer, played by a fake endpoint."""

import logging
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from protocol.errors import ConfigError, MusterError, UnreachableError
from storage.keys import MissingObjectError
from storage.transfers import TicketRefusedError, download, upload
from tests.storage.mirror import NEAR, mirror, send
from tests.storage.refusals import DATA, KEY, LISTING, Refusal, bucket_at, ticket

NO_BUCKET = [
    Refusal("AWS", 404, "NoSuchBucket", "The specified bucket does not exist"),
    Refusal("R2", 404, "NoSuchBucket", "The specified bucket does not exist."),
    Refusal("MinIO", 404, "NoSuchBucket", "The specified bucket does not exist"),
    Refusal("Ceph", 404, "NoSuchBucket", ""),
]
NOT_IMPLEMENTED = [
    Refusal("B2", 501, "NotImplemented", "A header you provided implies functionality that is not implemented."),
    Refusal("R2", 501, "NotImplemented", "PutObject ChecksumSHA256 not implemented"),
    Refusal("Ceph", 501, "NotImplemented", "UnknownError"),
]
WRONG_KEY = [
    Refusal("AWS", 403, "InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist in our records."),
    Refusal("AWS", 403, "SignatureDoesNotMatch", "The request signature we calculated does not match"),
    Refusal("MinIO", 403, "RequestTimeTooSkewed", "The difference between the request time and the server's time"),
    Refusal("B2", 401, "UnauthorizedAccess", "bucket is not authorized: muster"),
    Refusal("R2", 401, "Unauthorized", "Unauthorized"),
    Refusal("AWS", 400, "AuthorizationHeaderMalformed", "the region us-east-1 is wrong; expecting eu-central-1"),
    Refusal("AWS", 400, "ExpiredToken", "The provided token has expired."),
]
FULL = [
    Refusal("Ceph", 403, "QuotaExceeded", "Ceph says no more"),
    Refusal("B2", 403, "AccessDenied", "Cannot upload files, storage cap exceeded. See the Caps page"),
]
DENIED = Refusal("AWS", 403, "AccessDenied", "User is not authorized to perform: s3:ListBucket")
TEMPORARY = [
    Refusal("AWS", 503, "SlowDown", "Please reduce your request rate."),
    Refusal("B2", 500, "InternalError", "An internal error occurred"),
    Refusal("AWS", 400, "RequestTimeout", "Your socket connection to the server was not read from or written to"),
    Refusal("AWS", 400, "BadDigest", "The SHA256 you specified did not match the calculated checksum."),
    Refusal("MinIO", 507, "XMinioStorageFull", "Storage backend has reached its minimum free drive threshold."),
    Refusal("R2", 522, "Cloudflare", "Connection timed out"),
]


def named(refusals: list[Refusal]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("refusal", refusals, ids=[f"{one.server} {one.code}" for one in refusals])


@named(NO_BUCKET)
def test_a_missing_bucket_is_no_missing_object(refusal: Refusal) -> None:
    with mirror(refusal.answer) as url:
        bucket = bucket_at(url)
        for call in (lambda: bucket.get(KEY), lambda: bucket.size(KEY), lambda: bucket.put(KEY, DATA)):
            with pytest.raises(ConfigError, match="has no bucket muster"):
                call()
        with pytest.raises(UnreachableError, match="NoSuchBucket"):
            download(f"{url}/muster/{KEY}", KEY, 100, NEAR)


@named(NOT_IMPLEMENTED)
def test_what_a_server_does_not_implement_is_not_retried(refusal: Refusal) -> None:
    began = time.monotonic()
    with mirror(refusal.answer) as url:
        with pytest.raises(MusterError, match="does not implement") as caught:
            bucket_at(url).put(KEY, DATA)
        assert not isinstance(caught.value, UnreachableError)
        assert refusal.message in str(caught.value)
        with pytest.raises(MusterError, match="NotImplemented") as caught:
            upload(ticket(url), DATA, NEAR)
        assert not isinstance(caught.value, (TicketRefusedError, UnreachableError))
    assert time.monotonic() - began < 20


@named(WRONG_KEY)
def test_a_refused_key_is_told_in_the_servers_words(refusal: Refusal) -> None:
    with mirror(refusal.answer) as url:
        for call in (lambda: bucket_at(url).get(KEY), lambda: bucket_at(url).put(KEY, DATA)):
            with pytest.raises(ConfigError) as caught:
                call()
            assert refusal.message in str(caught.value)
            assert "clock" in str(caught.value)
        with pytest.raises(UnreachableError, match=refusal.code):
            download(f"{url}/muster/{KEY}", KEY, 100, NEAR)


@named(TEMPORARY)
def test_a_failing_server_is_unreachable_with_its_words(refusal: Refusal) -> None:
    with mirror(refusal.answer) as url:
        with pytest.raises(UnreachableError, match=refusal.message):
            bucket_at(url).get(KEY)
        with pytest.raises(UnreachableError, match=refusal.message[:20]):
            upload(ticket(url), DATA, NEAR)


@named(FULL)
def test_a_full_bucket_is_no_wrong_key(refusal: Refusal) -> None:
    with mirror(refusal.answer) as url, pytest.raises(MusterError, match=r"refuses to store .*; make room") as caught:
        bucket_at(url).put(KEY, DATA)
    assert not isinstance(caught.value, (ConfigError, UnreachableError))


def test_without_the_right_to_list_403_is_a_missing_object(caplog: pytest.LogCaptureFixture) -> None:
    with mirror(DENIED.answer) as url, caplog.at_level(logging.WARNING):
        bucket = bucket_at(url)
        assert bucket.size(KEY) is None
        with pytest.raises(MissingObjectError):
            bucket.get(KEY)
        with pytest.raises(ConfigError, match="refuses to store"):
            bucket.put(KEY, DATA)
    assert [record.message.count("grant it s3:ListBucket") for record in caplog.records] == [1], "once"


def test_with_the_right_to_list_403_is_a_refusal() -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        if "list-type=2" in handler.path:
            send(handler, 200, LISTING)
        else:
            DENIED.answer(handler)

    with mirror(answer) as url:
        for call in (lambda: bucket_at(url).size(KEY), lambda: bucket_at(url).get(KEY)):
            with pytest.raises(ConfigError, match="refuses to"):
                call()


def test_the_certificates_of_the_environment_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
    assert bucket_at("https://s3.example")._client._endpoint.http_session._verify == str(tmp_path / "authority.pem")
