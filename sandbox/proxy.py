"""Inside a sandbox without a network: leads a port on its loopback to the socket file of the proxy outside.

`python3 bridge.py SOCKET PROGRAM ARGUMENT…` runs the program with HTTPS_PROXY set, passes signals on to it, and ends
with its exit code. Standard library only, and on its own: it is copied into the sandbox.
"""

import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

_IDLE_SECONDS = 300.0
_PART = 65536


def pump(left: socket.socket, right: socket.socket) -> None:
    """Carry bytes both ways until one side ends or both are silent for five minutes; closes both."""
    other = {left: right, right: left}
    with left, right, suppress(OSError):
        while ready := select.select([left, right], [], [], _IDLE_SECONDS)[0]:
            for one in ready:
                part = one.recv(_PART)
                if not part:
                    return
                other[one].sendall(part)


def _serve(listener: socket.socket, path: str) -> None:
    while True:
        inner, _ = listener.accept()
        outer = socket.socket(socket.AF_UNIX)
        try:
            outer.connect(path)
        except OSError:
            inner.close()
            continue
        threading.Thread(target=pump, args=(inner, outer), daemon=True).start()


def main(path: str, argv: list[str]) -> int:
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=_serve, args=(listener, path), daemon=True).start()
    proxy = f"http://127.0.0.1:{listener.getsockname()[1]}"
    program = subprocess.Popen(argv, env=os.environ | {"HTTPS_PROXY": proxy, "https_proxy": proxy})
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda given, _: program.send_signal(given))
    code = program.wait()
    return 128 - code if code < 0 else code


# Outside: an HTTP proxy on a socket file, for CONNECT to listed hosts and nothing else


INSIDE = Path("/run/muster")
"""Where a sandbox sees the proxy's folder."""
_CONNECT = re.compile(rb"CONNECT ([A-Za-z0-9.-]{1,253}:[0-9]{1,5}) HTTP/1\.[01]\r\n")
_MOST_HEAD, _MOST_CONNECTIONS, _SECONDS = 8192, 64, 10.0


class AllowListProxy:
    """Leads to `hosts` (`name:port`, lower case) and nowhere else. `folder` holds the socket and the bridge to it; it
    is to be mounted at `INSIDE`."""

    def __init__(self, hosts: Collection[str]) -> None:
        self._hosts, self._free = frozenset(hosts), threading.Semaphore(_MOST_CONNECTIONS)
        self.folder = Path(tempfile.mkdtemp(prefix="muster-proxy-"))
        self.folder.chmod(0o755)  # the program may be another user's
        shutil.copy(__file__, self.folder / "bridge.py")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.folder / "socket"))
        (self.folder / "socket").chmod(0o666)
        self._listener.listen(_MOST_CONNECTIONS)
        threading.Thread(target=self._accept, daemon=True).start()

    @staticmethod
    def through(argv: tuple[str, ...]) -> tuple[str, ...]:
        """Return the command, as it is to be run inside."""
        return ("python3", "-S", str(INSIDE / "bridge.py"), str(INSIDE / "socket"), *argv)

    def close(self) -> None:
        """Take no more connections, and remove the folder."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                if self._free.acquire(blocking=False):
                    threading.Thread(target=self._serve, args=(connection,), daemon=True).start()
                else:
                    connection.close()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection, suppress(OSError):
                connection.settimeout(_SECONDS)
                asked = wanted(_head(connection))
                if asked not in self._hosts:
                    status = b"403 this host is not on the list" if asked else b"405 only CONNECT"
                    connection.sendall(b"HTTP/1.1 " + status + b"\r\n\r\n")
                    return
                name, port = asked.rsplit(":", 1)
                try:
                    outside = socket.create_connection((name, int(port)), timeout=_SECONDS)
                except OSError:
                    connection.sendall(b"HTTP/1.1 502 the host does not answer\r\n\r\n")
                    return
                connection.sendall(b"HTTP/1.1 200 connected\r\n\r\n")
                pump(connection, outside)
        finally:
            self._free.release()


def wanted(head: bytes) -> str:
    """`name:port` that a request asks to be connected to, in lower case; empty for any other request."""
    found = _CONNECT.match(head)
    return found[1].decode().lower() if found else ""


def _head(connection: socket.socket) -> bytes:
    """Return a request up to its empty line; what has come so far when that is too long."""
    head = b""
    while b"\r\n\r\n" not in head and len(head) < _MOST_HEAD:
        part = connection.recv(1)  # what follows belongs to the tunnel
        if not part:
            break
        head += part
    return head


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
