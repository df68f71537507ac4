"""Signed requests: what they are bound to, and every way in which a forged or repeated one is refused."""

import hashlib
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.auth import NonceStore, RequestGuard
from orchestrator.db import Database
from protocol import signing
from protocol.accounts import Account
from protocol.errors import ConfigError, MusterError
from protocol.http.signing import AuthScope, RequestRefused, parse_headers, request_digest, service_url, sign_request

POOLS = "0x000000000000000000000000000000000000bEEF"
REALM = AuthScope.of("http://127.0.0.1:8000/", 31337, POOLS)
ACCOUNT = Account.from_key(b"\x07" * 32)
NOW = 1_800_000_000.0
REQUEST = ("POST", "/v1/leases?x=1", b"{}")


def store_at(path: Path) -> NonceStore:
    return NonceStore(Database(f"sqlite:///{path}"))


def guard(tmp_path: Path, now: float = NOW, **options: object) -> RequestGuard:
    return RequestGuard(REALM, store_at(tmp_path / "nonces.db").use, clock=lambda: now, **options)  # type: ignore[arg-type]


def signed(scope: AuthScope = REALM, now: float = NOW) -> dict[str, str]:
    return sign_request(ACCOUNT, scope, *REQUEST, now)


def verify(by: RequestGuard, headers: dict[str, str]) -> str:
    method, path, body = REQUEST
    return by.verify(method, path, headers.items(), body)


def test_a_request_is_its_senders_once_even_after_a_restart(tmp_path: Path) -> None:
    headers = signed()
    named_otherwise = {"Host": "x", **{name.lower(): value for name, value in headers.items()}}
    assert verify(guard(tmp_path), named_otherwise) == ACCOUNT.address
    for now in (NOW, NOW + 59):
        with pytest.raises(RequestRefused, match="sent before") as refused:
            verify(guard(tmp_path, now), headers)
        assert refused.value.status == 409
    other = Account.create()
    nonce = bytes.fromhex(headers["X-Muster-Nonce"][2:])
    same_nonce = sign_request(other, REALM, "GET", "/", b"", NOW, nonce)
    assert guard(tmp_path).verify("GET", "/", same_nonce.items(), b"") == other.address


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "/v1/leases?x=1", b"{}"),
        ("POST", "/v1/leases?x=2", b"{}"),
        ("POST", "/v1/leases", b"{}"),
        ("POST", "/v1/leases?x=1", b"{ }"),
        ("POST", "/v1/leases?x=1", b""),
        ("post", "/v1/leases?x=1", b"{}"),
        ("POST", "v1/slots?x=1", b"{}"),
        ("POST", "/v1/leases?x=1\n", b"{}"),
        ("POST", "/v1/släts", b"{}"),
    ],
)
def test_another_request_is_not_covered(tmp_path: Path, method: str, path: str, body: bytes) -> None:
    with pytest.raises(RequestRefused) as refused:
        guard(tmp_path).verify(method, path, signed().items(), body)
    assert refused.value.status == 401


@pytest.mark.parametrize(
    "scope",
    [
        AuthScope.of("http://127.0.0.1:8001", 31337, POOLS),
        AuthScope.of("https://127.0.0.1:8000", 31337, POOLS),
        AuthScope.of("http://127.0.0.1:8000/other", 31337, POOLS),
        AuthScope.of("http://127.0.0.1:8000", 84532, POOLS),
        AuthScope.of("http://127.0.0.1:8000", 31337, "0x000000000000000000000000000000000000dEaD"),
    ],
)
def test_a_request_to_somebody_else_or_of_another_address_is_refused(tmp_path: Path, scope: AuthScope) -> None:
    for headers in (signed(scope), signed() | {"X-Muster-Address": Account.create().address}):
        with pytest.raises(RequestRefused, match="signature is not"):
            verify(guard(tmp_path), headers)


@pytest.mark.parametrize("skew", [61, -61, 3600, -1_799_999_999])
def test_stale_and_early_requests_are_refused(tmp_path: Path, skew: int) -> None:
    with pytest.raises(RequestRefused, match=r"off the server's.*set the clock"):
        verify(guard(tmp_path), signed(now=NOW + skew))
    verify(guard(tmp_path), signed(now=NOW + 60))


