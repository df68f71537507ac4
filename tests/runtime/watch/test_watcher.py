"""The watch over a real chain and a service that can fail: what it raises, serves to Prometheus and posts."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from protocol.errors import ConfigError
from protocol.version import VERSION
from runtime.watch.config import WatchConfig
from runtime.watch.main import Watcher, serve_gauges
from runtime.watch.memory import CLEAR_AFTER
from tests.conftest import Deployed, free_port
from tests.orchestrator.chain import NODE

ADDRESS = str(NODE.address)


class FailingService:
    """Answers what a pool's service does, or `statuses` in its place; takes webhooks at /hook."""

    def __init__(self) -> None:
        self.documents: dict[str, Any] = {
            "/health": {"ok": True, "version": VERSION},
            "/ready": {"problems": []},
            "/v1/status": {"phase": "training"},
            f"/v1/nodes/{ADDRESS}": {"state": "healthy", "phase": "generating", "metrics": {"made": 1.0}},
        }
        self.statuses: dict[str, int] = {}
        self.posted: list[dict[str, Any]] = []
        service = self

        class ServiceHandler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status = service.statuses.get(self.path, 200 if self.path in service.documents else 404)
                self.answer(status, json.dumps(service.documents.get(self.path, {})).encode())

            def do_POST(self) -> None:
                service.posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.answer(200, b"")

            def answer(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), ServiceHandler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def service() -> Iterator[FailingService]:
    running = FailingService()
    yield running
    running.close()


def watch_config(deployed: Deployed, service: FailingService, home: Path, **more: object) -> WatchConfig:
    secret = home / "secret"
    secret.write_text("0123456789abcdef")
    secret.chmod(0o600)
    values = {
        "home": home,
        "deployment": deployed.folder / "deployment.json",
        "rpc": [deployed.chain.url],
        "pool": 1,
        "orchestrator": service.url,
        "node": ADDRESS,
        "accounts": {"governor": str(deployed.governance.address)},
        "folders": {"home": home},
        "free_gib": 0,
        "listen": "",
        "webhooks": [{"url": f"{service.url}/hook", "secret_file": secret}],
    }
    return WatchConfig.model_validate(values | more)


def test_each_fault_is_raised_by_the_next_look_and_over_once_it_is_gone(
    deployed: Deployed, service: FailingService, tmp_path: Path
) -> None:
    watcher = Watcher(watch_config(deployed, service, tmp_path))

    def raised() -> set[str]:
        deployed.chain.mine()
        watcher.once()
        return set(watcher.memory.raised)

    assert raised() == set()
    assert watcher.facts.transactions_left["governor"] > 1000

    service.statuses |= {"/ready": 503, "/v1/status": 500, f"/v1/nodes/{ADDRESS}": 500}
    assert raised() == {"database_lost"}, "a service without its database can say little else"
    service.statuses.clear()
    service.documents["/ready"] = {"problems": ["lane 4 is not attested"]}
    assert raised() == {"database_lost", "service_trouble"}
    service.documents["/ready"] = {"problems": []}
    for _ in range(CLEAR_AFTER):
        last = raised()
    assert last == set()

    deployed.chain.fund(deployed.governance.address, 1)
    assert raised() == {"gas_low"}
    deployed.chain.fund(deployed.governance.address)
    service.documents[f"/v1/nodes/{ADDRESS}"]["state"] = "dead"
    assert raised() == {"gas_low", "process_gone"}

    watcher.outbox.deliver(watcher.facts.now)
    told = [(one["event"], one.get("alarm")) for one in service.posted]
    assert told == [
        ("database_lost", None),
        ("service_trouble", None),
        ("alarm_over", "database_lost"),
        ("alarm_over", "service_trouble"),
        ("gas_low", None),
        ("process_gone", None),
    ]
    assert service.posted[0]["cure"]
    again = Watcher(watch_config(deployed, service, tmp_path))
    assert set(again.memory.raised) == {"gas_low", "process_gone"}, "a restart tells nothing twice"


