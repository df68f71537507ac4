"""The newest heartbeat of every participant, and what it says of the participant's health."""

import json
import threading
from typing import NamedTuple

from sqlalchemy import select

from orchestrator.db import Database, HeartbeatRow
from protocol.api.run import NodeState
from protocol.api.work import HEARTBEAT_SECONDS, HeartbeatRequest

MISSES_UNTIL_DEAD = 3
# How far another replica's clock or writing may lag.
_OVERLAP_SECONDS = 5.0


class Heartbeat(NamedTuple):
    """A participant's newest heartbeat; times in (Unix) seconds, `interval` until the next one is due."""

    body: HeartbeatRequest
    last_seen: float
    interval: float = HEARTBEAT_SECONDS

    def is_alive(self, now: float) -> bool:
        """Return whether fewer than MISSES_UNTIL_DEAD heartbeats are missing."""
        return node_state(self, now) in (NodeState.HEALTHY, NodeState.UNHEALTHY)


def node_state(heartbeat: Heartbeat | None, now: float, *, ejected: bool = False, left: bool = False) -> NodeState:
    """Return the state of a participant by its newest heartbeat and its standing on chain. A heartbeat counts as
    missed once it is half an interval late; one from the future (the clock was set back) counts as new."""
    if ejected or left:
        return NodeState.EJECTED if ejected else NodeState.LEFT
    if heartbeat is None:
        return NodeState.WAITING
    missed = (now - heartbeat.last_seen) / heartbeat.interval - 0.5
    if missed < 1:
        return NodeState.HEALTHY
    return NodeState.UNHEALTHY if missed < MISSES_UNTIL_DEAD else NodeState.DEAD


class HeartbeatStore:
    """Heartbeats in the database, and a copy in memory. All replicas have the same `interval`. Thread-safe."""

    def __init__(self, db: Database, interval: float = HEARTBEAT_SECONDS) -> None:
        self._db, self._interval = db, interval
        self._lock = threading.Lock()
        self._newest: dict[str, Heartbeat] = {}
        self._read_up_to = 0.0

    def store(self, address: str, body: HeartbeatRequest, now: float) -> None:
        """Store a heartbeat of `now` (Unix seconds), unless a newer one is there: a replica may write late."""
        row = self._db.insert(HeartbeatRow).values(address=address, last_seen=now, body=body.model_dump_json())
        newer = row.on_conflict_do_update(
            index_elements=[HeartbeatRow.address],
            set_={"last_seen": row.excluded.last_seen, "body": row.excluded.body},
            where=HeartbeatRow.last_seen <= row.excluded.last_seen,
        )
        with self._db.session() as session:
            session.execute(newer)

    def newest(self) -> dict[str, Heartbeat]:
        """Return the newest heartbeat of every address; reads only those that came since the last call."""
        recent = select(HeartbeatRow.address, HeartbeatRow.last_seen, HeartbeatRow.body)
        with self._lock:
            with self._db.reading() as session:
                rows = session.execute(recent.where(HeartbeatRow.last_seen > self._read_up_to - _OVERLAP_SECONDS)).all()
            for address, last_seen, body in rows:
                known = self._newest.get(address)
                if known is None or known.last_seen <= last_seen:
                    self._newest[address] = Heartbeat(HeartbeatRequest(**json.loads(body)), last_seen, self._interval)
                self._read_up_to = max(self._read_up_to, last_seen)
            return dict(self._newest)
