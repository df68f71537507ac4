"""`muster up` as a user runs it: a killed process comes back, a killed supervisor is replaced, the chain goes on."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.e2e.running import muster, processes_of

pytestmark = [pytest.mark.slow, pytest.mark.e2e, pytest.mark.timeout(2400)]
SECONDS = 900.0


class Lasting:
    """A network in a folder of its own, asked through its commands alone."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def run(self, command: str, *options: str, code: int = 0) -> str:
        done = muster(command, "--folder", str(self.root), *options, timeout=SECONDS)
        assert done.returncode == code, done.stdout + done.stderr + self.logs()
        return done.stdout

    def logs(self) -> str:
        return "\n".join(f"{path.name}: {path.read_text()[-1500:]}" for path in (self.root / "logs").glob("*.log"))

    def ps(self) -> dict[str, Any]:
        done = muster("ps", "--json", "--folder", str(self.root))
        return dict(json.loads(done.stdout))

    def process(self, name: str) -> dict[str, Any]:
        return next(dict(one) for one in self.ps()["processes"] if one["name"] == name)

    def pids(self) -> set[int]:
        return set(processes_of(self.root))

    def until(self, what: Callable[[], bool]) -> None:
        end = time.monotonic() + SECONDS
        while not what():
            assert time.monotonic() < end, self.logs()
            time.sleep(0.5)

    def chain(self, method: str, *params: Any) -> Any:
        port = json.loads((self.root / "network.json").read_text())["port"]
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return httpx.post(f"http://127.0.0.1:{port}", json=body, timeout=30, trust_env=False).json()["result"]

    def pools(self) -> tuple[str, int]:
        """The address of the contract of pools, and the number of the newest block."""
        deployment = json.loads((self.root / "deployment" / "deployment.json").read_text())
        return deployment["contracts"]["Pools"]["address"], int(self.chain("eth_blockNumber"), 16)

    def submitted(self) -> int:
        return len(httpx.get(f"{self.ps()['url']}/v1/record", timeout=30, trust_env=False).json()["submissions"])


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Lasting]:
    lasting = Lasting(tmp_path / "net")
    yield lasting
    muster("down", "--folder", str(lasting.root), timeout=SECONDS)
    assert lasting.pids() == set()


def test_a_network_outlives_kills_and_a_night(network: Lasting) -> None:
    assert "muster down" in network.run("up", "--workers", "1", "--validators", "1", "--steps", "50")
    network.run("ps")
    supervisor = psutil.Process(network.ps()["supervisor"])
    assert supervisor.parent() is None or supervisor.parent() != psutil.Process()
    network.until(lambda: network.submitted() > 0)

    for name in ("s3", "worker-1"):
        pid = network.process(name)["pid"]
        os.kill(pid, signal.SIGKILL)
        network.until(lambda name=name, pid=pid: network.process(name)["pid"] not in (None, pid))  # type: ignore[misc]
        assert network.process(name)["restarts"] == 1
        assert network.process(name)["exit_code"] == -signal.SIGKILL

    where, block = network.pools()
    code, files = network.chain("eth_getCode", where, "latest"), network.submitted()
    assert len(code) > 1000
    supervisor.kill()
    network.until(lambda: not network.pids())
    assert "was killed" in network.ps()["problem"]
    network.run("ps", code=1)

    network.run("up")
    assert network.pools()[1] >= block - 20, "the chain may lose its last save, no more"
    assert network.chain("eth_getCode", where, "latest") == code
    network.until(lambda: network.submitted() >= files)

    kept = network.submitted()
    network.run("down")
    assert network.pids() == set()
    assert network.ps()["phase"] == "down"
    network.run("up")
    assert network.submitted() >= kept
    assert network.chain("eth_getCode", where, "latest") == code
    network.until(lambda: network.submitted() > kept)
