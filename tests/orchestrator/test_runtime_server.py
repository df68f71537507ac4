"""Clients that hold a server's connections, memory or log, against a relay's application as it is served."""

import asyncio
import contextlib
import hashlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

import httpx
import pytest
import uvicorn
from starlette.types import ASGIApp

from orchestrator import auth
from orchestrator.auth import BodyMemory
from protocol.http.limits import rate_limit_key
from protocol.waits import wait_for
from runtime import server
from runtime.server import BoundedProtocol, bound, server_options
from storage.keys import object_key
from storage.relay.cache import RelayCache, RelayFetches
from storage.relay.server import RelayApp, ServeWeights
from storage.sources import MultiSource
from tests.conftest import free_port
from tests.orchestrator.conftest import Desk

BIG = 32 << 20
ASK = b"GET /health HTTP/1.1\r\nHost: x\r\n"


def nobody(*_: object) -> None:
    raise AssertionError("nothing is fetched here")


class Served:
    """An application as it is served, at `port`; `held` counts its connections."""

    def __init__(self, app: ASGIApp, limit: int, per_client: int | None = None, key: str = "") -> None:
        self.key, self.port = key, free_port()
        self.server = uvicorn.Server(server_options(app, limit, per_client))
        listener = bound("127.0.0.1", self.port)
        self.thread = threading.Thread(target=lambda: asyncio.run(self.server.serve(sockets=[listener])), daemon=True)
        self.thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.server.should_exit = self.server.force_exit = True
        self.thread.join(10)

    @property
    def held(self) -> int:
        return len(self.server.server_state.connections)

    @property
    def only(self) -> BoundedProtocol:
        (one,) = [one for one in self.server.server_state.connections if isinstance(one, BoundedProtocol)]
        return one

    def line(self, source: str = "127.0.0.1") -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=60, source_address=(source, 0))

    def get(self) -> int:
        with contextlib.suppress(httpx.HTTPError):
            return httpx.get(f"http://127.0.0.1:{self.port}/health", trust_env=False, timeout=60).status_code
        return 0


@pytest.fixture
def per_client() -> int | None:
    return None


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, per_client: int | None) -> Iterator[Served]:
    """A relay that holds one large object, `key`."""
    for name in ("HEAD_SECONDS", "STUCK_SECONDS"):
        monkeypatch.setattr(server, name, 1.0)
    cache, data = RelayCache(tmp_path, 1 << 30), bytes(BIG)
    key = object_key("shards", hashlib.sha256(data).digest())
    cache.name([(key, BIG)])
    cache.put(key, data)
    fetches = RelayFetches(MultiSource({"": nobody}), cache)
    app = RelayApp(cache, fetches, ServeWeights(rate=1e6, burst=1e6, transfers=64))
    with Served(app, 20, per_client, key) as made:
        yield made


def until(what: str, reached: Callable[[], bool]) -> None:
    wait_for(what, reached, 60.0, poll=0.05)


def answered(line: socket.socket, end: bytes = b"}") -> bytes:
    """What comes back until an answer ends so, or the connection does."""
    found = b""
    with contextlib.suppress(ConnectionError):
        while not found.endswith(end) and (more := line.recv(65536)):
            found += more
    return found


