"""The event follower through restarts, reorganisations, kills and endpoints that misbehave."""

import gzip
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from eth_abi.abi import encode

from chain.events import Event
from chain.follower import Follower
from chain.projection import Projection
from chain.reducers import replay
from chain.sender import Call
from protocol.errors import ConfigError, MusterError, UnreachableError
from tests.chain.proxy import Proxy
from tests.conftest import GRAINS, Deployed

ALICE = "0x00000000000000000000000000000000000A11cE"


@pytest.fixture
def proxy(deployed: Deployed) -> Iterator[Proxy]:
    made = Proxy(deployed.chain.url)
    yield made
    made.close()


def mint(deployed: Deployed, grains: int) -> None:
    deployed.suite(deployed.governance).token.mint(ALICE, grains).send()


def follow(deployed: Deployed, path: Path, **options: Any) -> Follower:
    return Follower(deployed.chain.client(), deployed.deployment, path / "events.db", **options)


def amounts(events: list[Event]) -> list[int]:
    return [e.args["value"] for e in events if e.key == ("MusterToken", "Transfer")]


def test_it_goes_on_where_it_stopped(deployed: Deployed, tmp_path: Path) -> None:
    mint(deployed, 1)
    follower = follow(deployed, tmp_path)
    first = follower.poll()
    assert amounts(first.events) == [1]
    assert first.rollback_to is None
    assert follower.poll().events == []
    follower.close()
    mint(deployed, 2)
    follower = follow(deployed, tmp_path)
    assert amounts(list(follower.history())) == [1]
    batch = follower.poll()
    assert amounts(batch.events) == [2]
    (event,) = batch.events
    block = deployed.chain.client().block(event.block)
    assert block is not None
    assert (event.block_hash, event.timestamp) == (block.hash, block.time)
    assert batch.head == follower.head == block.number
    assert amounts(list(follower.history())) == [1, 2]


@pytest.mark.parametrize(
    "text", [b"\xff\xfe", b"\x80" * 3000, b"\xed\xa0\x80", b"\0\n"], ids=["bom", "long", "surrogate", "nul"]
)
def test_text_that_is_none_stops_nobody(deployed: Deployed, tmp_path: Path, text: bytes) -> None:
    """Any account may emit a mirror's URL, and the contract does not read it."""
    announce = deployed.suite(deployed.governance).pools.announce_mirror(0, 0, "")
    data = announce.data[:4] + encode(["uint256", "uint256", "bytes"], [0, 0, text])
    deployed.suite(deployed.governance).client.send(Call(announce.to, data, "Pools.announceMirror"))
    follower = follow(deployed, tmp_path)
    (event,) = [event for event in follower.poll().events if event.name == "MirrorAnnounced"]
    assert event.args["uri"] == text.decode("utf-8", "replace")
    event.args["uri"].encode()


def test_a_reorganisation_is_rolled_back(deployed: Deployed, tmp_path: Path) -> None:
    follower = follow(deployed, tmp_path)
    mint(deployed, 1)
    projection = Projection(follower)
    projection.refresh()
    stable = follower.head
    for grains in (10, 20):
        mint(deployed, grains)
        assert projection.refresh()
    assert projection.state.balances[ALICE] == 31
    deployed.chain.rpc("anvil_reorg", 2, [])
    assert projection.refresh()
    assert projection.generation == 1
    assert follower.generation == 1
    assert projection.state.balances[ALICE] == 1
    assert projection.state.head == stable + 2
    mint(deployed, 5)
    projection.refresh()
    assert projection.state.balances[ALICE] == 6
    again = replay(follower.history())
    again.head = projection.state.head
    assert again == projection.state


def test_a_reorganisation_while_it_was_stopped(deployed: Deployed, tmp_path: Path) -> None:
    mint(deployed, 1)
    follower = follow(deployed, tmp_path)
    follower.poll()
    mint(deployed, 10)
    follower.poll()
    follower.close()
    deployed.chain.rpc("anvil_reorg", 1, [])
    deployed.chain.mine(3)
    follower = follow(deployed, tmp_path)
    batch = follower.poll()
    assert batch.rollback_to == batch.head - 4
    assert amounts(list(follower.history())) == [1]


