"""The server of retained files for strangers: one kind of request, only disputed files, a bounded number of clients."""

import hashlib
import os
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from protocol.errors import ConfigError
from storage.keys import MissingObjectError, object_key
from storage.transfers import download
from tests.storage.mirror import NEAR
from validator.config import ServeConfig
from validator.retention import FileServer, RetentionStore

DATA = os.urandom(200_000)
DIGEST = hashlib.sha256(DATA).digest()
KEY = object_key("rollouts", DIGEST)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FileServer]:
    store = RetentionStore(tmp_path, 1 << 30)
    assert store.keep((1, 1), DIGEST, DATA)
    serving = FileServer(ServeConfig(listen="127.0.0.1:0", public_url="https://seat.example/"), store)
    serving.shown = frozenset({DIGEST})
    try:
        yield serving
    finally:
        serving.close()


def status(serving: FileServer, request: bytes) -> bytes:
    """The first line of the answer."""
    with socket.create_connection(("127.0.0.1", serving.port), timeout=20) as connection:
        connection.sendall(request)
        return connection.recv(4096).partition(b"\r\n")[0]


def test_it_serves_what_is_disputed_by_its_hash_and_nothing_else(server: FileServer, tmp_path: Path) -> None:
    base = f"http://127.0.0.1:{server.port}"
    assert server.url(DIGEST) == f"https://seat.example/{KEY}"
    for prefix in ("", "/behind/a/proxy"):
        assert download(f"{base}{prefix}/{KEY}", KEY, len(DATA), NEAR) == DATA
    other = object_key("rollouts", b"x" * 32)
    with pytest.raises(MissingObjectError):
        download(f"{base}/{other}", other, len(DATA), NEAR)
    for target in (
        f"/../{KEY}x", "/rollouts/../../etc/passwd", "/etc/passwd", f"/{KEY.upper()}", "/", f"/{KEY}%00",
        f"/{object_key('shards', DIGEST)}", "/rollouts/" + "a" * 5000, f"//{tmp_path}/1-1-{DIGEST.hex()}.parquet",
    ):  # fmt: skip
        assert b" 404 " in status(server, f"GET {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode()), target
    assert b" 405 " in status(server, f"POST /{KEY} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n".encode())
    assert b" 200 " not in status(server, b"\0" * 9000)
    server.shown = frozenset()
    with pytest.raises(MissingObjectError):
        download(f"{base}/{KEY}", KEY, len(DATA), NEAR)


def test_one_address_has_a_bounded_part_of_the_connections(server: FileServer) -> None:
    idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(8)]
    time.sleep(0.2)
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as refused:
        with suppress(ConnectionResetError):
            assert refused.recv(1) == b""
    for connection in idle:
        connection.close()
    time.sleep(0.2)
    assert download(f"http://127.0.0.1:{server.port}/{KEY}", KEY, len(DATA), NEAR) == DATA


def test_an_address_that_cannot_be_listened_at(server: FileServer, tmp_path: Path) -> None:
    for listen in (f"127.0.0.1:{server.port}", "nowhere", "127.0.0.1:99999"):
        with pytest.raises(ConfigError, match="cannot listen"):
            FileServer(ServeConfig(listen=listen, public_url="https://x"), RetentionStore(tmp_path, 1))
