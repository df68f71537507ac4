"""The event follower through reorganisations, lost ends and kills: what it keeps is one branch, nothing twice."""

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from chain.client import ChainClient
from chain.indexer.follower import Follower
from chain.indexer.projection import Projection
from protocol.errors import UnreachableError
from tests.chain.conftest import ALICE, amounts, follow, mint
from tests.chain.proxy import Proxy
from tests.conftest import Deployed


def test_the_chain_is_killed_and_comes_back_from_its_last_save(deployed: Deployed, tmp_path: Path) -> None:
    chain = deployed.chain
    mint(deployed, 1)
    chain.save(tmp_path / "state.json")
    follower = follow(deployed, tmp_path)
    projection = Projection(follower)
    mint(deployed, 10)
    projection.refresh()
    assert projection.state.balances[ALICE] == 11
    chain.kill()
    with pytest.raises(UnreachableError):
        Projection(Follower(chain.client(patience=0.3), deployed.deployment, tmp_path / "other.db"))
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


@pytest.mark.parametrize(
    ("depth", "method", "before"),
    [(0, "eth_getLogs", "eth_getBlockByNumber"), (70, "eth_getBlockByNumber", "eth_getLogs")],
    ids=["near the head", "far below it"],
)
def test_a_reorganisation_during_a_poll_leaves_one_branch(
    deployed: Deployed, proxy: Proxy, tmp_path: Path, depth: int, method: str, before: str
) -> None:
    for base_units in (1, 2, 4, 8):
        mint(deployed, base_units)
    deployed.chain.mine(depth)
    moved = [False]

    def rule(request: dict[str, Any]) -> dict[str, Any] | None:
        # Between headers and logs near the head, after the logs of a range below it, the chain changes.
        if request["method"] == method and before in proxy.calls and not moved[0]:
            moved[0] = True
            deployed.chain.rpc("anvil_reorg", depth + 2, [])
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
from chain.indexer.follower import Follower
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
    command = [sys.executable, "-c", _CHILD, str(tmp_path), chain.url, str(deployed.folder / "deployment.json")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    total = 0
    for attempt in range(4):
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n", child.communicate()[1].decode()
        for base_units in range(1, 8):
            mint(deployed, base_units)
            total += base_units
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
    assert list(fresh.history()) == list(projection.source.history())
