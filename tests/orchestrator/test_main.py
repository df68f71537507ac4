"""The orchestrator as a process, on a real chain and a real S3 server: served, killed, restarted, misconfigured."""

import hashlib
import logging
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from orchestrator.config import OrchestratorConfig
from orchestrator.dashboard.results import fetch_record
from orchestrator.main import log_address, run
from protocol.accounts import LocalAccount
from protocol.api.work import NoLease, WorkLease
from protocol.config import EnvironmentConfig, ModelConfig, PoolConfig
from protocol.errors import MusterError
from protocol.identity import PoolId
from protocol.waits import wait_for
from runtime import keystore
from runtime.orchestrator_client import OrchestratorClient
from runtime.server import bound
from tests.chain.game import Game, WorkItem, begin
from tests.conftest import Deployed, free_port
from tests.localnet.services.running import ServiceProcess as Background
from tests.localnet.services.running import running, settings_of
from tests.orchestrator.process import Process

CONFIG = PoolConfig(name="test", model=ModelConfig(source="tiny"), environments=(EnvironmentConfig(name="sums"),))


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Background]:
    with running(Background("s3", tmp_path_factory.mktemp("s3") / "data")) as service:
        yield service


@pytest.fixture
def game(deployed: Deployed, tmp_path: Path) -> Game:
    return begin(deployed, tmp_path, configHash=CONFIG.digest)


@pytest.fixture
def process(game: Game, s3: Background, tmp_path: Path) -> Iterator[Process]:
    home = tmp_path / "orchestrator"
    home.mkdir()
    password = home / "password"
    keystore.create(home / "key.json", keystore.create_password_file(password), work_factor=1024)
    service = keystore.address_of(home / "key.json")
    game.suite.court.set_service(game.pool, service).send()
    game.deployed.chain.fund(service)
    (home / "pool.json").write_bytes(CONFIG.canonical())
    values = {
        "home": home,
        "deployment": game.deployed.folder / "deployment.json",
        "rpc": [game.deployed.chain.url],
        "pool": game.pool,
        "pool_config": home / "pool.json",
        "owner": game.owner.address,
        "key": {"keystore": home / "key.json", "password_file": password},
        "s3": settings_of(s3).model_dump(mode="json"),
        "port": free_port(),
        "confirmations": 1,
        "poll_seconds": 0.1,
        "lane_seconds": 5,
    }
    made = Process(["pool", "serve"], home, values)
    yield made
    if made.child is not None:
        made.end(signal.SIGKILL)


def service_of(process: Process, game: Game, key: LocalAccount) -> OrchestratorClient:
    return OrchestratorClient(process.url, key, PoolId(31337, game.suite.pools.address, game.pool))


def lease_of(service: OrchestratorClient, counter: int) -> WorkLease:
    """The service learns of new blocks within moments."""

    def ask() -> WorkLease | None:
        answer = service.request_lease(counter)
        return None if isinstance(answer, NoLease) else answer

    return wait_for("a lease", ask, 20)


def test_a_file_from_lease_to_receipt_through_kills(process: Process, game: Game, s3: Background) -> None:
    _, node = game.node()
    step = game.publish()
    process.start()
    service = service_of(process, game, node)
    lease = lease_of(service, 0)
    assert (lease.step, lease.counter) == (step, 0)
    process.end(signal.SIGKILL)
    process.start()
    assert lease_of(service, 0).lease == lease.lease

    data = os.urandom(5000)
    service.upload_rollouts(data)
    digest = hashlib.sha256(data)
    said = WorkItem(bytes(32), digest.digest(), 100, 1).signed(node, game.pool_id, step, 0).file
    file = said.model_copy(update={"size": len(data)})
    receipt = service.hand_in(file).receipt
    assert service.hand_in(file).receipt == receipt
    receipt.check(game.pool_id, node.address, digest.hexdigest(), len(data))
    assert receipt.signer == keystore.address_of(process.home / "key.json")
    assert process.get(f"/v1/objects/rollouts/{digest.hexdigest()}.parquet").content == data

    # Killed between taking the file and relaying it, it relays it all the same.
    process.end(signal.SIGKILL)
    process.start()
    wait_for("the file to land", lambda: service.hand_in(file).state == "landed", 60)
    assert lease_of(service, 1).lease != lease.lease
    record = fetch_record(process.url, game.suite.client.head().number, 30)
    assert record.reconciliation is not None
    assert record.reconciliation.findings == []
    assert record.reconciliation.escrow_balanced is True
    assert record.in_flight.model_dump() == {"leased": 1, "pending": 1, "accepted": 0, "needed": 120, "expected": 2.0}
    service.close()
    assert process.end(signal.SIGTERM) == 0


