"""The pool's bucket at any S3-compatible endpoint, and pre-signed URLs for those who hold no key."""

import base64
import hashlib
import logging
import math
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import boto3
from botocore.auth import S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.exceptions import BotoCoreError, ClientError
from pydantic import ConfigDict, Field, field_validator

from protocol.api.work import UploadTicket
from protocol.encoding import Document, load_document
from protocol.errors import ConfigError, IntegrityError, MusterError, UnreachableError, printable
from protocol.files import check_private
from storage.keys import MissingObjectError, check_content, check_document_path, parse_key
from storage.transfers import is_temporary

log = logging.getLogger("muster.storage")
T = TypeVar("T")
MAX_EXPIRES = 3600
MAX_OBJECT_BYTES = 1 << 30
# Before a larger object is sent, the bucket is asked whether it has it; a smaller one is sent and refused.
CHECK_FIRST_BYTES = 4 << 20
# Pages without a key, and seconds with nothing else, after which a listing is given up.
MAX_EMPTY_PAGES, EMPTY_SECONDS = 64, 30.0
_OF_THE_KEY = ("AuthorizationHeaderMalformed", "ExpiredToken", "InvalidToken")  # codes of AWS, with status 400


class AccessKey(Document):
    """An S3 access key; the secret never appears in a repr or a log."""

    model_config = ConfigDict(extra="ignore")

    access_key: str = Field(min_length=1)
    secret_key: str = Field(min_length=1, repr=False)


class S3Settings(Document):
    """Where the bucket is. `credentials` is a JSON file {"access_key", "secret_key"} (more fields are ignored) with
    mode 0600. `public_endpoint`, if set, is the address that pre-signed URLs carry."""

    endpoint: str
    bucket: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$")
    region: str = "us-east-1"
    credentials: Path
    public_endpoint: str = ""

    @field_validator("endpoint", "public_endpoint")
    @classmethod
    def _url(cls, value: str) -> str:
        parts = urlsplit(value)
        bare = parts.scheme in ("http", "https") and parts.hostname and parts.path in ("", "/") and not parts.query
        if value and not bare:
            raise ValueError("must look like https://host or http://host:port")
        return value.rstrip("/")

    def access(self) -> AccessKey:
        """Read the access key. Raises ConfigError if the file is missing, readable by others, or malformed."""
        check_private(self.credentials, "the S3 access key ")
        return load_document(self.credentials, AccessKey)


# Pre-signed URLs


class Presigner:
    """Signs URLs for one bucket (botocore's SigV4 in the query); makes no request."""

    def __init__(self, settings: S3Settings, access: AccessKey | None = None) -> None:
        self.settings, self.access = settings, access or settings.access()

    def presign_put(self, key: str, size: int, sha256: bytes, expires: int = 900) -> UploadTicket:
        """Return a ticket to upload exactly `size` bytes with that SHA-256 under `key`, once, for `expires` seconds."""
        headers = {
            "content-length": str(size),
            "if-none-match": "*",
            "x-amz-checksum-sha256": base64.b64encode(sha256).decode(),
        }
        until = int(time.time()) + expires
        return UploadTicket(url=self._sign("PUT", key, headers, expires), headers=headers, expires=until)

    def presign_get(self, key: str, expires: int = 900) -> str:
        """Return a URL that reads `key` for `expires` seconds."""
        return self._sign("GET", key, {}, expires)

    def _sign(self, method: str, key: str, headers: Mapping[str, str], expires: int) -> str:
        endpoint = self.settings.public_endpoint or self.settings.endpoint
        url = f"{endpoint}/{self.settings.bucket}/{parse_key(key)}"
        return sign_url(method, url, headers, expires, self.settings.region, self.access)


def sign_url(method: str, url: str, headers: Mapping[str, str], expires: int, region: str, access: AccessKey) -> str:
    """Return `url` with a signature over method, host, path, `headers` and the time, valid for `expires` seconds."""
    if not 1 <= expires <= MAX_EXPIRES:
        raise ValueError(f"a URL is valid for 1 to {MAX_EXPIRES} seconds, not {expires}")
    request = AWSRequest(method, url, headers=headers)
    S3SigV4QueryAuth(Credentials(access.access_key, access.secret_key), "s3", region, expires).add_auth(request)
    return str(request.url)


