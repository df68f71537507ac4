"""The newest heartbeat of every participant: in memory, written together, read from what other replicas wrote."""

import json
import threading

from sqlalchemy import select

from orchestrator.db import Database
from orchestrator.liveness import Beat
from orchestrator.tables import HeartbeatRow
from protocol.api.work import HeartbeatRequest
from protocol.encoding import canonical_json

SYNC_SECONDS = 1.0
_OVERLAP = 5.0
"""Seconds by which another replica's clock or writing may lag."""


class NewestHeartbeats:
    """Safe to share between threads. What a killed replica had not written, its participants repeat in seconds."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._lock = threading.Lock()
        self._newest: dict[str, Beat] = {}
        self._unwritten: dict[str, Beat] = {}
        self._read_up_to = float("-inf")
        self._upsert = (
            "INSERT INTO newest_heartbeats (address, last_seen, body) "
            "SELECT given.address, given.last_seen, given.body "
            f"FROM {db.rows({'address': 'text', 'last_seen': 'float', 'body': 'text'})} WHERE true "
            "ON CONFLICT (address) DO UPDATE SET last_seen = excluded.last_seen, body = excluded.body"
        )
        self.read()

    def take(self, address: str, body: HeartbeatRequest, now: float) -> None:
        """Keep a heartbeat that came at `now` (Unix seconds)."""
        beat = Beat.model_construct(**dict(body), last_seen=now)
        with self._lock:
            self._newest[address] = self._unwritten[address] = beat

    def write(self) -> None:
        """Write what came since the last time."""
        with self._lock:
            unwritten, self._unwritten = self._unwritten, {}
        rows = [(address, beat.last_seen, _document(beat)) for address, beat in sorted(unwritten.items())]
        if not rows:
            return
        try:
            with self._db.session() as session:
                self._db.bulk(session, self._upsert, rows)
        except Exception:
            with self._lock:
                self._unwritten = unwritten | self._unwritten
            raise

    def read(self) -> None:
        """Take in what other replicas wrote."""
        with self._db.reading() as session:
            query = select(HeartbeatRow.address, HeartbeatRow.last_seen, HeartbeatRow.body)
            found = session.execute(query.where(HeartbeatRow.last_seen > self._read_up_to - _OVERLAP)).all()
        with self._lock:
            for address, last_seen, body in found:
                known = self._newest.get(address)
                if known is None or known.last_seen < last_seen:
                    self._newest[address] = Beat(**json.loads(body), last_seen=last_seen)
                self._read_up_to = max(self._read_up_to, last_seen)

    def newest(self) -> dict[str, Beat]:
        """The newest heartbeat by address, as far as this replica knows."""
        with self._lock:
            return dict(self._newest)


def _document(beat: Beat) -> str:
    return canonical_json(beat.model_dump(exclude={"last_seen"})).decode()
