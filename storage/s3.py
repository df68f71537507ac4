"""Where the bucket is and which key opens it: any S3-compatible endpoint."""

import base64
import hashlib
import math
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
from storage.keys import MissingObjectError, check_content, check_place, parse_key


class AccessKey(Document):
    """An S3 access key; the secret never appears in a repr or a log."""

    model_config = ConfigDict(extra="ignore")

    access_key: str = Field(min_length=1)
    secret_key: str = Field(min_length=1, repr=False)


class S3Settings(Document):
    """`credentials` is a JSON file {"access_key", "secret_key"} (more fields are ignored) with mode 0600.

    `public_endpoint`, if set, is the address strangers reach the bucket at; pre-signed URLs carry it.
    """

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

    @property
    def outside(self) -> str:
        """The endpoint that pre-signed URLs name."""
        return self.public_endpoint or self.endpoint

    def access(self) -> AccessKey:
        """Read the access key. Raises ConfigError if the file is missing, readable by others, or not such a file."""
        check_private(self.credentials, "the S3 access key ")
        return load_document(self.credentials, AccessKey)


# ---- Pre-signed S3 URLs (botocore's SigV4 in the query), bound to key, size, SHA-256 and to not overwriting


MAX_EXPIRES = 3600


class Presigner:
    """Signs URLs for one bucket; pure computation, no request is made."""

    def __init__(self, settings: S3Settings, access: AccessKey | None = None) -> None:
        self.settings, self.access = settings, access or settings.access()

    def presign_put(self, key: str, size: int, sha256: bytes, expires: int = 900) -> UploadTicket:
        """Leave to upload exactly `size` bytes with that SHA-256 under `key`, once, for `expires` seconds."""
        headers = {
            "content-length": str(size),
            "if-none-match": "*",
            "x-amz-checksum-sha256": base64.b64encode(sha256).decode(),
        }
        until = int(time.time()) + expires
        return UploadTicket(url=self._sign("PUT", key, headers, expires), headers=headers, expires=until)

    def presign_get(self, key: str, expires: int = 900) -> str:
        """A URL that reads `key` for `expires` seconds."""
        return self._sign("GET", key, {}, expires)

    def _sign(self, method: str, key: str, headers: Mapping[str, str], expires: int) -> str:
        url = f"{self.settings.outside}/{self.settings.bucket}/{parse_key(key)}"
        return sign_url(method, url, headers, expires, self.settings.region, self.access)


def sign_url(method: str, url: str, headers: Mapping[str, str], expires: int, region: str, access: AccessKey) -> str:
    """`url` with a signature over method, host, path, `headers` and the time, valid for `expires` seconds."""
    if not 1 <= expires <= MAX_EXPIRES:
        raise ValueError(f"a URL is valid for 1 to {MAX_EXPIRES} seconds, not {expires}")
    request = AWSRequest(method, url, headers=headers)
    S3SigV4QueryAuth(Credentials(access.access_key, access.secret_key), "s3", region, expires).add_auth(request)
    return str(request.url)


# ---- The pool's bucket, for those who hold its access key (orchestrator, trainer)


T = TypeVar("T")
MAX_OBJECT_BYTES = 1 << 30
WORTH_A_LOOK = 4 << 20
"""Bytes; what is shorter is sent without a look whether it is there, and not stored if it is."""
MAX_EMPTY_PAGES, EMPTY_SECONDS = 64, 30.0
"""Pages without a key, and seconds with nothing else, after which a listing is given up."""