def test_a_chain_that_lost_its_end(deployed: Deployed, tmp_path: Path) -> None:
    chain = deployed.chain
    mint(deployed, 1)
    follower = follow(deployed, tmp_path)
    projection = Projection(follower)
    projection.refresh()
    snapshot = chain.rpc("evm_snapshot")
    before = follower.head
    mint(deployed, 10)
    mint(deployed, 20)
    projection.refresh()
    chain.rpc("evm_revert", snapshot)
    assert projection.refresh()
    assert (follower.head, projection.state.balances[ALICE]) == (before, 1)
    mint(deployed, 7)
    projection.refresh()
    assert projection.state.balances[ALICE] == 8


def test_the_chain_is_killed_and_comes_back_from_its_last_save(deployed: Deployed, tmp_path: Path) -> None:
    chain = deployed.chain
    mint(deployed, 1)
    state = tmp_path / "state.json"
    state.write_bytes(gzip.decompress(bytes.fromhex(chain.rpc("anvil_dumpState", True)[2:])))
    follower = follow(deployed, tmp_path)
    projection = Projection(follower)
    mint(deployed, 10)
    projection.refresh()
    assert projection.state.balances[ALICE] == 11
    chain.kill()
    with pytest.raises(UnreachableError):
        Projection(Follower(chain.client(patience=0.3), deployed.deployment, tmp_path / "other.db"))
    chain.state = state
    chain.start()
    assert projection.refresh()
    assert projection.state.balances[ALICE] == 1
    deployed.deployment.check_chain(chain.client())
    mint(deployed, 3)
    projection.refresh()
    assert projection.state.balances[ALICE] == 4
    late = Projection(Follower(chain.client(), deployed.deployment, tmp_path / "late.db"))
    late.refresh()
    assert late.state == projection.state


def test_confirmations_hide_what_may_still_change(deployed: Deployed, tmp_path: Path) -> None:
    follower = follow(deployed, tmp_path, confirmations=2)
    mint(deployed, 1)
    assert amounts(follower.poll().events) == []
    deployed.chain.mine(1)
    assert amounts(follower.poll().events) == []
    deployed.chain.rpc("anvil_reorg", 2, [])
    assert follower.poll().rollback_to is None
    mint(deployed, 2)
    deployed.chain.mine(2)
    batch = follower.poll()
    assert amounts(batch.events) == [2]
    assert batch.rollback_to is None


def test_another_chain_is_refused(deployed: Deployed, tmp_path: Path) -> None:
    follower = follow(deployed, tmp_path)
    follower.poll()
    chain = deployed.chain
    chain.kill()
    time.sleep(1.1)
    chain.start()
    with pytest.raises(ConfigError, match="another chain"):
        follower.poll()
    follower.close()
    with pytest.raises(ConfigError, match="another chain"):
        follow(deployed, tmp_path)


def test_a_file_of_another_deployment_is_refused(deployed: Deployed, tmp_path: Path) -> None:
    follow(deployed, tmp_path).close()
    moved = deployed.deployment.model_copy(update={"start_block": 3})
    with pytest.raises(ConfigError, match=r"follows another deployment \(differs in start\)"):
        Follower(deployed.chain.client(), moved, tmp_path / "events.db")


def test_a_file_in_use_or_damaged_is_named(deployed: Deployed, tmp_path: Path) -> None:
    follower = follow(deployed, tmp_path)
    with pytest.raises(ConfigError, match="another process uses"):
        follow(deployed, tmp_path)
    follower.close()
    for leftover in tmp_path.glob("events.db-*"):
        leftover.unlink()
    (tmp_path / "events.db").write_bytes(b"not a database" * 100)
    with pytest.raises(ConfigError, match=r"events.db is damaged.*delete it"):
        follow(deployed, tmp_path)


def test_ranges_shrink_to_what_the_endpoint_allows(deployed: Deployed, proxy: Proxy, tmp_path: Path) -> None:
    for grains in range(1, 6):
        mint(deployed, grains)
        deployed.chain.mine(40)
    ranges: list[int] = []

    def rule(request: dict[str, Any]) -> dict[str, Any] | None:
        if request["method"] != "eth_getLogs" or "fromBlock" not in request["params"][0]:
            return None
        query = request["params"][0]
        ranges.append(int(query["toBlock"], 16) - int(query["fromBlock"], 16) + 1)
        too_many = ranges[-1] > 20
        return {"error": {"code": -32602, "message": "query returned more than 10000 results"}} if too_many else None

    proxy.rule = rule
    from chain.client import ChainClient

    follower = Follower(ChainClient([proxy.url], 31337), deployed.deployment, tmp_path / "events.db")
    assert amounts(follower.poll().events) == [1, 2, 3, 4, 5]
    assert max(ranges) > 100 > 20 >= ranges[-1]


