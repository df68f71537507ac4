"""AWS Signature Version 4 in the query: the standard library only, so that any process can afford it."""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import quote, urlsplit


@dataclass(frozen=True)
class AccessKey:
    """An S3 access key; the secret never appears in a repr or a log."""

    access_key: str
    secret_key: str = field(repr=False)


def sign_url(
    method: str,
    endpoint: str,
    path: str,
    headers: Mapping[str, str],
    expires: int,
    now: datetime,
    region: str,
    access: AccessKey,
) -> str:
    """SigV4 query signature as in AWS's "Authenticating Requests: Using Query Parameters"; `headers` lower case."""
    stamp = now.strftime("%Y%m%dT%H%M%SZ")
    scope = f"{stamp[:8]}/{region}/s3/aws4_request"
    signed = {**headers, "host": urlsplit(endpoint).netloc}
    names = ";".join(sorted(signed))
    query = {
        "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
        "X-Amz-Credential": f"{access.access_key}/{scope}",
        "X-Amz-Date": stamp,
        "X-Amz-Expires": str(expires),
        "X-Amz-SignedHeaders": names,
    }
    encoded = "&".join(f"{name}={quote(value, safe='-_.~')}" for name, value in sorted(query.items()))
    lines = "".join(f"{name}:{signed[name].strip()}\n" for name in sorted(signed))
    request = "\n".join((method, quote(path, safe="/-_.~"), encoded, lines, names, "UNSIGNED-PAYLOAD"))
    digest = hashlib.sha256(request.encode()).hexdigest()
    text = "\n".join(("AWS4-HMAC-SHA256", stamp, scope, digest))
    key = f"AWS4{access.secret_key}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    return f"{endpoint}{quote(path, safe='/-_.~')}?{encoded}&X-Amz-Signature={signature}"
