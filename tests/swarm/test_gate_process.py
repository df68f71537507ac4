"""`muster swarm run --gate` as a process, on a real S3 server, and members who hold no key of the bucket."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from engines.hf import TransformersEngine
from storage.s3 import Bucket
from swarm.config import GateAccess
from swarm.exchange import GateExchange
from swarm.member import assemble
from tests.conftest import free_port
from tests.localnet.services.running import ServiceProcess, settings_of
from tests.orchestrator.process import Process
from tests.storage.conftest import bucket, s3
from tests.swarm.world import SwarmWorld, run_rounds

__all__ = ["bucket", "s3"]


@pytest.fixture
def gate(world: SwarmWorld, s3: ServiceProcess, bucket: Bucket, tmp_path: Path) -> Iterator[Process]:
    settings = settings_of(s3).model_dump(mode="json")
    members = [world.account(name).address for name in (0, 1)]
    home = tmp_path / "of-the-gate"
    home.mkdir()
    values = {"home": home, "document": world.document, "members": members, "s3": settings, "port": free_port()}
    made = Process(["swarm", "run", "--gate"], home, values)
    made.start()
    try:
        yield made
    finally:
        made.end(signal.SIGKILL)


def through(gate: Process, world: SwarmWorld, name: int) -> GateExchange:
    return GateExchange(GateAccess(url=gate.url), world.account(name))


def test_members_share_without_a_key_of_the_bucket(gate: Process, world: SwarmWorld) -> None:
    config, other = world.config(0, s3=None, gate={"url": gate.url}), world.account(1).address
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
