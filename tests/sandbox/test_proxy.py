"""A list of hosts that can be reached, and no other, out of a sandbox without a network."""

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from sandbox.bubblewrap import python_mounts
from sandbox.launch import IsolatedProcess, Launch
from sandbox.policy import MIB, IsolationPolicy, Mode
from sandbox.proxy import AllowListProxy, wanted
from tests.sandbox.conftest import need

ASKING = """
import os, socket, sys
name, port = os.environ["HTTPS_PROXY"].removeprefix("http://").split(":")
for target in sys.argv[1:]:
    with socket.create_connection((name, int(port)), timeout=20) as connection:
        connection.sendall(f"CONNECT {target} HTTP/1.1\\r\\n\\r\\n".encode())
        said = b""
        while part := connection.recv(4096):
            said += part
        print(said.split(b"\\r\\n")[0].decode(), "|", said.split(b"\\r\\n")[-1].decode())
try:
    socket.create_connection(("127.0.0.1", int(sys.argv[1].split(":")[1])), timeout=2)
    print("reached it without the proxy")
except OSError:
    print("no other way")
sys.exit(5)
"""


@pytest.fixture
def service() -> Iterator[int]:
    """A port on the loopback that greets whoever comes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    with listener.accept()[0] as connection:
                        connection.sendall(b"here I am")

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]


@pytest.mark.parametrize("mode", [Mode.PODMAN, Mode.BUBBLEWRAP], ids=lambda one: one.value)
def test_only_hosts_on_the_list_are_reached(request: pytest.FixtureRequest, mode: Mode, service: int) -> None:
    allowed, other = f"localhost:{service}", f"127.0.0.1:{service}"
    if mode is Mode.BUBBLEWRAP:
        need("bwrap")
    image = request.getfixturevalue("image") if mode is Mode.PODMAN else ""
    mounts = python_mounts() if mode is Mode.BUBBLEWRAP else ()
    # the bridge is run by the first python3 on the path
    path = f"{sys.base_prefix}/bin:/usr/local/bin:/usr/bin:/bin"
    policy = IsolationPolicy(
        hosts=(allowed,), memory=256 * MIB, scratch=MIB, mounts=mounts, environment={"PATH": path}, seconds=60
    )
    argv = ("python3", "-S", "-c", ASKING, allowed, other)
    with IsolatedProcess(Launch(mode, policy, argv, image), subprocess.DEVNULL, subprocess.PIPE) as process:
        out, _ = process.process.communicate(timeout=90)
        assert process.wait() == 5
        folder = process.launch.policy.mounts[-1].source
    assert out.decode().splitlines() == [
        "HTTP/1.1 200 connected | here I am",
        "HTTP/1.1 403 this host is not on the list | ",
        "no other way",
    ]
    assert not folder.exists()


@pytest.mark.parametrize(
    ("head", "target"),
    [
        (b"CONNECT One.example:443 HTTP/1.1\r\nHost: x\r\n\r\n", "one.example:443"),
        (b"GET http://one.example/ HTTP/1.1\r\n\r\n", ""),
        (b"CONNECT one.example HTTP/1.1\r\n\r\n", ""),
        (b"CONNECT one.example:443@evil:443 HTTP/1.1\r\n\r\n", ""),
        (b" CONNECT one.example:443 HTTP/1.1\r\n\r\n", ""),
        (b"CONNECT one.example:443\r\n HTTP/1.1\r\n\r\n", ""),
        (b"CONNECT [::1]:443 HTTP/1.1\r\n\r\n", ""),
        (b"\x00" * 9000, ""),
        (b"", ""),
    ],
)
def test_what_a_request_asks_for(head: bytes, target: str) -> None:
    assert wanted(head) == target


def test_anything_but_connect_and_a_host_that_is_down_are_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    proxy = AllowListProxy((f"127.0.0.1:{port}",))
    try:
        assert ask(proxy, b"GET / HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 405 ")
        assert ask(proxy, f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n".encode()).startswith(b"HTTP/1.1 502 ")
        assert ask(proxy, b"A" * 8192).startswith(b"HTTP/1.1 405 ")
    finally:
        proxy.close()


def ask(proxy: AllowListProxy, request: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(20)
        connection.connect(str(proxy.folder / "socket"))
        connection.sendall(request)
        return connection.recv(4096)
