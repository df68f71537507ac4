"""Refusals of S3 servers by their meaning: what AWS, R2, B2, MinIO and Ceph answer, played by a fake endpoint."""

import logging
import re
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from protocol.errors import ConfigError, MusterError, UnreachableError
from storage.keys import MissingObjectError
from storage.transfers import download, upload
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


Expected = dict[str, tuple[type[MusterError], str]]
"""By operation: the very class of the error, and words in it, `{code}` and `{message}` being the server's."""
NO_SUCH = (ConfigError, "has no bucket muster")
KEY_IS_WRONG = (ConfigError, "{message}.*clock")
KINDS: list[tuple[list[Refusal], Expected]] = [
    # A missing bucket is no missing object.
    (NO_BUCKET, {"get": NO_SUCH, "size": NO_SUCH, "put": NO_SUCH, "download": (UnreachableError, "NoSuchBucket")}),
    (NOT_IMPLEMENTED, {
        "put": (MusterError, "does not implement.*{message}"), "upload": (MusterError, "NotImplemented"),
    }),
    (WRONG_KEY, {"get": KEY_IS_WRONG, "put": KEY_IS_WRONG, "download": (UnreachableError, "{code}")}),
    (TEMPORARY, {"get": (UnreachableError, "{message}"), "upload": (UnreachableError, "{start}")}),
    # A full bucket is no wrong key.
    (FULL, {"put": (MusterError, "refuses to store .*; make room")}),
]  # fmt: skip
EACH = [
    pytest.param(refusal, expected, id=f"{refusal.server} {refusal.code}")
    for refusals, expected in KINDS
    for refusal in refusals
]


@pytest.mark.parametrize(("refusal", "expected"), EACH)
def test_a_refusal_is_told_by_its_meaning_in_the_servers_words(refusal: Refusal, expected: Expected) -> None:
    """What no retry can mend is not retried."""
    began = time.monotonic()
    with mirror(refusal.answer) as url:
        bucket = bucket_at(url)
        calls: dict[str, Callable[[], object]] = {
            "get": lambda: bucket.get(KEY),
            "size": lambda: bucket.size(KEY),
            "put": lambda: bucket.put(KEY, DATA),
            "download": lambda: download(f"{url}/muster/{KEY}", KEY, 100, NEAR),
            "upload": lambda: upload(ticket(url), DATA, NEAR),
        }
        for name, (kind, words) in expected.items():
            message, start = re.escape(refusal.message), re.escape(refusal.message[:20])
            said = words.format(code=refusal.code, message=message, start=start)
            with pytest.raises(kind, match=said) as caught:
                calls[name]()
            assert caught.type is kind
    assert refusal in TEMPORARY or time.monotonic() - began < 20


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
