"""The newest heartbeat of every participant: in memory, written together, read from what other replicas wrote."""

import json
import threading
from collections.abc import Iterable

from sqlalchemy import text

from orchestrator.db import Database
from orchestrator.liveness import Beat
from protocol.api.work import HeartbeatRequest

SYNC_SECONDS = 1.0
_OVERLAP = 5.0
"""Seconds by which another replica's clock or writing may lag."""
_RECENT = text("SELECT address, last_seen FROM newest_heartbeats WHERE last_seen > :since")


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
        self._documents = (
            "SELECT newest_heartbeats.address, newest_heartbeats.last_seen, newest_heartbeats.body "
            f"FROM newest_heartbeats, {db.rows({'address': 'text'})} WHERE newest_heartbeats.address = given.address"
        )
        self.read()

    def take(self, address: str, body: HeartbeatRequest, now: float) -> None:
        """Keep a heartbeat that came at `now` (Unix seconds)."""
        with self._lock:
            self._newest[address] = self._unwritten[address] = Beat(body, now)

    def write(self) -> None:
        """Write what came since the last time."""
        with self._lock:
            unwritten, self._unwritten = self._unwritten, {}
        rows = [(address, beat.last_seen, beat.said.model_dump_json()) for address, beat in sorted(unwritten.items())]
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
            recent = session.execute(_RECENT, {"since": max(0.0, self._read_up_to - _OVERLAP)}).all()
            # Most are this replica's own: only the others' documents are fetched and read.
            news = [(address,) for address, last_seen in self._unknown(recent)]
            found = self._db.bulk(session, self._documents, news) if news else ()
        beats = {(address, last_seen): body for address, last_seen, body in found}
        with self._lock:
            for address, last_seen in self._unknown(beats):
                said = HeartbeatRequest(**json.loads(beats[address, last_seen]))
                self._newest[address] = Beat(said, last_seen)
        self._read_up_to = max([self._read_up_to, *(last_seen for _, last_seen in recent)])

    def _unknown(self, seen: Iterable[tuple[str, float]]) -> list[tuple[str, float]]:
        """Those of addresses of which nothing as new is known."""
        newest = self._newest
        return [(who, when) for who, when in seen if (known := newest.get(who)) is None or known.last_seen < when]

    def newest(self) -> dict[str, Beat]:
        """The newest heartbeat by address, as far as this replica knows."""
        with self._lock:
            return dict(self._newest)
