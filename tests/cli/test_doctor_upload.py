"""`muster doctor` measures a node's way up to a real bucket, and leaves nothing there."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from cli import speeds
from cli.profile import Profile
from cli.speeds import SIZE, probe, promised
from protocol.api.work import UploadTicket
from protocol.http.reach import Reach
from runtime import keystore
from runtime.orchestrator_client import OrchestratorClient
from storage.keys import object_key
from storage.s3 import Bucket
from storage.transfers import http_client
from tests.chain.game import Game
from tests.localnet.services.running import ServiceProcess, running, settings_of
from tests.orchestrator.test_main import Process, game, lease_of, pool_of, process, s3

__all__ = ["game", "process", "s3"]

DIGEST = promised("0x" + "11" * 20)
KEY = object_key("rollouts", DIGEST)


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bucket]:
    with running(ServiceProcess("s3", tmp_path_factory.mktemp("swift") / "data")) as service:
        yield Bucket(settings_of(service))


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    with http_client(Reach(private=True)) as found:
        yield found


def test_the_way_up_is_measured_and_nothing_is_stored(bucket: Bucket, client: httpx.Client) -> None:
    for _ in range(2):
        found = probe(bucket.presign_put(KEY, SIZE, DIGEST), client)
        assert found.detail.startswith("up: ")
        assert found.detail.endswith(" MiB/s (4.0 MiB)")
        assert bucket.size(KEY) is None


def test_a_ticket_that_does_not_count_is_named(bucket: Bucket, client: httpx.Client) -> None:
    ticket = bucket.presign_put(KEY, SIZE, DIGEST)
    found = probe(ticket.model_copy(update={"url": ticket.url[:-4] + "0000"}), client)
    assert (found.state, "answers 403" in found.detail) == ("failed", True)
    assert "clock" in found.hint


def test_a_slow_way_up_ends_in_time_and_is_named(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speeds, "_UP_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        ticket = UploadTicket(
            url=f"http://127.0.0.1:{server.getsockname()[1]}/pool/{KEY}",
            headers={"content-length": str(SIZE)},
            expires=0,
        )
        over = threading.Event()

        def swallow() -> None:
            """A little at a time, for ever."""
            taken, _ = server.accept()
            with taken:
                while not over.wait(0.05) and taken.recv(32 << 10):
                    pass

        threading.Thread(target=swallow, daemon=True).start()
        try:
            found = probe(ticket, client)
        finally:
            over.set()
    assert " MiB/s (" in found.detail
    assert not found.detail.endswith("(4.0 MiB)"), "not everything was sent"


def test_a_bucket_that_checks_no_hash_is_named(client: httpx.Client) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def take() -> None:
            taken, _ = server.accept()
            with taken, taken.makefile("rb") as said:
                while said.readline().strip():
                    pass
                said.read(SIZE)
                taken.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")

        threading.Thread(target=take, daemon=True).start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/pool/{KEY}"
        found = probe(UploadTicket(url=url, headers={"content-length": str(SIZE)}, expires=0), client)
    assert (found.state, "does not name" in found.detail) == ("failed", True)


def test_without_a_nodes_key_it_says_with_what_it_is_measured(tmp_path: Path) -> None:
    assert "node's key" in speeds.up_with_ticket("http://127.0.0.1:9", None).detail
    profile = Profile.model_validate(
        {
            "role": "operator",
            "home": tmp_path,
            "cache": tmp_path,
            "deployment": tmp_path / "d.json",
            "key": {"keystore": tmp_path / "o.json"},
            "node": {"keystore": tmp_path / "n.json"},
        }
    )
    assert "password file" in speeds.up_with_ticket("http://127.0.0.1:9", profile).detail


def test_a_member_measures_with_a_ticket_of_its_own(game: Game, process: Process, tmp_path: Path) -> None:
    _, node = game.node()
    game.publish()
    process.start()
    password = keystore.create_password_file(tmp_path / "pw")
    keystore.store(tmp_path / "n.json", bytes(node.key), password, work_factor=1024)
    values: dict[str, object] = {
        "role": "operator",
        "home": tmp_path,
        "cache": tmp_path,
        "deployment": game.deployed.folder / "deployment.json",
        "key": {"keystore": tmp_path / "o.json"},
        "node": {"keystore": tmp_path / "n.json", "password_file": tmp_path / "pw"},
    }
    profile = Profile.model_validate(values)
    service = OrchestratorClient(process.url, node, pool_of(game))
    lease_of(service, 0)  # the service has seen that the node joined
    service.close()
    assert speeds.up_with_ticket(process.url, profile).detail.endswith(" MiB/s (4.0 MiB)")
    stranger = game.deployed.chain.account()
    keystore.store(tmp_path / "s.json", bytes(stranger.key), password, work_factor=1024)
    values["node"] = {"keystore": tmp_path / "s.json", "password_file": tmp_path / "pw"}
    found = speeds.up_with_ticket(process.url, Profile.model_validate(values))
    assert (found.state, "once the node is in the pool" in found.detail) == ("note", True)