class Bucket(Presigner):
    """One bucket of content-addressed objects; methods may be called from any thread.

    Raises UnreachableError when the server does not answer (after three tries within about 30 s), ConfigError when it
    refuses the access key, MissingObjectError and IntegrityError as named.
    """

    def __init__(self, settings: S3Settings, access: AccessKey | None = None) -> None:
        super().__init__(settings, access)
        self._client: Any = boto3.client(
            "s3",
            endpoint_url=settings.endpoint,
            aws_access_key_id=self.access.access_key,
            aws_secret_access_key=self.access.secret_key,
            region_name=settings.region,
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

    def put(self, key: str, data: bytes) -> bool:
        """Store `data` under the key that names it; True if it was not there before, False if it was."""
        check_content(key, data)
        if len(data) > WORTH_A_LOOK and self.size(key) == len(data):
            return False
        return self._put(key, data)

    def put_first(self, place: str, data: bytes) -> bool:
        """Store what is signed at its place, unless something is there already; whether it was stored. Of two who do it
        at once one is told False."""
        return self._put(check_place(place), data)

    def get(self, key: str, limit: int = MAX_OBJECT_BYTES) -> bytes:
        """The object's bytes (at most `limit`), checked against the hash in its key."""
        parse_key(key)
        data = self._read(key, limit)
        if data is None:
            raise MissingObjectError(f"no object {key} in bucket {self.settings.bucket}")
        check_content(key, data)
        return data

    def look(self, place: str, limit: int) -> bytes | None:
        """What is at a place (at most `limit` bytes), None if nothing: whether it is right its signature must tell."""
        return self._read(check_place(place), limit)

    def size(self, key: str) -> int | None:
        """The object's size in bytes, or None if there is none."""
        parse_key(key)
        place = {"Bucket": self.settings.bucket, "Key": key}
        answer = self._call(f"look for {key}", lambda: self._client.head_object(**place), (404,))
        return None if answer is None else int(answer["ContentLength"])

    def list(self, prefix: str, after: str = "") -> Iterator[str]:
        """Every key under `prefix` (such as `shards/`) that comes after `after`, in order. Raises UnreachableError for
        one that goes on and names nothing: only with a key can the caller see that it takes too long."""
        asked = {"Bucket": self.settings.bucket, "Prefix": prefix} | ({"StartAfter": after} if after else {})
        pages = iter(self._client.get_paginator("list_objects_v2").paginate(**asked))
        empty, deadline = 0, math.inf
        while (page := self._call(f"list {prefix}", lambda: next(pages, None))) is not None:
            found = [entry["Key"] for entry in page.get("Contents", ())]
            yield from found
            if found:
                empty, deadline = 0, math.inf
                continue
            empty, now = empty + 1, time.monotonic()
            deadline = min(deadline, now + EMPTY_SECONDS)
            if page.get("IsTruncated") and (empty > MAX_EMPTY_PAGES or now > deadline):
                raise UnreachableError(
                    f"S3 at {self.settings.endpoint} lists {prefix} without an end: {empty} pages without a key",
                    "see its log, then retry",
                )

    def _refuse_redirect(self, response: tuple[Any, Any] | None = None, **_other: Any) -> None:
        if response is None or response[0].status_code not in (301, 302, 303, 307, 308):
            return
        answer, parsed = response
        target = printable(answer.headers.get("Location", "") or parsed.get("Error", {}).get("Endpoint", "") or "?")
        region = answer.headers.get("x-amz-bucket-region", "")
        hint = f"set region = {printable(region)!r}" if region else "set the endpoint, with its scheme, to that address"
        raise ConfigError(f"S3 at {self.settings.endpoint} redirects to {target} ({answer.status_code})", hint)

    def _put(self, key: str, data: bytes) -> bool:
        checksum = base64.b64encode(hashlib.sha256(data).digest()).decode()
        options = {"Bucket": self.settings.bucket, "Key": key, "IfNoneMatch": "*", "ChecksumSHA256": checksum}
        stored = self._call(f"store {key}", lambda: self._client.put_object(Body=data, **options), (412,))
        return stored is not None

    def _read(self, key: str, limit: int) -> bytes | None:
        def read() -> bytes:
            answer = self._client.get_object(Bucket=self.settings.bucket, Key=key)
            if answer["ContentLength"] > limit:
                raise IntegrityError(f"{key} has {answer['ContentLength']} bytes, at most {limit} are expected")
            body: bytes = answer["Body"].read()
            return body

        return self._call(f"read {key}", read, (404,))

    def _call(self, what: str, request: Callable[[], T], expected: Collection[int] = ()) -> T | None:
        """The answer, or None for a refusal with one of the `expected` statuses."""
        where = f"S3 at {self.settings.endpoint}"
        try:
            return request()
        except ClientError as error:
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            code = error.response.get("Error", {}).get("Code", "")
            if status in expected:
                return None
            if status >= 500:
                raise UnreachableError(f"{where} cannot {what} ({status} {code})", "see its log, then retry") from None
            if status in (401, 403):
                hint = f"check {self.settings.credentials}, the region and this machine's clock"
                raise ConfigError(f"{where} refuses to {what} ({status} {code})", hint) from None
            hint = "see the bucket's configuration"
            raise MusterError(f"{where} does not {what} ({status} {code})", hint) from None
        except (BotoCoreError, OSError) as error:
            words = " ".join(str(error).split())[:200]
            raise UnreachableError(f"{where} does not answer: {words}", "start it or correct the endpoint") from None
