"""Pre-signed S3 URLs (AWS Signature Version 4 in the query), bound to key, size, SHA-256 and to not overwriting."""

import base64
from collections.abc import Mapping
from datetime import UTC, datetime

from protocol.api.uploads import UploadTicket
from storage.keys import parse_key
from storage.settings import S3Settings
from storage.sigv4 import AccessKey, sign_url

MAX_EXPIRES = 3600


class Presigner:
    """Signs URLs for one bucket; pure computation, no request is made."""

    def __init__(self, settings: S3Settings, access: AccessKey | None = None) -> None:
        self._settings = settings
        self._access = access or settings.access()

    def put(self, key: str, size: int, sha256: bytes, expires: int = 900, now: datetime | None = None) -> UploadTicket:
        """Leave to upload exactly `size` bytes with that SHA-256 under `key`, once, for `expires` seconds."""
        now = now or datetime.now(UTC)
        headers = {
            "content-length": str(size),
            "if-none-match": "*",
            "x-amz-checksum-sha256": base64.b64encode(sha256).decode(),
        }
        url = self._sign("PUT", key, headers, expires, now)
        return UploadTicket(url=url, headers=headers, expires=int(now.timestamp()) + expires)

    def get(self, key: str, expires: int = 900, now: datetime | None = None) -> str:
        """A URL that reads `key` for `expires` seconds."""
        return self._sign("GET", key, {}, expires, now or datetime.now(UTC))

    def head(self, key: str, expires: int = 900, now: datetime | None = None) -> str:
        return self._sign("HEAD", key, {}, expires, now or datetime.now(UTC))

    def _sign(self, method: str, key: str, headers: Mapping[str, str], expires: int, now: datetime) -> str:
        if not 1 <= expires <= MAX_EXPIRES:
            raise ValueError(f"a URL is valid for 1 to {MAX_EXPIRES} seconds, not {expires}")
        path = f"/{self._settings.bucket}/{parse_key(key)}"
        return sign_url(
            method, self._settings.outside, path, headers, expires, now, self._settings.region, self._access
        )


def presign_put(settings: S3Settings, key: str, size: int, sha256: bytes, expires: int = 900) -> UploadTicket:
    """`Presigner.put` for callers that sign seldom."""
    return Presigner(settings).put(key, size, sha256, expires)


def presign_get(settings: S3Settings, key: str, expires: int = 900) -> str:
    """`Presigner.get` for callers that sign seldom."""
    return Presigner(settings).get(key, expires)