def test_a_process_that_is_killed_is_named_by_the_next_look(
    deployed: Deployed, service: FailingService, tmp_path: Path
) -> None:
    home = tmp_path / "worker"
    (home / "logs").mkdir(parents=True)
    (home / "logs" / "worker.log").write_text("INFO claim\nERROR the GPU has fallen off the bus\n")
    watcher = Watcher(watch_config(deployed, service, tmp_path, process=home))

    def raised() -> set[str]:
        deployed.chain.mine()
        watcher.once()
        return set(watcher.memory.raised)

    with working_in(home) as process:
        assert raised() == set()
        process.kill()
        process.wait()
        assert raised() == {"process_gone"}, "while the service still says: healthy"
        watcher.outbox.deliver(watcher.facts.now)
        assert "the GPU has fallen off the bus" in service.posted[0]["what"]
    with working_in(home):
        for _ in range(CLEAR_AFTER):
            last = raised()
        assert last == set()


@contextmanager
def working_in(home: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that keeps its chain events in `home`, as every role does."""
    program = f"""
from pathlib import Path
from chain.store import EventStore
store = EventStore(Path({str(home)!r}) / "chain" / "events.sqlite", {{}})
print("open", flush=True)
input()
"""
    order = [sys.executable, "-c", program]
    with subprocess.Popen(order, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        yield process
        process.kill()


def test_a_chain_and_a_service_that_are_gone_are_named_and_come_back(
    deployed: Deployed, service: FailingService, tmp_path: Path
) -> None:
    watcher = Watcher(watch_config(deployed, service, tmp_path))
    watcher.once()
    service.close()
    watcher.once()
    assert set(watcher.memory.raised) == {"service_lost"}
    assert service.url in watcher.facts.service_error
    deployed.chain.kill()
    watcher.once()
    assert set(watcher.memory.raised) == {"chain_lost", "service_lost"}
    assert "does not answer" in watcher.facts.chain_error


def test_a_service_that_answers_nonsense_is_lost_not_a_crash(
    deployed: Deployed, service: FailingService, tmp_path: Path
) -> None:
    answers: list[Any] = [None, [], {"version": 7}, "x"]
    for nonsense in answers:
        service.documents["/ready"] = nonsense
        watcher = Watcher(watch_config(deployed, service, tmp_path))
        watcher.once()
        assert set(watcher.memory.raised) == {"service_lost"}, nonsense
        assert "answers what no service does" in watcher.facts.service_error


def test_an_owner_is_told_that_a_guard_stopped_the_trainer(
    deployed: Deployed, service: FailingService, tmp_path: Path
) -> None:
    phase = "stopped: training has become unstable"
    service.documents["/v1/dashboard"] = {"others": [{"role": "trainer", "phase": phase}]}
    for owner in (False, True):
        watcher = Watcher(watch_config(deployed, service, tmp_path, node=None, owner=owner))
        watcher.once()
        assert ("training_unstable" in watcher.memory.raised) is owner


def test_gauges_are_served_and_a_taken_port_is_named(
    deployed: Deployed, service: FailingService, tmp_path: Path
) -> None:
    listen = f"127.0.0.1:{free_port()}"
    watcher = Watcher(watch_config(deployed, service, tmp_path))
    service.statuses["/ready"] = 503
    watcher.once()
    close = serve_gauges(listen, watcher)
    try:
        text = httpx.get(f"http://{listen}/metrics", trust_env=False, timeout=60).text
        assert 'muster_watch_alarm{alarm="database_lost"} 1.0' in text
        assert 'muster_watch_alarm{alarm="gas_low"} 0.0' in text
        assert "muster_watch_letters 1.0" in text
        with pytest.raises(ConfigError, match=r"`listen` .*in use"):
            serve_gauges(listen, watcher)
    finally:
        close()


def test_a_deployment_of_another_chain_is_refused(deployed: Deployed, service: FailingService, tmp_path: Path) -> None:
    other = deployed.deployment.model_copy(update={"chain_id": 5})
    path = tmp_path / "other.json"
    path.write_text(other.model_dump_json())
    with pytest.raises(ConfigError):
        Watcher(watch_config(deployed, service, tmp_path, deployment=path)).once()