# The bucket


class Bucket(Presigner):
    """One bucket of content-addressed objects, for holders of its access key (orchestrator, trainer). Thread-safe.

    Raises UnreachableError when the server does not answer or fails (after three tries within about 30 s), ConfigError
    when it refuses the key, lacks the bucket or redirects, MusterError with the server's words for other refusals, and
    MissingObjectError and IntegrityError as named.
    """

    def __init__(self, settings: S3Settings, access: AccessKey | None = None) -> None:
        super().__init__(settings, access)
        self._client: Any = boto3.client(
            "s3",
            endpoint_url=settings.endpoint,
            aws_access_key_id=self.access.access_key,
            aws_secret_access_key=self.access.secret_key,
            region_name=settings.region,
            verify=os.environ.get("SSL_CERT_FILE") or None,  # as protocol.http.transport does
            config=Config(
                signature_version="s3v4",
                s3={"addressing_style": "path"},
                connect_timeout=5,
                read_timeout=30,
                retries={"total_max_attempts": 3, "mode": "standard"},
                response_checksum_validation="when_required",
                max_pool_connections=16,
            ),
        )
        # Ahead of botocore's own handler, which recurses: its request for the bucket's region is redirected too.
        self._client.meta.events.register_first("needs-retry.s3", self._refuse_redirect)
        self._listing_allowed: bool | None = None

    def put(self, key: str, data: bytes) -> bool:
        """Store `data` under the key that names it; return True if it was not there before, False if it was."""
        check_content(key, data)
        if len(data) > CHECK_FIRST_BYTES and self.size(key) == len(data):
            return False
        named = parse_key(key)
        return self._put(key, data, named.digest if named.is_sha256 else hashlib.sha256(data).digest())

    def put_first(self, document_path: str, data: bytes) -> bool:
        """Store a signed document at its path unless something is there; return whether it was stored. Of two
        simultaneous writers one gets False."""
        return self._put(check_document_path(document_path), data, hashlib.sha256(data).digest())

    def get(self, key: str, limit: int = MAX_OBJECT_BYTES) -> bytes:
        """Return the object's bytes (at most `limit`), checked against the hash in its key."""
        parse_key(key)
        data = self._read(key, limit)
        if data is None:
            raise MissingObjectError(f"no object {key} in bucket {self.settings.bucket}")
        check_content(key, data)
        return data

    def read_document(self, document_path: str, limit: int) -> bytes | None:
        """Return what is at the path of a signed document (at most `limit` bytes), None if nothing; its signature is
        the caller's to check."""
        return self._read(check_document_path(document_path), limit)

    def size(self, key: str) -> int | None:
        """Return the object's size in bytes, None if there is no such object in the bucket."""
        parse_key(key)
        named = {"Bucket": self.settings.bucket, "Key": key}
        answer = self._read_request(f"look for {key}", lambda: self._client.head_object(**named))
        if answer is None:
            self._may_list_bucket()  # a HEAD answer has no body to say that the whole bucket is missing
            return None
        return int(answer["ContentLength"])

    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        """Yield every key under `prefix` (such as `shards/`) that comes after `after`, in order.

        Raises UnreachableError for a listing without an end and without keys: the caller only gains control with a key.
        """
        query = {"Bucket": self.settings.bucket, "Prefix": prefix} | ({"StartAfter": after} if after else {})
        pages = iter(self._client.get_paginator("list_objects_v2").paginate(**query))
        empty, deadline = 0, math.inf
        while (page := self._request(f"list {prefix}", lambda: next(pages, None))) is not None:
            keys = [entry["Key"] for entry in page.get("Contents", ())]
            yield from keys
            if keys:
                empty, deadline = 0, math.inf
                continue
            empty, now = empty + 1, time.monotonic()
            deadline = min(deadline, now + EMPTY_SECONDS)
            if page.get("IsTruncated") and (empty > MAX_EMPTY_PAGES or now > deadline):
                raise UnreachableError(
                    f"S3 at {self.settings.endpoint} lists {prefix} without an end: {empty} pages without a key",
                    "see its log, then retry",
                )

    def _put(self, key: str, data: bytes, sha256: bytes) -> bool:
        checksum = base64.b64encode(sha256).decode()
        options = {"Bucket": self.settings.bucket, "Key": key, "IfNoneMatch": "*", "ChecksumSHA256": checksum}
        return self._request(f"store {key}", lambda: self._client.put_object(Body=data, **options), (412,)) is not None

    def _read(self, key: str, limit: int) -> bytes | None:
        def read() -> bytes:
            answer = self._client.get_object(Bucket=self.settings.bucket, Key=key)
            if answer["ContentLength"] > limit:
                raise IntegrityError(f"{key} has {answer['ContentLength']} bytes, at most {limit} are expected")
            body: bytes = answer["Body"].read()
            return body

        return self._read_request(f"read {key}", read)

    def _read_request(self, what: str, request: Callable[[], T]) -> T | None:
        """Return the answer, None for a missing object: 404, or 403 where the key may not list the bucket."""
        try:
            return self._request(what, request, (404,))
        except _AccessDeniedError:
            if self._may_list_bucket():
                raise
            return None

    def _may_list_bucket(self) -> bool:
        """Return whether the key may list the bucket. If not, S3 answers 403 for objects that do not exist."""
        if self._listing_allowed is None:
            try:
                self._request("list", lambda: self._client.list_objects_v2(Bucket=self.settings.bucket, MaxKeys=1))
                self._listing_allowed = True
            except _AccessDeniedError as error:
                self._listing_allowed = False
                log.warning(
                    "%s: the access key may not list bucket %s, so that 403 counts as a missing object; "
                    "grant it s3:ListBucket (%s)",
                    self.settings.endpoint,
                    self.settings.bucket,
                    error.what,
                )
        return self._listing_allowed

    def _refuse_redirect(self, response: tuple[Any, Any] | None = None, **_other: Any) -> None:
        if response is None or response[0].status_code not in (301, 302, 303, 307, 308):
            return
        answer, parsed = response
        target = printable(answer.headers.get("Location", "") or parsed.get("Error", {}).get("Endpoint", "") or "?")
        region = answer.headers.get("x-amz-bucket-region", "")
        hint = f"set region = {printable(region)!r}" if region else "set the endpoint, with its scheme, to that address"
        raise ConfigError(f"S3 at {self.settings.endpoint} redirects to {target} ({answer.status_code})", hint)

    def _request(self, action: str, request: Callable[[], T], expected: Collection[int] = ()) -> T | None:
        """Return the answer, or None for a refusal with one of the `expected` statuses."""
        server = f"S3 at {self.settings.endpoint}"
        try:
            return request()
        except ClientError as error:
            raw = error.response.get("Error", {})
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            code = str(raw.get("Code", ""))
            reason = printable(f"{status} {code}: {raw.get('Message', '')}".rstrip(": "), 300)
            if code == "NoSuchBucket":
                raise ConfigError(f"{server} has no bucket {self.settings.bucket} ({reason})", "create it") from None
            if status in expected:
                return None
            if is_temporary(status, reason):
                raise UnreachableError(f"{server} cannot {action} ({reason})", "see its log, then retry") from None
            if status == 501:
                hint = "use an endpoint that takes If-None-Match and SHA-256 checksums"
                raise MusterError(f"{server} does not implement what it takes to {action} ({reason})", hint) from None
            if "quota" in reason.lower() or "cap exceeded" in reason:
                raise MusterError(
                    f"{server} refuses to {action} ({reason})", "make room in it, or raise its limit"
                ) from None
            if status in (401, 403) or code in _OF_THE_KEY:
                hint = f"check {self.settings.credentials}, the region and this machine's clock"
                # HEAD answers have no body, and so no code but the status.
                kind = _AccessDeniedError if code in ("AccessDenied", "403", "Forbidden") else ConfigError
                raise kind(f"{server} refuses to {action} ({reason})", hint) from None
            raise MusterError(f"{server} does not {action} ({reason})", "see the bucket's configuration") from None
        except (BotoCoreError, OSError) as error:
            reason = " ".join(str(error).split())[:200]
            raise UnreachableError(f"{server} does not answer: {reason}", "start it or correct the endpoint") from None


class _AccessDeniedError(ConfigError):
    """The key is known, and may not do that."""