def test_a_second_signature_of_the_same_consent_is_refused(tmp_path: Path) -> None:
    headers = signed()
    raw = bytes.fromhex(headers["X-Muster-Signature"][2:])
    order = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
    high = raw[:32] + (order - int.from_bytes(raw[32:64], "big")).to_bytes(32, "big") + bytes([55 - raw[64]])
    with pytest.raises(RequestRefused, match="lower half"):
        verify(guard(tmp_path), headers | {"X-Muster-Signature": "0x" + high.hex()})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X-Muster-Time", "01800000000"),
        ("X-Muster-Time", "1.8e9"),
        ("X-Muster-Time", "+1800000000"),
        ("X-Muster-Time", "-1"),
        ("X-Muster-Time", "1" * 400),
        ("X-Muster-Time", "١٨٠٠٠٠٠٠٠٠"),
        ("X-Muster-Nonce", "0x12"),
        ("X-Muster-Nonce", "0x" + "A" * 64),
        ("X-Muster-Nonce", "0x" + "a" * 64 + "\n"),
        ("X-Muster-Signature", ""),
        ("X-Muster-Signature", "0x"),
        ("X-Muster-Signature", "0x" + "zz" * 65),
        ("X-Muster-Signature", "0x" + "00" * 65),
        ("X-Muster-Address", ACCOUNT.address[2:]),
        ("X-Muster-Address", "0x" + "00" * 21),
        ("X-Muster-Extra", "1"),
    ],
)
def test_headers_have_one_spelling(tmp_path: Path, name: str, value: str) -> None:
    with pytest.raises(RequestRefused) as refused:
        verify(guard(tmp_path), signed() | {name: value})
    assert refused.value.status == 401


def test_repeated_and_missing_headers_are_refused() -> None:
    headers = list(signed().items())
    for name, value in headers:
        with pytest.raises(RequestRefused, match="appears twice"):
            parse_headers([*headers, (name.upper(), value)])
        with pytest.raises(RequestRefused, match=f"{name.lower()} is missing"):
            parse_headers([pair for pair in headers if pair[0] != name])


@given(
    st.dictionaries(
        st.sampled_from(["x-muster-address", "x-muster-time", "x-muster-nonce", "x-muster-signature"]),
        st.text(max_size=140),
    )
)
def test_any_headers_are_refused_without_a_crash(headers: dict[str, str]) -> None:
    with pytest.raises(RequestRefused):
        parse_headers(headers.items())


def test_strangers_do_not_fill_the_store(tmp_path: Path) -> None:
    closed = guard(tmp_path, allowed=lambda address: False)
    for _ in range(3):
        with pytest.raises(RequestRefused, match="may not") as refused:
            verify(closed, signed())
        assert refused.value.status == 403
    with pytest.raises(RequestRefused):
        closed.verify("POST", "/elsewhere", signed().items(), b"{}")
    with sqlite3.connect(tmp_path / "nonces.db") as db:
        assert db.execute("SELECT count(*) FROM nonces").fetchone() == (0,)


def test_old_nonces_are_forgotten_when_they_cannot_matter(tmp_path: Path) -> None:
    store = store_at(tmp_path / "n.db")
    assert store.use("a", b"1", 1000.0)
    assert not store.use("a", b"1", 1000.0 + 599)
    store.prune(1000.0 + 700)
    assert store.use("a", b"2", 1000.0 + 700)
    with sqlite3.connect(tmp_path / "n.db") as db:
        assert db.execute("SELECT count(*) FROM nonces").fetchone() == (1,)


def test_one_of_many_concurrent_replays_wins(tmp_path: Path) -> None:
    shared, headers = guard(tmp_path), signed()

    def is_taken(_: int) -> bool:
        try:
            return bool(verify(shared, headers))
        except RequestRefused:
            return False

    with ThreadPoolExecutor(16) as threads:
        assert sorted(threads.map(is_taken, range(16))) == [False] * 15 + [True]


def test_a_damaged_store_is_named(tmp_path: Path) -> None:
    (tmp_path / "n.db").write_bytes(b"garbage" * 1000)
    with pytest.raises(MusterError, match=r"n\.db.*move it away"):
        store_at(tmp_path / "n.db")


def test_services_have_one_name() -> None:
    assert service_url("HTTP://Host:80/a/") == "http://host/a"
    assert service_url("https://h:443") == "https://h"
    assert service_url("http://[::1]:8000/") == "http://[::1]:8000"
    for bad in ("host:1", "ftp://h", "http://", "http://h?x", "http://h#x", "http://u:p@h", "http://h:99999"):
        with pytest.raises(ConfigError):
            service_url(bad)


def test_the_digest_is_the_standards() -> None:
    struct = "Request(string method,string path,bytes32 bodyHash,string audience,uint256 time,bytes32 nonce)"
    fields = ("GET", "/v1/status", hashlib.sha256(b"").digest(), "http://127.0.0.1:8000", 1_800_000_000, bytes(32))
    expected = signing.digest(signing.Domain("muster-http", "1", 31337, POOLS), struct, *fields)
    assert request_digest(REALM, "GET", "/v1/status", b"", 1_800_000_000, bytes(32)) == expected
