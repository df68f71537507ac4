"""What a participant's heartbeats say about it. Pure."""

from protocol.api.run import NodeState

HEARTBEAT_SECONDS = 10.0
MISSES_UNTIL_DEAD = 3


def missed(last_seen: float, now: float, interval: float = HEARTBEAT_SECONDS) -> int:
    """Heartbeats missed since `last_seen` (Unix seconds) less half an interval; 0 when the clock was set back."""
    return max(0, int((now - last_seen - interval / 2) // interval))


def node_state(
    last_seen: float | None,
    now: float,
    *,
    ejected: bool = False,
    left: bool = False,
    interval: float = HEARTBEAT_SECONDS,
) -> NodeState:
    """The state of a participant that was last heard at `last_seen` (None: never)."""
    if ejected:
        return NodeState.EJECTED
    if left:
        return NodeState.LEFT
    if last_seen is None:
        return NodeState.WAITING
    count = missed(last_seen, now, interval)
    if count == 0:
        return NodeState.HEALTHY
    return NodeState.UNHEALTHY if count < MISSES_UNTIL_DEAD else NodeState.DEAD
