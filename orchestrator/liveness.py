"""What a participant's heartbeats say about it. Pure."""

from typing import NamedTuple

from protocol.api.run import NodeState
from protocol.api.work import HeartbeatRequest

HEARTBEAT_SECONDS = 10.0
MISSES_UNTIL_DEAD = 3


class Beat(NamedTuple):
    """A participant's newest heartbeat: what it `said`, and when that came (Unix seconds)."""

    said: HeartbeatRequest
    last_seen: float


def node_state(last_seen: float | None, now: float, *, ejected: bool = False, left: bool = False) -> NodeState:
    """The state of a participant that was last heard at `last_seen` (None: never; beyond `now`: the clock was set
    back). A heartbeat counts as missed once it is half an interval late."""
    if ejected:
        return NodeState.EJECTED
    if left:
        return NodeState.LEFT
    if last_seen is None:
        return NodeState.WAITING
    missed = (now - last_seen) / HEARTBEAT_SECONDS - 0.5
    if missed < 1:
        return NodeState.HEALTHY
    return NodeState.UNHEALTHY if missed < MISSES_UNTIL_DEAD else NodeState.DEAD
