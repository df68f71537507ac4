"""When a lasting network says that it is up."""

import json
import signal
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from localnet.lasting.folder import LastingSettings, NetworkFolder
from localnet.lasting.network import LastingNetwork
from localnet.lasting.state import NetworkPhase
from localnet.supervisor import Child
from protocol.errors import MusterError

WAITS = "waiting for the trainer to publish policy step 0"


class StatusService:
    """A pool's service: `steps` are what it answers one after the other, the last for ever."""

    def __init__(self, steps: list[int | None]) -> None:
        self.steps, service = steps, self

        class StatusHandler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                step = service.steps.pop(0) if len(service.steps) > 1 else service.steps[0]
                body = json.dumps({"step": step}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), StatusHandler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def service() -> Iterator[StatusService]:
    made = StatusService([None, None, 0])
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def network(service: StatusService, tmp_path: Path) -> Iterator[LastingNetwork]:
    """Its processes run but for the trainer, which is silent."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    made = LastingNetwork(NetworkFolder(tmp_path), LastingSettings(port=service.server.server_port - 2))
    made.network.supervisor.children["trainer"] = Child("trainer", [], tmp_path / "trainer.log")
    yield made
    for number, handler in handlers.items():
        signal.signal(number, handler)


def test_it_waits_for_weights_and_says_so(network: LastingNetwork, service: StatusService) -> None:
    network._wait_for_weights()
    assert service.steps == [0]
    standing = network.standing()
    assert (standing.phase, standing.doing) == (NetworkPhase.STARTING, WAITS)


def test_without_weights_it_fails_with_the_trainers_last_words(
    network: LastingNetwork, service: StatusService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localnet.lasting.network._WEIGHTS_SECONDS", 0.1)
    service.steps = [None]
    (tmp_path / "trainer.log").write_text("no memory\n")
    with pytest.raises(MusterError, match=r"publish policy step 0 in vain: no memory"):
        network._wait_for_weights()
