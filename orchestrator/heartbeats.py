"""The newest heartbeat of every participant, and what it says of the participant's health."""

import json
import threading
from contextlib import suppress
from typing import Any, NamedTuple

from pydantic import ValidationError
from sqlalchemy import select

from orchestrator.db import Database, HeartbeatRow
from protocol.api.run import NodeState
from protocol.api.work import HEARTBEAT_SECONDS, HeartbeatRequest

MISSES_UNTIL_DEAD = 3
# Processes that are remembered for each key.
_INSTANCES = 4
KEY_SHARED = "another process works with this key at the same time: stop one of the two, or give each its own key"
# How far another replica's clock or writing may lag.
_OVERLAP_SECONDS = 5.0


class Heartbeat(NamedTuple):
    """A participant's newest heartbeat; times in (Unix) seconds, `interval` until the next one is due. `shared`: when
    its key was last seen to be used by two processes at once."""

    body: HeartbeatRequest
    last_seen: float
    interval: float = HEARTBEAT_SECONDS
    shared: float = 0.0

    def is_alive(self, now: float) -> bool:
        """Return whether fewer than MISSES_UNTIL_DEAD heartbeats are missing."""
        return node_state(self, now) in (NodeState.HEALTHY, NodeState.UNHEALTHY)

    def is_shared(self, now: float) -> bool:
        """Return whether two processes use the key, by the heartbeats that a silent process may miss."""
        return self.shared > 0 and now - self.shared < MISSES_UNTIL_DEAD * self.interval


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

    def store(self, address: str, body: HeartbeatRequest, now: float) -> Heartbeat:
        """Store a heartbeat of `now` (Unix seconds), unless a newer one is there: a replica may write late."""
        with self._db.session() as session:
            known = session.scalar(select(HeartbeatRow.body).where(HeartbeatRow.address == address))
            processes = _processes(json.loads(known) if known else {}, body.instance, now)
            document = json.dumps(body.model_dump(mode="json") | processes)
            row = self._db.insert(HeartbeatRow).values(address=address, last_seen=now, body=document)
            newer = row.on_conflict_do_update(
                index_elements=[HeartbeatRow.address],
                set_={"last_seen": row.excluded.last_seen, "body": row.excluded.body},
                where=HeartbeatRow.last_seen <= row.excluded.last_seen,
            )
            session.execute(newer)
        return self._parsed(document, now)

    def _parsed(self, body: str, last_seen: float) -> Heartbeat:
        document = json.loads(body)
        return Heartbeat(HeartbeatRequest(**document), last_seen, self._interval, document.get("shared", 0.0))

    def newest(self) -> dict[str, Heartbeat]:
        """Return the newest heartbeat of every address; reads only those that came since the last call."""
        recent = select(HeartbeatRow.address, HeartbeatRow.last_seen, HeartbeatRow.body)
        with self._lock:
            with self._db.reading() as session:
                rows = session.execute(recent.where(HeartbeatRow.last_seen > self._read_up_to - _OVERLAP_SECONDS)).all()
            for address, last_seen, body in rows:
                known = self._newest.get(address)
                if known is None or known.last_seen <= last_seen:
                    with suppress(ValidationError):  # it is of a version of muster with other fields
                        self._newest[address] = self._parsed(body, last_seen)
                self._read_up_to = max(self._read_up_to, last_seen)
            return dict(self._newest)


def _processes(known: dict[str, Any], instance: str, now: float) -> dict[str, Any]:
    """Return what to keep of the processes that use a key: their names, the newest last, and when one was last heard
    again after another. One that was replaced never is, so that two run."""
    names, shared = known.get("instances", []), known.get("shared", 0.0)
    if not instance:
        return {"instances": names, "shared": shared}
    others = [name for name in names if name != instance]
    return {"instances": [*others, instance][-_INSTANCES:], "shared": now if instance in names[:-1] else shared}
