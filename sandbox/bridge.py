"""Inside a sandbox without a network: leads a port on its loopback to the socket file of the proxy outside.

`python3 bridge.py SOCKET PROGRAM ARGUMENT…` runs the program with HTTPS_PROXY set, passes signals on to it, and ends
with its exit code. Standard library only, and on its own: it is copied into the sandbox.
"""

import os
import select
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress

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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