def test_nothing_is_lost_when_a_poll_fails_half_way(deployed: Deployed, proxy: Proxy, tmp_path: Path) -> None:
    from chain.client import ChainClient

    for grains in (1, 2, 3):
        mint(deployed, grains)
    seen = [0]

    def rule(request: dict[str, Any]) -> dict[str, Any] | None:
        if request["method"] == "eth_getLogs":
            seen[0] += 1
            if seen[0] == 2:
                return {"error": {"code": -32000, "message": "pruned history"}}
        return None

    proxy.rule = rule
    follower = Follower(ChainClient([proxy.url], 31337), deployed.deployment, tmp_path / "events.db")
    follower._range = 1
    with pytest.raises(MusterError, match=r"gives no logs of block .*full history"):
        follower.poll()
    assert amounts(follower.poll().events) == [1, 2, 3]


def test_a_reorganisation_during_a_poll_leaves_one_branch(deployed: Deployed, proxy: Proxy, tmp_path: Path) -> None:
    from chain.client import ChainClient

    for grains in (1, 2, 4, 8):
        mint(deployed, grains)
    moved = [False]

    def rule(request: dict[str, Any]) -> dict[str, Any] | None:
        # After the logs of a range were read, the chain changes under the reader.
        if request["method"] == "eth_getBlockByNumber" and proxy.calls[-2:-1] == ["eth_getLogs"] and not moved[0]:
            moved[0] = True
            deployed.chain.rpc("anvil_reorg", 2, [])
        return None

    proxy.rule = rule
    follower = Follower(ChainClient([proxy.url], 31337), deployed.deployment, tmp_path / "events.db")
    events = follower.poll().events
    assert moved[0]
    assert amounts(events) == amounts(list(follower.history())) == [1, 2]


_CHILD = """
import sys
from pathlib import Path
from chain.client import ChainClient
from chain.deployment import Deployment
from chain.follower import Follower
from chain.sender import Call
{extra}
folder = Path(sys.argv[1])
client = ChainClient([sys.argv[2]], 31337)
follower = Follower(client, Deployment.load(Path(sys.argv[3])), folder / "events.db")
follower._range = 1
print("ready", flush=True)
while True:
    follower.poll()
"""


def test_kill_9_at_any_moment_loses_nothing(deployed: Deployed, tmp_path: Path) -> None:
    """A child follows block by block and is killed again and again while the chain grows and reorganises."""
    chain = deployed.chain
    extra = "import snap" if "snap" in sys.modules else ""
    command = [sys.executable, "-c", _CHILD.format(extra=extra), str(tmp_path), chain.url]
    command.append(str(deployed.folder / "deployment.json"))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    total = 0
    for attempt in range(4):
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n", child.communicate()[1].decode()
        for grains in range(1, 8):
            mint(deployed, grains)
            total += grains
        if attempt == 2:
            chain.rpc("anvil_reorg", 1, [])
            total -= 7
        os.kill(child.pid, signal.SIGKILL)
        child.communicate()
    with sqlite3.connect(tmp_path / "events.db") as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    projection = Projection(follow(deployed, tmp_path))
    projection.refresh()
    assert projection.state.balances[ALICE] == total
    fresh = Follower(chain.client(), deployed.deployment, tmp_path / "fresh.db")
    fresh.poll()
    assert [(*e.key, e.block_hash, e.log_index) for e in fresh.history()] == [
        (*e.key, e.block_hash, e.log_index) for e in projection.source.history()
    ]


def test_it_keeps_up_with_a_long_history(deployed: Deployed, tmp_path: Path) -> None:
    chain = deployed.chain
    suite = deployed.suite(deployed.governance)
    chain.rpc("evm_setAutomine", False)
    call = suite.token.mint(ALICE, GRAINS)
    threads = [threading.Thread(target=lambda: [suite.client.send(call) for _ in range(10)]) for _ in range(10)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        chain.mine()
        time.sleep(0.1)
    chain.mine(1000)
    follower = follow(deployed, tmp_path)
    began = time.monotonic()
    events = follower.poll().events
    assert time.monotonic() - began < 10
    assert amounts(events) == [GRAINS] * 100
