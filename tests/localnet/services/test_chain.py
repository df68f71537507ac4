import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from cli.diagnose.checks import machine
from localnet.background import check_programs
from localnet.services.chain import find_anvil
from protocol.errors import ConfigError
from protocol.waits import wait_for
from tests.localnet.services.running import ServiceProcess, running

pytestmark = pytest.mark.skipif(not any(Path("node_modules").glob("@foundry-rs/anvil-*")), reason="npm install first")


def rpc(service: ServiceProcess, method: str, *params: Any) -> Any:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    fields = httpx.post(service.url, json=body, timeout=10, trust_env=False).json()
    assert "error" not in fields, fields
    return fields["result"]


def block(service: ServiceProcess, number: str = "latest") -> tuple[int, int, str]:
    found = rpc(service, "eth_getBlockByNumber", number, False)
    return int(found["number"], 16), int(found["timestamp"], 16), found["hash"]


def send(service: ServiceProcess, **fields: str) -> dict[str, Any]:
    accounts = rpc(service, "eth_accounts")
    made = rpc(service, "eth_sendTransaction", {"from": accounts[0], "gas": "0x30000", **fields})
    receipt: dict[str, Any] = wait_for("a receipt", lambda: rpc(service, "eth_getTransactionReceipt", made), 60)
    return receipt


def anvil_of(service: ServiceProcess) -> list[int]:
    """Process ids of the children of a service."""
    assert service.process is not None
    text = Path(f"/proc/{service.process.pid}/task/{service.process.pid}/children").read_text()
    return [int(word) for word in text.split()]


@pytest.fixture
def chain(tmp_path: Path) -> Iterator[ServiceProcess]:
    with running(ServiceProcess("chain", tmp_path / "chain")) as service:
        yield service


def test_kill_loses_at_most_the_last_seconds(chain: ServiceProcess) -> None:
    receipt = send(chain, data="0x60006000a000")
    assert len(receipt["logs"]) == 1
    number = int(receipt["blockNumber"], 16)
    wait_for("the state to be saved", lambda: _saved_block(chain) >= number, 60)
    before = block(chain, hex(number))
    (child,) = anvil_of(chain)
    chain.kill()
    wait_for("anvil to die with its parent", lambda: not Path(f"/proc/{child}").exists() or None, 60)
    time.sleep(1.5)
    chain.start()
    assert block(chain, hex(number)) == before, "saved blocks are the same blocks"
    again = rpc(chain, "eth_getTransactionReceipt", receipt["transactionHash"])
    assert (again["blockHash"], len(again["logs"])) == (receipt["blockHash"], 1)
    found = rpc(chain, "eth_getLogs", {"fromBlock": "0x0", "toBlock": "latest", "address": receipt["contractAddress"]})
    assert len(found) == 1
    _check_clock(chain)
    assert int(rpc(chain, "eth_chainId"), 16) == 31337
    latest = block(chain)[0]
    assert int(rpc(chain, "eth_getBalance", rpc(chain, "eth_accounts")[0], hex(latest - 1)), 16) > 0


def _saved_block(service: ServiceProcess) -> int:
    try:
        return int(json.loads((service.data / "state.json").read_text())["best_block_number"])
    except (OSError, ValueError):
        return -1


def _check_clock(service: ServiceProcess) -> None:
    """Times rise from block to block, and new blocks bear the wall clock's time."""
    first = block(service)
    wait_for("three more blocks", lambda: block(service)[0] >= first[0] + 3 or None, 60)
    number, stamp, _ = block(service)
    assert abs(stamp - time.time()) < 10
    stamps = [block(service, hex(n))[1] for n in range(number + 1)]
    assert stamps == sorted(set(stamps))


def test_a_clean_stop_loses_nothing_and_old_block_hashes_can_still_be_read(chain: ServiceProcess) -> None:
    receipt = send(chain, to="0x" + "12" * 20, value="0x5")
    latest, genesis = block(chain)[0], block(chain, "0x0")
    for _ in range(5):  # anvil adds a genesis block at every start and would load any of them
        assert chain.stop() == 0
        chain.start()
        assert block(chain, "0x0") == genesis
        time.sleep(1)
    assert block(chain)[0] >= latest
    assert rpc(chain, "eth_getTransactionReceipt", receipt["transactionHash"])["blockHash"] == receipt["blockHash"]
    assert int(rpc(chain, "eth_getBalance", "0x" + "12" * 20, "latest"), 16) == 5
    wait_for("blocks", lambda: block(chain)[0] >= 5 or None, 60)
    for number in (1, block(chain)[0] - 1):  # EIP-2935, which seeds are read from
        call = {"to": "0x0000F90827F1C53a10cb7A02335B175320002935", "data": "0x" + number.to_bytes(32, "big").hex()}
        assert rpc(chain, "eth_call", call, "latest") == block(chain, hex(number))[2]


