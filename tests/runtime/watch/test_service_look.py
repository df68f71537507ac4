"""What a pool's service says is a stranger's words: an alarm shows little of it, and nothing that moves a terminal."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from runtime.watch.service_look import ServiceView

NODE = "0x" + "11" * 20
ESCAPE = "\x1b]0;owned\x07\u202e" + "x" * 5000
ANSWERS: dict[str, Any] = {
    "/health": {"version": ESCAPE},
    "/ready": {"problems": [ESCAPE] * 1000},
    "/v1/status": {"phase": "training"},
    f"/v1/nodes/{NODE}": {"state": "healthy", "phase": "trouble", "trouble": ESCAPE},
    "/v1/dashboard": {"others": [{"role": "trainer", "phase": "stopped: " + ESCAPE}]},
}


class HostileService(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps(ANSWERS[self.path]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture
def service() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), HostileService)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_services_words_are_few_and_printable(service: str) -> None:
    view = ServiceView(service, NODE, owner=True, allow_private=True)
    try:
        found = view.look()
    finally:
        view.close()
    assert found.trainer.startswith("stopped: ")
    assert found.problems
    words = [found.version, found.trouble, found.trainer, *found.problems]
    assert all(one and one.isprintable() for one in words)
    assert sum(map(len, words)) < 3000
