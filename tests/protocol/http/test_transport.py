"""Hostile answers, certificate authorities and proxies."""

import gzip
import resource
import ssl
import zlib
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import httpx
import pytest

from protocol.errors import IntegrityError
from protocol.http.reach import ANYWHERE, PUBLIC, Reach, RefusedAddressError
from protocol.http.transport import bounded_transport, exchange, tls_context
from tests.protocol.http.authority import make_authority
from tests.storage.mirror import mirror, send

LIMIT = 100_000
HUGE = 512 << 20


def answered(body: bytes, encoding: str, limit: int = LIMIT) -> bytes:
    """What a client reads of a server that answers so."""
    with mirror(lambda handler: send(handler, 200, body, Content_Encoding=encoding)) as url:
        return fetched(url, ANYWHERE, limit)


def fetched(url: str, reach: Reach, limit: int = LIMIT) -> bytes:
    with httpx.Client(transport=bounded_transport(reach), trust_env=False) as client:
        return exchange(client, client.build_request("GET", url), limit, 20.0).content


def bomb() -> bytes:
    """HUGE zeros by gzip."""
    packing, piece = zlib.compressobj(9, wbits=31), bytes(1 << 20)
    return b"".join(packing.compress(piece) for _ in range(HUGE >> 20)) + packing.flush()


@pytest.mark.parametrize(
    ("encoding", "pack"), [("gzip", bytes), ("gzip, gzip", gzip.compress), ("gzip", gzip.compress), ("deflate", bytes)]
)
def test_a_packed_bomb_costs_no_memory(encoding: str, pack: Callable[[bytes], bytes]) -> None:
    body = pack(bomb())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(IntegrityError):
        answered(body, encoding)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20 << 10, "in KiB"


def test_what_is_packed_once_is_read_unless_it_is_long_or_damaged() -> None:
    words = b"words " * 10_000
    assert answered(gzip.compress(words), "gzip") == answered(words, "identity") == words
    with pytest.raises(IntegrityError, match="more than"):
        answered(gzip.compress(words), "gzip", limit=len(words) - 1)
    with pytest.raises(IntegrityError, match="damaged"):
        answered(b"not gzip", "gzip")


def test_headers_may_have_any_bytes() -> None:
    with mirror(lambda handler: send(handler, 200, b"words", X_Server="caf\xe9")) as url:
        assert fetched(url, ANYWHERE) == b"words"


def test_certificates_are_read_once_for_all_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[ssl.SSLContext] = []
    create = ssl.create_default_context

    def counted(cafile: str) -> ssl.SSLContext:
        made.append(create(cafile=cafile))
        return made[-1]

    monkeypatch.setattr("ssl.create_default_context", counted)
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    tls_context.cache_clear()
    for _ in range(3):
        httpx.Client(transport=bounded_transport()).close()
    assert len(made) == 1
    assert made[0].verify_mode is ssl.CERT_REQUIRED


def test_the_environment_names_the_certificate_authorities(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority, _ = make_authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority))
    tls_context.cache_clear()
    try:
        (known,) = tls_context().get_ca_certs()
        assert known["subject"] == ((("commonName", "our own authority"),),)
    finally:
        tls_context.cache_clear()


def proxy(asked: list[str]) -> Callable[[BaseHTTPRequestHandler], None]:
    """Answers what is asked of a proxy, and remembers the URLs."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        asked.append(handler.path)
        send(handler, 200, b"by proxy")

    return answer


def test_the_environment_names_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    with mirror(proxy(asked)) as url, mirror(lambda handler: send(handler, 200, b"direct")) as local:
        monkeypatch.setenv("http_proxy", url)
        monkeypatch.setenv("no_proxy", "spared.invalid")
        assert fetched("http://pool.invalid/x", ANYWHERE) == b"by proxy"
        assert fetched(local, ANYWHERE) == b"direct", "no proxy leads to this machine"
        with pytest.raises(httpx.ConnectError):
            fetched("http://spared.invalid/x", ANYWHERE)
        assert asked == ["http://pool.invalid/x"]


@pytest.mark.parametrize("host", ["10.0.0.1", "169.254.169.254", "[::ffff:10.0.0.1]", "metadata.invalid"])
def test_a_proxy_does_not_lead_strangers_into_private_networks(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    with mirror(proxy(asked)) as url:
        monkeypatch.setenv("http_proxy", url)
        with pytest.raises((RefusedAddressError, httpx.ConnectError)):
            fetched(f"http://{host}/x", PUBLIC)
        assert asked == []
        assert fetched("http://8.8.8.8/x", PUBLIC) == b"by proxy"
