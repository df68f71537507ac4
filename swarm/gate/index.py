"""What a gate has seen and promised, on disk: whose envelope each object is, and who asked to upload how much."""

import sqlite3
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from protocol.errors import ConfigError
from protocol.swarm.envelope import MAX_ROUND

T = TypeVar("T")
KEPT = 64
"""Envelopes of a member that are listed: its newest. Nobody takes older ones (`swarm.inbox.REMEMBERED_ROUNDS`)."""
HOUR = 3600.0
_SCHEMA = """
CREATE TABLE IF NOT EXISTS envelopes (member TEXT, round INTEGER, sha256 TEXT, size INTEGER,
 PRIMARY KEY (member, round)) WITHOUT ROWID;
CREATE UNIQUE INDEX IF NOT EXISTS by_hash ON envelopes (member, sha256);
CREATE TABLE IF NOT EXISTS asked (member TEXT, sha256 TEXT, size INTEGER, time REAL, refused TEXT NOT NULL DEFAULT '',
 PRIMARY KEY (member, sha256)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS asked_since ON asked (time);
"""
_BY_DEPTH = """
SELECT depth, member, round, sha256, size FROM (SELECT *, row_number() OVER (PARTITION BY member ORDER BY round DESC)
 AS depth FROM envelopes) WHERE depth <= ? ORDER BY depth, lower(member)
"""


@dataclass(frozen=True)
class SeenEnvelope:
    """`depth`: 1 for its member's newest."""

    depth: int
    member: str
    round: int
    sha256: str
    size: int

    @property
    def place(self) -> tuple[int, str]:
        """In the listing's order."""
        return self.depth, self.member.lower()


class EnvelopeIndex:
    """Safe to share between threads, not between processes. Raises ConfigError for a damaged file."""

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, threading.Lock()
        try:
            self._db = sqlite3.connect(path, check_same_thread=False)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.executescript(_SCHEMA)
        except sqlite3.DatabaseError as error:
            raise ConfigError(f"{path} cannot be used: {error}", "see its disk, or delete it") from None

    def has(self, member: str, sha256: str) -> bool:
        query = "SELECT 1 FROM envelopes WHERE member = ? AND sha256 = ?"
        return self._do(lambda db: db.execute(query, (member, sha256)).fetchone() is not None)

    def refused(self, member: str, sha256: str) -> str:
        """Why this object was refused before; empty if it was not."""
        query = "SELECT refused FROM asked WHERE member = ? AND sha256 = ?"
        return self._do(lambda db: (db.execute(query, (member, sha256)).fetchone() or ("",))[0])

    def ask(self, member: str, sha256: str, size: int, now: float, most: int, most_bytes: int) -> bool:
        """Note that a member asks to upload an object; False if with it these would be more than so many, or so many
        bytes, in an hour. One that was asked for in that hour counts once, with the most bytes. Times far ahead are
        those of a clock that was wrong."""

        def note(db: sqlite3.Connection) -> bool:
            db.execute("DELETE FROM asked WHERE time <= ? OR time > ?", (now - HOUR, now + HOUR))
            query = "SELECT count(*), coalesce(sum(size), 0) FROM asked WHERE member = ? AND sha256 <> ?"
            count, held = db.execute(query, (member, sha256)).fetchone()
            if count + 1 > most or held + size > most_bytes:
                return False
            query = "INSERT INTO asked (member, sha256, size, time) VALUES (?, ?, ?, ?) ON CONFLICT"
            db.execute(query + " DO UPDATE SET size = max(size, excluded.size)", (member, sha256, size, now))
            return True

        return self._do(note)

    def refuse(self, member: str, sha256: str, why: str) -> None:
        """It was looked at and is not to be looked at again."""
        query = "UPDATE asked SET refused = ? WHERE member = ? AND sha256 = ?"
        self._do(lambda db: db.execute(query, (why, member, sha256)))

    def add(self, member: str, number: int, sha256: str, size: int) -> str:
        """It lies there and is the member's. Why it is not listed; empty if it is."""
        assert 0 <= number < MAX_ROUND

        def put(db: sqlite3.Connection) -> str:
            query = "INSERT INTO envelopes VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
            db.execute(query, (member, number, sha256, size))
            query = "SELECT sha256 FROM envelopes WHERE member = ? AND round = ?"
            first = db.execute(query, (member, number)).fetchone()[0]
            query = "SELECT round FROM envelopes WHERE member = ? ORDER BY round DESC LIMIT 1 OFFSET ?"
            oldest = db.execute(query, (member, KEPT)).fetchone()
            if oldest is not None:
                db.execute("DELETE FROM envelopes WHERE member = ? AND round <= ?", (member, oldest[0]))
            if first != sha256:
                return f"another envelope of round {number} is there already"
            old = oldest is not None and number <= oldest[0]
            return f"{KEPT} later rounds than {number} are there" if old else ""

        return self._do(put)

    def listed(self) -> list[SeenEnvelope]:
        """The newest of every member, then the second newest, and so on."""
        return [SeenEnvelope(*row) for row in self._do(lambda db: db.execute(_BY_DEPTH, (KEPT,)).fetchall())]

    def close(self) -> None:
        self._db.close()

    def _do(self, what: Callable[[sqlite3.Connection], T]) -> T:
        with self._lock, self._db:
            return what(self._db)