@pytest.mark.parametrize(
    ("ask", "more"),
    [
        (ASK + b"\r\n", b"\r\n"),
        (ASK + b"Content-Length: 100000000\r\n\r\n", b"x"),
        (ASK + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
        (ASK + b"Transfer-Encoding: chunked\r\n\r\n", b"1;" + b"x" * 100),
    ],
)
def test_a_sign_of_life_now_and_then_holds_no_connection(served: Served, ask: bytes, more: bytes) -> None:
    """Empty lines, or a body that nobody reads: uvicorn waits for the rest for ever."""
    with served.line() as line:
        line.sendall(ask)
        answered(line)

        def ended() -> bool:
            with contextlib.suppress(OSError):
                line.sendall(more)
                line.settimeout(0.2)
                with contextlib.suppress(TimeoutError):
                    return line.recv(1000) == b""
                return False
            return True

        until("the connection ends", ended)
    until("nothing of it stays", lambda: served.held == 0)


@pytest.mark.parametrize(
    ("count", "more"), [(19, ""), (1, f"Range: bytes=0-{5 << 20}\r\nConnection: close\r\n")], ids=["crowd", "closed"]
)
def test_clients_that_take_nothing_are_let_go_of(served: Served, count: int, more: str) -> None:
    """Ending such a connection politely waits for its client for ever, and fills the server's places one by one; nor is
    an answer awaited that is complete but for what the client has not taken."""
    lines = [served.line() for _ in range(count)]
    for line in lines:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.sendall(f"GET /v1/objects/{served.key} HTTP/1.1\r\nHost: x\r\n{more}\r\n".encode())
    until("they are served", lambda: served.held == count)
    until("none is left", lambda: served.held == 0)
    assert served.get() == 200
    for line in lines:
        line.close()


def test_who_takes_the_bytes_slowly_gets_them(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "LEAST_RATE", 1 << 10)
    with served.line() as line:
        line.sendall(f"GET /v1/objects/{served.key} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        got, end = 0, time.monotonic() + 4
        while more := line.recv(1 << 20):
            got += len(more)
            if time.monotonic() < end:
                time.sleep(0.2)
    assert got > BIG


@pytest.mark.parametrize(
    ("ask", "more"),
    [(b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"X-More: y\r\n"), (b"\r\n", b"GET / HTTP/1.1\r\n\r\n")],
    ids=["trailers", "requests"],
)
def test_what_comes_while_an_answer_is_on_its_way_does_not_queue_up(served: Served, ask: bytes, more: bytes) -> None:
    with served.line() as line:
        line.sendall(f"GET /v1/objects/{served.key} HTTP/1.1\r\nHost: x\r\n".encode() + ask)
        until("it is served", lambda: served.held == 1)
        one = served.only
        with contextlib.suppress(OSError):
            line.sendall(more * 20_000)
        time.sleep(0.3)
        assert len(one.headers) < 10
        assert len(one.pipeline) < 10
    assert served.get() == 200


@pytest.mark.parametrize("per_client", [8])
def test_one_address_does_not_take_all_connections(served: Served) -> None:
    lines = [served.line() for _ in range(40)]
    until("it has no more than its part", lambda: 0 < served.held <= 8)
    with served.line("127.0.0.2") as other:
        other.sendall(ASK + b"\r\n")
        answered(other)
    for line in lines:
        line.close()


def test_connections_beyond_the_limit_are_not_kept(served: Served) -> None:
    """Descriptors are the whole process's: a node that serves would have none left for its own work."""
    lines = [served.line() for _ in range(100)]
    time.sleep(0.5)
    assert served.held <= 20 + 32
    for line in lines:
        line.close()
    until("it serves again", lambda: served.get() == 200)


def test_strangers_do_not_fill_the_log(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        for _ in range(100):
            with served.line() as line:
                line.sendall(b"\x00 nonsense\r\n\r\n")
                assert line.recv(12) == b"HTTP/1.1 400"
            with served.line() as line:
                line.sendall(ASK + b"Connection: upgrade\r\nUpgrade: websocket\r\n\r\n")
                assert line.recv(12)
    assert len([one for one in caplog.records if one.name == "uvicorn.error"]) <= 20


def test_addresses_per_client_network_are_one_party() -> None:
    assert rate_limit_key("2001:db8::1") == rate_limit_key("2001:db8:0:0:ffff::2") != rate_limit_key("2001:db8:0:1::1")
    assert rate_limit_key("::ffff:10.0.0.1") == rate_limit_key("10.0.0.1") != rate_limit_key("10.0.0.2")
    assert rate_limit_key("fe80::1%eth0") == rate_limit_key("fe80::2")
    assert rate_limit_key("unknown") == "unknown"


# Heads of requests that are too long or too slow, against the server as it is served.


@pytest.fixture
def port(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(server, "HEAD_SECONDS", 1.0)
    with Served(desk.app, 100) as made:
        yield made.port


def answer(port: int, *parts: bytes) -> bytes:
    """What comes back until the connection ends, or a minute without a byte."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as line:
        with contextlib.suppress(ConnectionError):
            for part in parts:
                line.sendall(part)
        return answered(line, b"no answer ends so")


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
            answered(line)
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
        found = answered(line, b"no answer ends so")
    assert (found.count(b"HTTP/1.1 "), b" 200 " in found, b" 401 " in found) == (2, True, True)
    asked = post(2).replace(b"Host: x", b"Host: x\r\nExpect: 100-continue")
    assert b"100 Continue" in answer(port, asked, b"{}")


TWO, FOUR, CHUNKED = b"Content-Length: 2\r\n", b"Content-Length: 4\r\n", b"Transfer-Encoding: chunked\r\n"


@pytest.mark.parametrize("lengths", [TWO + TWO, TWO + FOUR, TWO + CHUNKED, CHUNKED + TWO])
def test_a_body_of_two_lengths_has_none(port: int, lengths: bytes) -> None:
    """Whether a short body has come whole is known by its one length."""
    head = b"POST /v1/heartbeats HTTP/1.1\r\nHost: x\r\n" + lengths + b"\r\n"
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
    until("nothing is held", lambda: not desk.app.state.body_memory.held)
