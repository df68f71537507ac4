"""Heads of requests that are too long or too slow, against the server as it is served."""

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest
import uvicorn

from orchestrator import auth
from orchestrator.auth import BodyMemory
from runtime import server as http_server
from runtime.server import bound, server_options
from tests.conftest import free_port
from tests.orchestrator.conftest import Desk

ASK = b"GET /health HTTP/1.1\r\nHost: x\r\n"


@pytest.fixture
def port(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(http_server, "HEAD_SECONDS", 1.0)
    number = free_port()
    server = uvicorn.Server(server_options(desk.app, 100))
    listener = bound("127.0.0.1", number)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])), daemon=True)
    thread.start()
    yield number
    server.should_exit = True
    thread.join(10)


def answer(port: int, *parts: bytes) -> bytes:
    """What comes back until the connection ends, or a minute without a byte."""
    found = b""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as line:
        try:
            for part in parts:
                line.sendall(part)
            while more := line.recv(65536):
                found += more
        except ConnectionError:
            pass
    return found


def test_a_long_head_is_refused_and_not_kept(port: int) -> None:
    assert b" 200 OK" in answer(port, ASK, b"X: " + b"y" * 1000 + b"\r\nConnection: close\r\n\r\n")
    # Who is still sending may be told by the connection's end alone.
    refused = (b"", b"HTTP/1.1 431")
    flood = (b"X-%d: y\r\n" % n * 100 for n in range(2000))
    assert answer(port, ASK, *flood, b"Connection: close\r\n\r\n")[:12] in refused
    path = (b"a" * 10_000 for _ in range(20))
    assert answer(port, b"GET /", *path, b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")[:12] in refused


def test_a_slow_head_ends_its_connection_and_an_answered_one_may_go_on(port: int) -> None:
    assert answer(port, ASK) == b""
    assert answer(port) == b""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as line:
        for _ in range(2):
            line.sendall(ASK + b"\r\n")
            found = line.recv(65536)
            while not found.endswith(b"}"):
                found += line.recv(65536)
        line.sendall(ASK)
        assert line.recv(65536) == b""


def post(size: int) -> bytes:
    return b"POST /v1/heartbeats HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % size


def test_a_short_body_may_come_in_pieces_or_behind_another_request(port: int) -> None:
    assert b" 401 " in answer(port, post(2) + b"{}")
    assert b" 401 " in answer(port, post(0))
    with socket.create_connection(("127.0.0.1", port), timeout=60) as line:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in (ASK + b"\r\n" + post(4) + b"{", b" ", b" ", b"}"):
            line.sendall(piece)
            time.sleep(0.2)
        found = b""
        while more := line.recv(65536):
            found += more
    assert found.count(b"HTTP/1.1 ") == 2
    assert b" 200 " in found
    assert b" 401 " in found
    asked = post(2).replace(b"Host: x", b"Host: x\r\nExpect: 100-continue")
    assert b"100 Continue" in answer(port, asked, b"{}")


@pytest.mark.parametrize(
    "lengths",
    [
        b"Content-Length: 2\r\nContent-Length: 2",
        b"Content-Length: 2\r\nContent-Length: 4",
        b"Content-Length: 2\r\nTransfer-Encoding: chunked",
        b"Transfer-Encoding: chunked\r\nContent-Length: 2",
    ],
)
def test_a_body_of_two_lengths_has_none(port: int, lengths: bytes) -> None:
    """Whether a short body has come whole is known by its one length."""
    head = b"POST /v1/heartbeats HTTP/1.1\r\nHost: x\r\n" + lengths + b"\r\n\r\n"
    found = answer(port, head, b"2\r\n{}\r\n0\r\n\r\n")
    assert found.startswith(b"HTTP/1.1 400 ")
    assert found.count(b"HTTP/1.1 ") == 1


def test_a_short_body_that_does_not_come_is_not_awaited_for_ever(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "BODY_SECONDS", 0.3)
    assert b" 408 " in answer(port, post(4))
    assert b" 408 " in answer(port, post(4) + b"{}")


def test_long_bodies_of_strangers_share_one_room(desk: Desk, port: int) -> None:
    """Unsigned, and never ended: without a bound each connection would hold as much as its route allows."""
    desk.app.state.body_memory = BodyMemory(total=125 << 10, per_client=64 << 10)
    with contextlib.ExitStack() as stack:

        def begun(source: str, sent: int) -> socket.socket:
            line = stack.enter_context(socket.create_connection(("127.0.0.1", port), 60, (source, 0)))
            line.sendall(b"POST /v1/steps HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n" + b" " * sent)
            return line

        def status(line: socket.socket) -> bytes:
            return line.recv(4096)[9:12]

        held = begun("127.0.0.1", 40_000)
        assert status(begun("127.0.0.1", 40_000)) == b"429", "one caller's room is full"
        assert status(begun("127.0.0.1", 60_000)) == b"429"
        others = [begun(f"127.0.0.{number}", 40_000) for number in (2, 3)]
        assert status(begun("127.0.0.4", 40_000)) == b"429", "all callers' room is full"
        short = b"POST /v1/steps HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 4096\r\n\r\n" + b" " * 4096
        assert b" 401 " in answer(port, short), "short ones need none"
        held.sendall(b" " * 20_000)
        assert status(held) == b"401", "what was begun and fits is read to its end"
        for line in others:
            line.close()
        assert status(begun("127.0.0.1", 60_000)) == b"401", "room that was given back"
    end = time.monotonic() + 60
    while desk.app.state.body_memory.held and time.monotonic() < end:
        time.sleep(0.01)
    assert not desk.app.state.body_memory.held
