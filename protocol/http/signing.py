"""Signed HTTP requests (docs/reference/protocol.md, section 9): the pure part, shared by client and server.

A request is bound to its method, path with query, body, receiving service, chain and pools contract, time and nonce.
"""

import hashlib
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import urlsplit

from protocol import signing
from protocol.accounts import LocalAccount
from protocol.errors import ConfigError, MusterError

WINDOW = 60  # Seconds by which the times of sender and receiver may differ
DOMAIN = "muster-http"
STRUCT = "Request(string method,string path,bytes32 bodyHash,string audience,uint256 time,bytes32 nonce)"
METHODS = frozenset({"GET", "POST", "PUT", "DELETE"})
_PREFIX = "x-muster-"
_FIELDS = {
    "x-muster-address": re.compile(r"0x[0-9a-fA-F]{40}"),
    "x-muster-time": re.compile(r"[1-9][0-9]{0,10}"),
    "x-muster-nonce": re.compile(r"0x[0-9a-f]{64}"),
    "x-muster-signature": re.compile(r"0x[0-9a-f]{130}"),
}
_PATH = re.compile(r"/[!-\"$-~]{0,4095}")


class RequestRefused(MusterError):
    """A request that is not taken for its sender's; `status` is the HTTP status to answer with (401, 403, 409)."""

    def __init__(self, what: str, hint: str = "", status: int = 401) -> None:
        super().__init__(what, hint)
        self.status = status


@dataclass(frozen=True)
class AuthScope:
    """Which service a request is meant for: its public URL, its chain and that chain's pools contract."""

    audience: str
    chain_id: int
    pools: str

    @classmethod
    def of(cls, url: str, chain_id: int, pools: str) -> "AuthScope":
        """Return the scope of the service at `url`. Raises ConfigError for an unusable URL or address."""
        try:
            return cls(service_url(url), chain_id, signing.checked_address(pools))
        except ValueError as error:
            raise ConfigError(str(error), "check the deployment file") from None

    @cached_property
    def domain(self) -> signing.Domain:
        return signing.Domain(DOMAIN, "1", self.chain_id, self.pools)


@dataclass(frozen=True)
class Credentials:
    """The four headers, parsed: address (checksum), time (Unix seconds), nonce (32 bytes), signature (65 bytes)."""

    address: str
    time: int
    nonce: bytes
    signature: bytes


def service_url(url: str) -> str:
    """Spell a service's URL in the one way: lower-case scheme and host, no trailing slash, query or fragment."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ConfigError(f"{url!r} is not a URL", "write http://host:port") from None
    if parts.scheme.lower() not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ConfigError(f"{url!r} is not the URL of a service", "write http://host:port")
    if parts.username or parts.password:
        raise ConfigError("a service's URL must not carry a password", "remove it")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    default = {"http": 80, "https": 443}[parts.scheme.lower()]
    suffix = "" if port in (None, default) else f":{port}"
    return f"{parts.scheme.lower()}://{host}{suffix}{parts.path.rstrip('/')}"


def request_digest(auth_scope: AuthScope, method: str, path: str, body: bytes, time: int, nonce: bytes) -> bytes:
    """Return the EIP-712 digest of a request; `path` starts with `/` and includes the query."""
    if method not in METHODS:
        raise ValueError(f"method {method!r} is not signed")
    if not _PATH.fullmatch(path):
        raise ValueError("the path is not printable ASCII that starts with /")
    body_hash = hashlib.sha256(body).digest()
    return signing.digest(auth_scope.domain, STRUCT, method, path, body_hash, auth_scope.audience, time, nonce)


def sign_request(
    account: LocalAccount, scope: AuthScope, method: str, path: str, body: bytes, now: float, nonce: bytes | None = None
) -> dict[str, str]:
    """Return the headers that make a request the account's own. A new random nonce unless one is given."""
    nonce = nonce or secrets.token_bytes(32)
    digest = request_digest(scope, method, path, body, int(now), nonce)
    return {
        "X-Muster-Address": account.address,
        "X-Muster-Time": str(int(now)),
        "X-Muster-Nonce": "0x" + nonce.hex(),
        "X-Muster-Signature": "0x" + signing.sign(account, digest).hex(),
    }


def parse_headers(headers: Iterable[tuple[str, str]]) -> Credentials:
    """Return the credentials among all header pairs of a request. Raises RequestRefused for a missing, repeated or
    differently spelt field."""
    values: dict[str, str] = {}
    for name, value in headers:
        name = name.lower()
        if not name.startswith(_PREFIX):
            continue
        if name not in _FIELDS:
            raise RequestRefused(f"header {name} is unknown", "send the four X-Muster headers only")
        if name in values:
            raise RequestRefused(f"header {name} appears twice", "send it once")
        if not _FIELDS[name].fullmatch(value):
            raise RequestRefused(f"header {name} is malformed", "see section 9 of the protocol")
        values[name] = value
    for name in _FIELDS:
        if name not in values:
            raise RequestRefused(f"header {name} is missing", "sign the request")
    address, time, nonce, signature = (values[name] for name in _FIELDS)
    try:
        checksummed = signing.checked_address(address)
    except ValueError as error:
        raise RequestRefused(str(error)) from None
    return Credentials(checksummed, int(time), bytes.fromhex(nonce[2:]), bytes.fromhex(signature[2:]))


def verify_request(auth_scope: AuthScope, method: str, path: str, body: bytes, given: Credentials, now: float) -> str:
    """Return the sender's address if time and signature hold; whether the nonce is new is the guard's to check."""
    skew = given.time - now
    if abs(skew) > WINDOW:
        raise RequestRefused(f"the request's time is {skew:+.0f} s off the server's", "set the clock (NTP)")
    try:
        digest = request_digest(auth_scope, method, path, body, given.time, given.nonce)
        signer = signing.recover(digest, given.signature)
    except (ValueError, MusterError) as error:
        raise RequestRefused(f"bad signature: {error}") from None
    if signer != given.address:
        raise RequestRefused(
            f"the signature is not {given.address}'s over this request",
            f"sign method, path, body for audience {auth_scope.audience} on chain {auth_scope.chain_id}",
        )
    return signer