def test_only_the_newest_blocks_keep_their_state(chain: ServiceProcess) -> None:
    rpc(chain, "anvil_mine", hex(100), hex(1))
    height = block(chain)[0]
    wait_for("the state to be saved", lambda: _saved_block(chain) >= height, 60)
    saved = json.loads((chain.data / "state.json").read_text())
    assert len(saved["blocks"]) > 100
    assert 2 <= len(saved["historical_states"]) <= 64


def test_a_dead_anvil_ends_the_service_and_no_log_has_a_private_key(chain: ServiceProcess) -> None:
    (child,) = anvil_of(chain)
    os.kill(child, signal.SIGKILL)
    assert chain.process is not None
    assert chain.process.wait(60) == 2
    assert "anvil ended" in chain.log.read_text()
    text = chain.log.read_text() + (chain.data / "anvil.log").read_text()
    assert "ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80" not in text
    assert "test test" not in text


def fails(service: ServiceProcess) -> str:
    done = subprocess.run(service.command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2, done.stderr
    lines = [line for line in done.stderr.splitlines() if " I muster" not in line]
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("muster: ")
    assert "Traceback" not in done.stderr
    return lines[0]


@pytest.mark.parametrize("name", ["chain", "s3"])
def test_port_in_use(name: str, tmp_path: Path) -> None:
    with running(ServiceProcess(name, tmp_path / "one")) as service:
        assert f"port {service.port}" in fails(ServiceProcess(name, tmp_path / "two", port=service.port))
        assert "in use by another" in fails(ServiceProcess(name, service.data))


@pytest.mark.parametrize(("name", "file"), [("chain", "state.json"), ("s3", "etc/credentials.json")])
def test_a_damaged_file_is_kept_and_named(name: str, file: str, tmp_path: Path) -> None:
    service = ServiceProcess(name, tmp_path / name)
    path = service.data / file
    path.parent.mkdir(parents=True)
    path.write_bytes(b"{")
    assert "damaged" in fails(service)
    assert path.read_bytes() == b"{"


def test_no_other_address_of_the_machine_is_listened_on(tmp_path: Path) -> None:
    with running(ServiceProcess("s3", tmp_path / "s3")) as service, socket.socket() as client:
        client.settimeout(10)
        assert client.connect_ex(("127.0.0.2", service.port)) != 0


@pytest.mark.parametrize("name", ["chain", "s3"])
def test_data_folder_that_cannot_be(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert "choose another --data" in fails(ServiceProcess(name, tmp_path / "file" / "inside"))


def test_missing_anvil(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("localnet.__file__", str(tmp_path / "localnet" / "__init__.py"))
    monkeypatch.setenv("PATH", str(tmp_path))
    for look in (find_anvil, check_programs):
        with pytest.raises(ConfigError, match="npm install -g @foundry-rs/anvil"):
            look()
    assert {one.check: one.state for one in machine()}["anvil"] == "note", "no operator needs a local chain"


def test_missing_swift(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "swift", None)
    with pytest.raises(ConfigError, match=r"muster\[localnet\]"):
        check_programs()


@pytest.mark.slow
def test_many_kills_at_random_moments(chain: ServiceProcess) -> None:
    """Whatever a kill interrupts, the chain comes back with a prefix of its blocks and a rising clock."""
    rng = random.Random(0)
    known: dict[int, str] = {}
    for _ in range(12):
        end = time.monotonic() + rng.uniform(0.1, 3.5)
        while time.monotonic() < end:
            number, _, digest = block(chain)
            known[number] = digest
            time.sleep(0.02)
        chain.kill()
        chain.start()
        head = block(chain)[0]
        kept = [number for number in known if number <= head and block(chain, hex(number))[2] == known[number]]
        lost = set(known) - set(kept)
        assert not lost or min(lost) > max(kept, default=-1), "what is lost is a tail"
        assert len(lost) <= 6
        known = {number: known[number] for number in kept}
    _check_clock(chain)
