"""What a participant's heartbeats and its standing on chain say about it: every combination."""

from itertools import product

import pytest

from orchestrator.heartbeats import Heartbeat, node_state
from protocol.api.run import NodeState
from protocol.api.work import HEARTBEAT_SECONDS, HeartbeatRequest
from tests.orchestrator.chain import CHEAT, NODE
from tests.orchestrator.conftest import Desk, announced

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


@pytest.mark.parametrize(("ejected", "left"), list(product((False, True), repeat=2)))
def test_the_chain_overrules_every_heartbeat(ejected: bool, left: bool) -> None:
    for misses, expected in BY_MISSES.items():
        last = None if misses is None else seen(1e6)
        now = 1e6 if misses is None else 1e6 + misses * HEARTBEAT_SECONDS
        wanted = NodeState.EJECTED if ejected else NodeState.LEFT if left else expected
        assert node_state(last, now, ejected=ejected, left=left) is wanted, misses
    assert {*BY_MISSES.values(), NodeState.EJECTED, NodeState.LEFT} == set(NodeState), "every state is reached"


def test_who_has_which_step_by_everybodys_own_word(desk: Desk) -> None:
    assert desk.get("status")["held"] == []
    for key, step in ((NODE, 4), (CHEAT, 3)):
        desk.beat(key, weights=step)
    with announced(desk, NODE, step=4):
        pass
    desk.now += 1
    newest = {"step": 4, "nodes": 1, "validators": 0, "relays": 1}
    held = [newest, {"step": 3, "nodes": 1, "validators": 0, "relays": 0}]
    assert desk.get("status")["held"] == desk.get("overview")["held"] == held
    assert desk.get(f"nodes/{NODE.address}")["weights"] == 4
    desk.now += 300
    assert desk.get("status")["held"] == [newest | {"nodes": 0}], "who is silent is not counted"


def test_what_a_process_lacks_is_its_newest_wait_in_its_own_words(desk: Desk) -> None:
    waits = [{"what": "weights that are being fetched", "since": 5.0}]
    waits.append({"what": "shard 00… came with other bytes", "since": 9.0})
    for phase, told, expected in (
        ("trouble", waits, "shard 00… came with other bytes"),
        ("trouble", [], ""),
        ("generating", waits, ""),  # who waits is not in trouble
    ):
        desk.beat(NODE, phase=phase, waits=told)
        desk.now += 1
        assert desk.get(f"nodes/{NODE.address}")["trouble"] == expected
