"""A server for strangers that knows one kind of request, and does not let them wait for one another."""

import hashlib
import io
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

import pytest

from protocol.errors import ConfigError
from storage.keys import MissingObjectError, object_key
from storage.transfers import download
from tests.storage.mirror import NEAR
from validator import retention
from validator.retention import FileServer

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


def test_four_addresses_that_read_slowly_do_not_keep_a_juror_from_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """They hold all places, and ask again for each that they lose, as often as they may."""
    monkeypatch.setattr(retention, "party", lambda address: (address, address))
    large, over = os.urandom(8 << 20), threading.Event()
    digest = hashlib.sha256(large).digest()
    key, serving = object_key("rollouts", digest), FileServer("127.0.0.1:0", lambda _: io.BytesIO(large))
    base, held = f"http://127.0.0.1:{serving.port}", threading.Barrier(33)

    def hold(address: str) -> None:
        first = True
        for _ in range(7):
            with suppress(OSError), socket.create_connection(("127.0.0.1", serving.port), 20, (address, 0)) as slow:
                slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                slow.sendall(f"GET /{key} HTTP/1.1\r\n\r\n".encode())
                slow.recv(1)
                if first:
                    first = held.wait(60) < 0
                while not over.wait(0.2) and slow.recv(64):
                    pass

    readers = [threading.Thread(target=hold, args=(f"127.0.0.{2 + number % 4}",), daemon=True) for number in range(32)]
    try:
        for reader in readers:
            reader.start()
        held.wait(60)
        assert download(f"{base}/{key}", key, len(large), NEAR) == large
    finally:
        over.set()
        serving.stop()
        for reader in readers:
            reader.join(30)


def test_who_stops_reading_loses_its_place_though_nobody_waits_for_it() -> None:
    serving = FileServer("127.0.0.1:0", lambda _: io.BytesIO(bytes(64 << 20)))
    try:
        with socket.create_connection(("127.0.0.1", serving.port), timeout=20) as connection:
            connection.sendall(f"GET /{KEY} HTTP/1.1\r\n\r\n".encode())
            assert connection.recv(8) == b"HTTP/1.1"
            deadline = time.monotonic() + 60  # for all of it the server would wait a quarter of an hour
            while serving.busy and time.monotonic() < deadline:
                time.sleep(0.1)
            assert not serving.busy
    finally:
        serving.stop()


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
