"""A server for strangers that knows one kind of request, and does not let them wait for one another."""

import hashlib
import io
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

import pytest

from protocol.errors import ConfigError
from storage.download import download
from storage.keys import MissingObjectError, object_key
from tests.storage.mirror import NEAR
from validator.file_server import Admission, FileServer

DATA = os.urandom(200_000)
DIGEST = hashlib.sha256(DATA).digest()
KEY = object_key("rollouts", DIGEST)


def opened(digest: bytes) -> BinaryIO | None:
    return io.BytesIO(DATA) if digest == DIGEST else None


@contextmanager
def server() -> Iterator[FileServer]:
    serving = FileServer("127.0.0.1:0", opened)
    try:
        yield serving
    finally:
        serving.stop()


def said(serving: FileServer, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", serving.port), timeout=20) as connection:
        connection.sendall(request)
        got = b""
        while chunk := connection.recv(65536):
            got += chunk
    return got


def test_it_serves_what_is_kept_by_its_hash_and_nothing_else() -> None:
    with server() as serving:
        base = f"http://127.0.0.1:{serving.port}"
        for prefix in ("", "/behind/a/proxy"):
            assert download(f"{base}{prefix}/{KEY}", KEY, len(DATA), NEAR) == DATA
        other = object_key("rollouts", b"x" * 32)
        with pytest.raises(MissingObjectError):
            download(f"{base}/{other}", other, len(DATA), NEAR)
        for target in (
            f"/../{KEY}x", "/rollouts/../../etc/passwd", "/etc/passwd", f"/{KEY}?x=1", f"/{KEY.upper()}", "/",
            f"/{object_key('shards', DIGEST)}", f"/{KEY}%00", "/rollouts/" + "a" * 5000,
        ):  # fmt: skip
            assert said(serving, f"GET {target} HTTP/1.1\r\n\r\n".encode()).startswith(b"HTTP/1.1 400")
        for request in (f"POST /{KEY} HTTP/1.1\r\n\r\n", f"GET /{KEY}\r\n\r\n", "\r\n\r\n", "\0" * 9000):
            assert said(serving, request.encode()).startswith(b"HTTP/1.1 400")


def test_who_says_nothing_does_not_keep_others_waiting() -> None:
    with server() as serving:
        idle = [socket.create_connection(("127.0.0.1", serving.port)) for _ in range(32)]
        time.sleep(0.2)
        refused = socket.create_connection(("127.0.0.1", serving.port), timeout=20)
        assert refused.recv(1) == b"", "no room, for as long as a request may take to be read"
        for connection in idle:
            connection.settimeout(20)
            connection.recv(1)
            connection.close()
        assert download(f"http://127.0.0.1:{serving.port}/{KEY}", KEY, len(DATA), NEAR) == DATA


def test_one_address_has_a_part_of_the_room_and_of_the_minute() -> None:
    now = [0.0]
    admission = Admission(lambda: now[0])
    assert [admission.enter("198.51.100.1") for _ in range(9)] == [True] * 8 + [False]
    assert admission.enter("198.51.100.2")
    for _ in range(8):
        admission.leave("198.51.100.1")
    taken = 0
    for _ in range(100):
        if admission.enter("198.51.100.1"):
            taken += 1
            admission.leave("198.51.100.1")
    assert taken == 60 - 9
    assert [admission.enter("127.0.0.1") for _ in range(32)] == [True] * 31 + [False], "a proxy has the rest"
    now[0] = 60.0
    admission.leave("198.51.100.2")
    assert admission.enter("198.51.100.1")


def test_who_reads_slowly_does_not_have_a_large_file_read_into_memory() -> None:
    large = io.BytesIO(bytes(64 << 20))
    serving = FileServer("127.0.0.1:0", lambda _: large)
    try:
        with socket.create_connection(("127.0.0.1", serving.port), timeout=20) as connection:
            connection.sendall(f"GET /{KEY} HTTP/1.1\r\n\r\n".encode())
            assert connection.recv(8) == b"HTTP/1.1"
            time.sleep(0.5)
            assert 0 < large.tell() < 32 << 20, "what the system's own buffers take, and a piece"
    finally:
        serving.stop()


def test_an_ipv6_network_is_one_address_and_this_machines_are_a_proxys() -> None:
    admission = Admission()
    assert [admission.enter(f"2001:db8:1:2::{host:x}") for host in range(9)] == [True] * 8 + [False]
    assert admission.enter("2001:db8:1:3::1")
    admission.leave("2001:db8:1:2::ffff")
    assert admission.enter("2001:db8:1:2::1")
    assert all(admission.enter("::ffff:127.0.0.1") for _ in range(9)), "a proxy, seen by a server of both families"
    assert [admission.enter("::ffff:198.51.100.1") for _ in range(9)] == [True] * 8 + [False]


def test_a_machine_without_threads_loses_no_room_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with server() as serving:
        start, failures = threading.Thread.start, [RuntimeError("can't start new thread")] * 40

        def scarce(thread: threading.Thread) -> None:
            if failures:
                raise failures.pop()
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", scarce)
        for _ in range(40):
            assert said(serving, b"") == b""
        assert said(serving, f"GET /{KEY} HTTP/1.1\r\n\r\n".encode()).startswith(b"HTTP/1.1 200")


def test_an_address_that_cannot_be_listened_at() -> None:
    with server() as serving:
        for listen in (f"127.0.0.1:{serving.port}", "nowhere", "127.0.0.1:99999"):
            with pytest.raises(ConfigError, match="cannot listen"):
                FileServer(listen, opened)
