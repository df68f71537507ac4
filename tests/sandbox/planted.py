"""What the escape suite tries to get at: services, sockets, files and a process outside."""

import os
import secrets
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.sandbox import escapes

SUITE = Path(escapes.__file__).parent


@contextmanager
def planted(folder: Path) -> Iterator[dict[str, Any]]:
    """Under `folder`; what the suite is told of it. A `writable` and a `read_only` folder are there to be mounted."""
    token, victims = f"planted-{secrets.token_hex(8)}", f"victim-{secrets.token_hex(8)}"
    for name in ("writable", "read_only", "home"):
        (folder / name).mkdir(mode=0o777)
        (folder / name).chmod(0o777)
    secret = folder / "home" / "secret"
    secret.write_text(token)
    secret.chmod(0o644)  # file permissions are not what protects it
    with ExitStack() as stack:
        argv = [sys.executable, "-S", "-m", "escapes", "--rest", victims]
        victim = subprocess.Popen(argv, cwd=SUITE.parent, stdout=subprocess.DEVNULL)
        stack.callback(_end, victim)
        listeners = [_listener(("127.0.0.1", 0)), _listener(("0.0.0.0", 0)), _listener(f"\0{token}")]
        answering = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        answering.bind(("127.0.0.1", 0))
        for service in (*listeners, answering):
            stack.callback(service.close)
            threading.Thread(target=_serve, args=(service,), daemon=True).start()
        yield {
            "token": token,
            "tcp": listeners[0].getsockname()[1],
            "tcp_everywhere": listeners[1].getsockname()[1],
            "udp": answering.getsockname()[1],
            "abstract": token,
            "address": _own_address(),
            "secret": str(secret),
            "shadow": text_of(Path("/etc/shadow")),
            "beside": str(folder / "beside"),
            "read_only": str(folder / "read_only"),
            "writable": [str(folder / "writable"), "/tmp", "/dev/shm", "/proc", "/sys"],
            "victim": victim.pid,
            "victim_backwards": victims[::-1],
            "init_environment": text_of(Path("/proc/1/environ")),
        }


def _listener(address: Any) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET)
    listener.bind(address)
    listener.listen()
    return listener


def _serve(service: socket.socket) -> None:
    """Greet whoever comes, until it is closed."""
    with suppress(OSError):
        while True:
            if service.type == socket.SOCK_DGRAM:
                service.sendto(b"here I am", service.recvfrom(64)[1])
            else:
                connection, _ = service.accept()
                with connection:
                    connection.sendall(b"here I am")


def _own_address() -> str:
    """Of the interface that leads outside; no packet is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        with suppress(OSError):
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
    return "127.0.0.1"


def text_of(path: Path) -> str:
    """What a file holds; empty if it cannot be read."""
    try:
        return path.read_bytes().decode(errors="replace")
    except OSError:
        return ""


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()


def running(token: str) -> list[int]:
    """The processes with a word in their command line, without our own."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if token.encode() in path.read_bytes() and int(path.parent.name) != os.getpid():
                found.append(int(path.parent.name))
    return found
