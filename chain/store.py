"""The follower's file: raw logs, the hashes of blocks seen, and the cursor, in one SQLite database.

Every change is one transaction, so that a process killed at any moment leaves a consistent file.
"""

import fcntl
import json
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from protocol.errors import ConfigError

_KEPT_HEADS = 20_000
_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS blocks (number INTEGER PRIMARY KEY, hash BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS logs (
  block INTEGER NOT NULL, log_index INTEGER NOT NULL, hash BLOB NOT NULL, raw TEXT NOT NULL,
  PRIMARY KEY (block, log_index)) WITHOUT ROWID;
"""

Log = dict[str, Any]


class EventStore:
    """One process at a time may open a file (ConfigError otherwise). Thread-safe."""

    def __init__(self, path: Path, identity: dict[str, str]) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._mutex = threading.RLock()
        self._lock_file = path.with_name(path.name + ".lock").open("wb")
        try:
            fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock_file.close()
            raise ConfigError(f"another process uses {path}", "stop it, or name another data folder") from None
        try:
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.executescript(_SCHEMA)
            self._identify(identity)
        except sqlite3.DatabaseError as error:
            self._lock_file.close()
            raise ConfigError(f"{path} is damaged ({error})", "delete it: it is rebuilt from the chain") from None
        except ConfigError:
            self.close()
            raise

    def _identify(self, identity: dict[str, str]) -> None:
        known = dict(self._db.execute("SELECT key, value FROM meta WHERE key LIKE 'id:%'").fetchall())
        wanted = {f"id:{k}": v for k, v in identity.items()}
        if not known:
            self._db.executemany("INSERT INTO meta VALUES (?, ?)", list(wanted.items()))
        elif known != wanted:
            differing = sorted(k[3:] for k in wanted if known.get(k) != wanted[k])
            raise ConfigError(
                f"{self.path} follows another deployment (differs in {', '.join(differing)})",
                "delete it, or name another data folder",
            )

    @property
    def cursor(self) -> int | None:
        """The block up to which everything is stored."""
        value = self._meta("cursor")
        return int(value) if value is not None else None

    @property
    def generation(self) -> int:
        """How many rollbacks this file has seen."""
        return int(self._meta("generation") or 0)

    def hash_at(self, block: int) -> bytes | None:
        with self._mutex:
            row = self._db.execute("SELECT hash FROM blocks WHERE number = ?", (block,)).fetchone()
            row = row or self._db.execute("SELECT hash FROM logs WHERE block = ? LIMIT 1", (block,)).fetchone()
        return bytes(row[0]) if row else None

    def known_blocks(self) -> list[tuple[int, bytes]]:
        """(number, hash) of all blocks whose hash is known, newest first."""
        query = "SELECT number, hash FROM blocks UNION SELECT block, hash FROM logs ORDER BY 1 DESC"
        with self._mutex:
            return [(n, bytes(h)) for n, h in self._db.execute(query).fetchall()]

    def append(self, logs: Sequence[Log], block: int, block_hash: bytes) -> None:
        """Store the logs of the blocks after the cursor up to `block`, and move the cursor there."""
        rows = [
            (
                int(log["blockNumber"], 16),
                int(log["logIndex"], 16),
                bytes.fromhex(log["blockHash"][2:]),
                json.dumps(log),
            )
            for log in logs
        ]
        with self._mutex, self._transaction():
            self._db.executemany("INSERT OR REPLACE INTO logs VALUES (?, ?, ?, ?)", rows)
            self._db.execute("INSERT OR REPLACE INTO blocks VALUES (?, ?)", (block, block_hash))
            self._db.execute("DELETE FROM blocks WHERE number < ?", (block - _KEPT_HEADS,))
            self._set_meta("cursor", str(block))

    def rewind(self, block: int) -> None:
        """Forget everything above `block`."""
        with self._mutex, self._transaction():
            self._db.execute("DELETE FROM logs WHERE block > ?", (block,))
            self._db.execute("DELETE FROM blocks WHERE number > ?", (block,))
            self._set_meta("cursor", str(block))
            self._set_meta("generation", str(self.generation + 1))

    def logs(self) -> Iterator[Log]:
        """All stored logs in chain order."""
        after = (-1, -1)
        while True:
            with self._mutex:
                rows = self._db.execute(
                    "SELECT block, log_index, raw FROM logs WHERE (block, log_index) > (?, ?) "
                    "ORDER BY block, log_index LIMIT 2000",
                    after,
                ).fetchall()
            if not rows:
                return
            for block, index, raw in rows:
                after = (block, index)
                yield json.loads(raw)

    def close(self) -> None:
        with self._mutex:
            self._db.close()
            self._lock_file.close()

    def _meta(self, key: str) -> str | None:
        with self._mutex:
            row = self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return str(row[0]) if row else None

    def _set_meta(self, key: str, value: str) -> None:
        self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    def _transaction(self) -> "_Transaction":
        return _Transaction(self._db)


class _Transaction:
    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def __enter__(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: object, *_: object) -> None:
        self._db.execute("COMMIT" if kind is None else "ROLLBACK")
