"""What a participant's heartbeats and its standing on chain say about it: every combination."""

from itertools import product
from pathlib import Path

import pytest

from orchestrator.db import Database, default_url
from orchestrator.heartbeats import Heartbeat, HeartbeatStore, node_state
from protocol.api.run import NodeState
from protocol.api.work import HEARTBEAT_SECONDS, HeartbeatRequest

NODE = "0x" + "ab" * 20
BY_MISSES = {
    -100.0: NodeState.HEALTHY,  # the clock was set back
    0.0: NodeState.HEALTHY,
    1.0: NodeState.HEALTHY,
    1.49: NodeState.HEALTHY,
    1.5: NodeState.UNHEALTHY,
    2.5: NodeState.UNHEALTHY,
    3.49: NodeState.UNHEALTHY,
    3.5: NodeState.DEAD,
    4.0: NodeState.DEAD,
    1e9: NodeState.DEAD,
    None: NodeState.WAITING,
}
"""Heartbeat intervals since the newest heartbeat → what a member is; None: there never was one."""


def seen(time: float, interval: float = HEARTBEAT_SECONDS) -> Heartbeat:
    return Heartbeat(HeartbeatRequest(role="worker"), time, interval)


def test_node_states() -> None:
    states = [node_state(seen(100.0, 10.0), 100.0 + gap) for gap in (0, 14, 16, 34, 36, 1e6, -50)]
    healthy, unhealthy, dead = NodeState.HEALTHY, NodeState.UNHEALTHY, NodeState.DEAD
    assert states == [healthy, healthy, unhealthy, unhealthy, dead, dead, healthy]
    assert node_state(None, 0) is NodeState.WAITING
    assert node_state(seen(100), 100, ejected=True, left=True) is NodeState.EJECTED
    assert node_state(seen(100), 100, left=True) is NodeState.LEFT


@pytest.mark.parametrize(("ejected", "left"), list(product((False, True), repeat=2)))
def test_the_chain_overrules_every_heartbeat(ejected: bool, left: bool) -> None:
    for misses, expected in BY_MISSES.items():
        last = None if misses is None else seen(1e6)
        now = 1e6 if misses is None else 1e6 + misses * HEARTBEAT_SECONDS
        wanted = NodeState.EJECTED if ejected else NodeState.LEFT if left else expected
        assert node_state(last, now, ejected=ejected, left=left) is wanted, misses
    assert {*BY_MISSES.values(), NodeState.EJECTED, NodeState.LEFT} == set(NodeState), "every state is reached"


def test_without_news_a_state_only_decays() -> None:
    order = [NodeState.HEALTHY, NodeState.UNHEALTHY, NodeState.DEAD]
    found = [order.index(node_state(seen(0.0), second)) for second in range(600)]
    assert found == sorted(found)
    assert set(found) == {0, 1, 2}


def test_a_delayed_write_does_not_overwrite_a_newer_heartbeat(tmp_path: Path) -> None:
    db = Database(default_url(tmp_path))
    one, other = HeartbeatStore(db), HeartbeatStore(db)
    body = HeartbeatRequest(role="worker", name="newer")
    one.store(NODE, body, 102.0)
    other.store(NODE, HeartbeatRequest(role="worker", name="older"), 100.0)
    for store in (one, other, HeartbeatStore(db)):
        assert store.newest()[NODE] == Heartbeat(body, 102.0)
    db.close()
