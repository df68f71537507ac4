"""`muster swarm run --gate` as a process, on a real S3 server, and members who hold no key of the bucket."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from engines.hf import TransformersEngine
from protocol.waits import wait_for
from storage.s3 import Bucket
from swarm.config import GateAccess
from swarm.exchange import GateExchange
from swarm.member import assemble
from tests.conftest import free_port
from tests.localnet.services.running import ServiceProcess, settings_of
from tests.storage.conftest import bucket, s3
from tests.swarm.world import SwarmWorld, run_rounds

__all__ = ["bucket", "s3"]


class GateProcess:
    """With its configuration file."""

    def __init__(self, home: Path, values: dict[str, object]) -> None:
        self.path, self.log = home / "gate.json", home / "gate.log"
        self.values = {**values, "home": home / "gate"}
        home.mkdir()
        self.child: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.values['port']}"

    def start(self) -> None:
        self.path.write_text(json.dumps(self.values, default=str))
        command = [sys.executable, "-m", "cli.main", "swarm", "run", "--gate", "--config", str(self.path)]
        with self.log.open("wb") as log:
            child = self.child = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

        def ready() -> bool:
            assert child.poll() is None, self.log.read_text()
            try:
                return httpx.get(f"{self.url}/health", trust_env=False, timeout=2).json()["ok"] is True
            except httpx.HTTPError:
                return False

        wait_for("the gate", ready, 120)

    def end(self, number: int) -> int:
        assert self.child is not None
        self.child.send_signal(number)
        return self.child.wait(60)


@pytest.fixture
def gate(world: SwarmWorld, s3: ServiceProcess, bucket: Bucket, tmp_path: Path) -> Iterator[GateProcess]:
    settings = settings_of(s3).model_dump(mode="json")
    members = [world.account(name).address for name in (0, 1)]
    values = {"document": world.document, "members": members, "s3": settings, "port": free_port()}
    made = GateProcess(tmp_path / "of-the-gate", values)
    made.start()
    try:
        yield made
    finally:
        made.end(signal.SIGKILL)


def through(gate: GateProcess, world: SwarmWorld, name: int) -> GateExchange:
    return GateExchange(GateAccess(url=gate.url), world.account(name))


def test_members_share_without_a_key_of_the_bucket(gate: GateProcess, world: SwarmWorld) -> None:
    config, other = world.config(0, exchange=None, gate={"url": gate.url}), world.account(1).address
    member = assemble(config, TransformersEngine())
    through(gate, world, 1).publish(world.envelope(1, 0, (0, 1)))
    run_rounds(member, 1)
    assert member.inbox.state.records[other].true == 2
    for _ in range(40):
        run_rounds(member, 1)
        if len(listed := list(through(gate, world, 1).listed())) > 1:
            break
    assert len(listed) > 1, "what the member shared lies there, too"
    assert not member.alone

    assert gate.end(signal.SIGKILL) == -signal.SIGKILL
    run_rounds(member, 1)
    assert member.alone, "nobody waits for it"
    gate.start()
    assert set(listed) <= set(through(gate, world, 1).listed())
    run_rounds(member, 1)
    assert not member.alone
    assert gate.end(signal.SIGTERM) == 0
