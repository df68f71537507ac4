"""Pre-signed S3 URLs (botocore's SigV4 in the query), bound to key, size, SHA-256 and to not overwriting."""

import base64
import time
from collections.abc import Mapping

from botocore.auth import S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from protocol.api.work import UploadTicket
from storage.keys import parse_key
from storage.settings import AccessKey, S3Settings

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