def test_workers_that_share_a_port_are_one_service(process: Process, game: Game) -> None:
    process.values |= {"workers": 2}
    _, node = game.node()
    game.publish()
    process.start()
    assert process.child is not None
    parent = psutil.Process(process.child.pid)
    wait_for("both workers", lambda: len(listening(parent)) == 2, 60)

    leases = set()
    for _ in range(16):  # each by a connection of its own
        service = service_of(process, game, node)
        leases.add(lease_of(service, 0).lease)
        service.close()
    assert len(leases) == 1
    look_whether_ready(process, 16)
    wait_for("the requests of both", lambda: times_ready(process) == 16, 20)

    first, second = listening(parent)
    second.kill()
    wait_for("its end", lambda: second not in listening(parent), 30)
    look_whether_ready(process, 16)
    wait_for("its successor", lambda: len(listening(parent)) == 2, 60)
    assert first in listening(parent)
    look_whether_ready(process, 16)
    wait_for("the requests of all three", lambda: times_ready(process) == 48, 20)
    assert process.end(signal.SIGTERM) == 0
    wait_for("the workers' end", lambda: not first.is_running(), 20)


def listening(parent: psutil.Process) -> list[psutil.Process]:
    """Those of its processes that take connections, in the order of their start."""
    found = []
    for one in parent.children():
        with suppress(psutil.NoSuchProcess):
            if any(line.status == psutil.CONN_LISTEN for line in one.net_connections("tcp")):
                found.append(one)
    return sorted(found, key=lambda one: one.pid)


def look_whether_ready(process: Process, times: int) -> None:
    for _ in range(times):
        assert process.get("/ready").status_code == 200


def times_ready(process: Process) -> float:
    """How often it was looked, by whichever process is asked."""
    families = text_string_to_metric_families(process.get("/metrics").text)
    (asked,) = (family for family in families if family.name == "muster_request_seconds")
    ready = [one for one in asked.samples if one.labels["route"] == "/ready" and one.name.endswith("_count")]
    return sum(sample.value for sample in ready)


def test_the_log_names_the_address_that_it_listens_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    values: dict[str, Any] = {"home": tmp_path, "deployment": "d", "rpc": ["r"], "pool": 7, "pool_config": "p"}
    values |= {"key": {"keystore": "k"}, "s3": {"endpoint": "http://e", "bucket": "pool", "credentials": "c"}}
    config = OrchestratorConfig.model_validate(values | {"port": 8700, "public_url": "https://pool.example:9443"})
    caplog.set_level(logging.INFO, "muster.orchestrator")
    with bound("127.0.0.1", 0) as listener:
        log_address(config, listener)
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    lines = [record.getMessage() for record in caplog.records]
    assert lines == [
        f"listening on http://{address} for pool 7",
        f"clients reach this service at https://pool.example:9443: the reverse proxy there must forward to {address}",
    ]


@pytest.mark.slow
def test_the_chain_may_go_away_and_come_back(process: Process, game: Game) -> None:
    game.publish()
    process.start()
    chain = game.deployed.chain
    assert chain.process is not None
    chain.process.send_signal(signal.SIGSTOP)
    try:
        assert process.get("/v1/status").json()["step"] == 0
        said = wait_for("a word on the chain", lambda: process.get("/v1/status").json()["chain_error"] or None, 60)
        assert "does not answer" in said
    finally:
        chain.process.send_signal(signal.SIGCONT)
    game.publish()
    wait_for("the new step", lambda: process.get("/v1/status").json()["step"] == 1, 60)


def test_what_an_owner_can_mend_is_one_line(process: Process, game: Game, s3: Background) -> None:
    good, wrong, foreign = dict(process.values), process.home / "wrong", process.home / "foreign.json"
    keystore.create_password_file(wrong)
    foreign.write_bytes(CONFIG.model_copy(update={"name": "other"}).canonical())
    cases: list[tuple[dict[str, Any], str]] = [
        ({"pool": 77}, "there is no pool 77"),
        ({"owner": game.deployed.chain.account().address}, "belongs to"),
        ({"rpc": [s3.url]}, "refuses access"),
        ({"color": "red"}, "`color`"),
        ({"port": "x"}, "`port`"),
        ({"database": "mysql://x"}, "database"),
        ({"deployment": process.home / "none.json"}, "deployment file"),
        ({"key": {"keystore": process.home / "key.json", "password_file": wrong}}, "wrong password"),
        ({"pool_config": foreign}, "was created with configuration"),
        ({"s3": {**good["s3"], "endpoint": f"http://127.0.0.1:{free_port()}"}}, "does not answer"),
    ]
    for changes, words in cases:
        with pytest.raises(MusterError) as caught:
            run(process.configured({**good, **changes}))
        line = str(caught.value)
        assert words in line, (words, line)
        assert "; " in line, line
    for count in (1, 2):
        busy = process.ends({**good, "workers": count, "port": s3.port})
        assert f"cannot listen on 127.0.0.1:{s3.port}: Address already in use; stop what uses it" in busy
    assert "there is no pool 77" in process.ends({**good, "workers": 2, "pool": 77})
