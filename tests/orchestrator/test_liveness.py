"""What a participant's heartbeats say about it."""

from orchestrator.liveness import node_state
from protocol.api.run import NodeState


def test_node_states() -> None:
    seen = 100.0
    states = [node_state(seen, seen + gap) for gap in (0, 14, 16, 34, 36, 1e6, -50)]
    healthy, unhealthy, dead = NodeState.HEALTHY, NodeState.UNHEALTHY, NodeState.DEAD
    assert states == [healthy, healthy, unhealthy, unhealthy, dead, dead, healthy]
    assert node_state(None, 0) is NodeState.WAITING
    assert node_state(100, 100, ejected=True, left=True) is NodeState.EJECTED
    assert node_state(100, 100, left=True) is NodeState.LEFT
