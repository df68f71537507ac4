"""What a participant's heartbeats and its standing on chain say about it: every combination."""

from itertools import product

import pytest

from orchestrator.heartbeats import Heartbeat, node_state
from orchestrator.sources import AnnouncedSources
from protocol.api.run import NodeState
from protocol.api.work import HEARTBEAT_SECONDS, HeartbeatRequest, announce
from protocol.encoding import canonical_json
from tests.orchestrator.chain import CHEAT
from tests.orchestrator.chain import NODE as NODE_KEY
from tests.orchestrator.conftest import POOL, Desk
from tests.storage.mirror import mirror, send

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


# Who has which policy step, by everybody's own word.


def test_who_has_which_step(desk: Desk) -> None:
    assert desk.http.get("/v1/status").json()["held"] == []
    desk.service.sources = AnnouncedSources(POOL, True, lambda: desk.now)
    for key, step in ((NODE_KEY, 4), (CHEAT, 3)):
        beat = {"role": "worker", "weights": step}
        assert desk.post(key, "/v1/heartbeats", beat).status_code == 200
    words: list[bytes] = []
    with mirror(lambda handler: send(handler, 200, words[0])) as url:
        said = announce(NODE_KEY, POOL, url, int(desk.now) + 600, step=4).model_dump(mode="json")
        words.append(canonical_json(said))
        assert desk.post(NODE_KEY, "/v1/sources", said).status_code == 200
    desk.now += 1
    newest = {"step": 4, "nodes": 1, "validators": 0, "relays": 1}
    held = [newest, {"step": 3, "nodes": 1, "validators": 0, "relays": 0}]
    assert desk.http.get("/v1/status").json()["held"] == held
    assert desk.http.get("/v1/overview").json()["held"] == held
    assert desk.http.get(f"/v1/nodes/{NODE_KEY.address}").json()["weights"] == 4
    desk.now += 300
    assert desk.http.get("/v1/status").json()["held"] == [newest | {"nodes": 0}], "who is silent is not counted"


# What a process lacks, in its own words, for whoever looks after it.


def trouble(desk: Desk, phase: str, waits: list[tuple[str, float]]) -> str:
    """What the service says of the node after such a heartbeat."""
    lines = [{"what": what, "since": since} for what, since in waits]
    beat = {"role": "worker", "phase": phase, "waits": lines}
    assert desk.post(NODE_KEY, "/v1/heartbeats", beat).status_code == 200
    desk.now += 1
    found: str = desk.http.get(f"/v1/nodes/{NODE_KEY.address}").json()["trouble"]
    return found


def test_its_newest_wait_is_its_trouble(desk: Desk) -> None:
    waits = [("weights that are being fetched", 5.0), ("shard 00… came with other bytes", 9.0)]
    assert trouble(desk, "trouble", waits) == "shard 00… came with other bytes"
    assert trouble(desk, "trouble", []) == ""
    assert trouble(desk, "generating", waits) == "", "who waits is not in trouble"
