"""`muster swarm gate` as a process, on a real chain and a real S3 server, and members who hold no key of the bucket."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from engines.hf import TransformersEngine
from protocol.errors import ConfigError
from protocol.waits import wait_for
from runtime.signed_client import ServiceError
from storage.s3 import Bucket
from swarm.assembly import AssembledMember, assemble, exchange_of
from swarm.config import GateAccess
from swarm.gate.main import run
from swarm.gate_exchange import GateExchange
from tests.conftest import free_port
from tests.localnet.services.running import ServiceProcess, settings_of
from tests.storage.conftest import bucket, s3
from tests.swarm.chain_world import ChainWorld, run_rounds
from tests.swarm.conftest import learnt_a_little, on_chain, world
from tests.swarm.world import DOCUMENT

__all__ = ["bucket", "learnt_a_little", "on_chain", "s3", "world"]


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
        command = [sys.executable, "-m", "cli.main", "swarm", "gate", "--config", str(self.path)]
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
def gate(on_chain: ChainWorld, s3: ServiceProcess, bucket: Bucket, tmp_path: Path) -> Iterator[GateProcess]:
    settings = settings_of(s3).model_dump(mode="json")
    values = {"document": on_chain.world.document, "chain": on_chain.settings(), "s3": settings, "port": free_port()}
    made = GateProcess(tmp_path / "of-the-gate", values)
    made.start()
    try:
        yield made
    finally:
        made.end(signal.SIGKILL)


@pytest.fixture
def joined(on_chain: ChainWorld, gate: GateProcess) -> Callable[[int], AssembledMember]:
    """A member whose configuration names the gate alone."""

    def member(name: int) -> AssembledMember:
        chain, access = on_chain.settings(), {"url": gate.url}
        config = on_chain.world.config(name, exchange=None, gate=access, chain=chain)
        return assemble(config, TransformersEngine(), exchange_of(config))

    return member


def through(gate: GateProcess, on_chain: ChainWorld, name: int) -> GateExchange:
    made = GateExchange(GateAccess(url=gate.url))
    made.sign_as(on_chain.world.account(name), on_chain.limits.swarm)
    return made


def test_members_share_without_a_key_of_the_bucket(
    gate: GateProcess, on_chain: ChainWorld, joined: Callable[[int], AssembledMember]
) -> None:
    member, other = joined(0), on_chain.world.account(1).address
    through(gate, on_chain, 1).publish(on_chain.envelope(1, 0, (0, 1)))
    run_rounds(member, 1)
    assert member.inbox.state.records[other].true == 2
    for _ in range(40):
        run_rounds(member, 1)
        if len(listed := list(through(gate, on_chain, 1).listed())) > 1:
            break
    assert len(listed) > 1, "what the member shared lies there, too"
    assert not member.member.alone

    assert gate.end(signal.SIGKILL) == -signal.SIGKILL
    run_rounds(member, 1)
    assert member.member.alone, "nobody waits for it"
    gate.start()
    assert set(listed) <= set(through(gate, on_chain, 1).listed())
    run_rounds(member, 1)
    assert not member.member.alone
    assert gate.end(signal.SIGTERM) == 0


def test_only_stake_opens_it(gate: GateProcess, on_chain: ChainWorld) -> None:
    stranger = through(gate, on_chain, 2)
    data = on_chain.envelope(2, 0, start=bytes(32))
    with pytest.raises(ServiceError, match="is no member"):
        stranger.publish(data)
    on_chain.join(2, blocks=2)
    with pytest.raises(ServiceError, match="is no member"):
        stranger.publish(data)  # its block may still be replaced
    on_chain.deployed.chain.mine(1)
    stranger.publish(data)
    on_chain.of(2).leave(on_chain.swarm, on_chain.world.account(2).address).send()

    def left() -> bool:
        try:
            stranger.publish(on_chain.envelope(2, 1, start=bytes(32)))
        except ServiceError as error:
            return error.status == 403
        return False

    wait_for("the gate to see who left", left, 30)


def test_another_document_is_refused_at_the_start(gate: GateProcess, on_chain: ChainWorld, tmp_path: Path) -> None:
    another = DOCUMENT.model_copy(update={"name": "another"})
    document = tmp_path / "another.json"
    document.write_text(json.dumps(another.model_dump(mode="json")))
    path = tmp_path / "other-gate.json"
    path.write_text(json.dumps({**gate.values, "document": document, "port": free_port()}, default=str))
    with pytest.raises(ConfigError, match="has another document"):
        run(path)
