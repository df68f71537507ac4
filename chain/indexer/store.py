"""What a follower keeps on disk, in one SQLite database: logs, hashes of blocks seen, the cursor, an archive.

The archive holds what reorganisations do not reach: a checkpoint of the projected state, and the final lanes that left
it. Every change is one transaction, so that a process killed at any moment leaves a consistent file.
"""

import hashlib
import json
import pickle
import sqlite3
import sys
import threading
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from chain.indexer.logs import Log, place_of
from chain.indexer.records import Payment
from protocol.errors import ConfigError, MusterError

_KEPT_HEADS = 20_000
_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS blocks (number INTEGER PRIMARY KEY, hash BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS logs (
  block INTEGER NOT NULL, log_index INTEGER NOT NULL, hash BLOB NOT NULL, raw TEXT NOT NULL,
  PRIMARY KEY (block, log_index)) WITHOUT ROWID;
"""
_ARCHIVE = """
CREATE TABLE IF NOT EXISTS checkpoint (block INTEGER NOT NULL, version TEXT NOT NULL, state BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS lanes (
  pool INTEGER NOT NULL, lane INTEGER NOT NULL, record BLOB NOT NULL, PRIMARY KEY (pool, lane)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS numbers (
  pool INTEGER NOT NULL, node TEXT NOT NULL, first INTEGER NOT NULL, numbers BLOB NOT NULL,
  PRIMARY KEY (pool, node, first)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS payments (number INTEGER PRIMARY KEY, record BLOB NOT NULL);
"""


FileKey = tuple[int, int]  # pool, and the number of a file or lane
FinalLane = dict[str, dict[FileKey, Any]]
"""What leaves the state with a lane that cannot change any more: the lane, its files and their mirrors, by table."""


@cache
def _version() -> str:
    sources = [path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py"))]
    return hashlib.sha256(b"".join((sys.version.encode(), *sources))).hexdigest()


class Archive:
    """A checkpoint of the projected state, and what left it for good, in a file or in memory. Thread-safe. It stays
    readable for the holder of a state after the event store was closed."""

    def __init__(self, path: Path | None = None) -> None:
        options: Any = {"isolation_level": None, "check_same_thread": False, "timeout": 10}
        self._db = sqlite3.connect(path or ":memory:", **options)
        self._mutex = threading.RLock()
        self._db.executescript(_ARCHIVE)
        self.lane = lru_cache(maxsize=1024)(self._lane)

    def __del__(self) -> None:
        self._db.close()

    def __deepcopy__(self, memo: object) -> "Archive":
        return self

    def _lane(self, pool: int, lane: int) -> FinalLane | None:
        if pool >> 63 or lane >> 63:
            return None  # SQLite takes no such number, and an announced mirror may name any
        with self._mutex:
            query = "SELECT record FROM lanes WHERE pool = ? AND lane = ?"
            row = self._db.execute(query, (pool, lane)).fetchone()
        return pickle.loads(row[0]) if row else None

    def numbers(self, pool: int, node: str, position: int) -> "tuple[int, array[int]]":
        """Return the position of the first of a run of archived file numbers, and the run with the one at `position`:
        of a pool's files, or of a node's in it. Raises IndexError where there is none."""
        query = "SELECT first, numbers FROM numbers WHERE (pool, node) = (?, ?) AND first <= ? ORDER BY 1 DESC LIMIT 1"
        with self._mutex:
            row = self._db.execute(query, (pool, node, position)).fetchone()
        first, run = (row[0], array("I", row[1])) if row else (0, array("I"))
        if position - first >= len(run):
            raise IndexError(position)
        return first, run

    def payments(self) -> Iterator[Payment]:
        """Yield archived payments in chain order."""
        with self._mutex:
            rows = self._db.execute("SELECT record FROM payments ORDER BY number").fetchall()
        for (record,) in rows:
            yield from pickle.loads(record)

    def load(self) -> dict[str, Any] | None:
        """Return what `save` was given last; None where there is nothing, or another version wrote it."""
        with self._mutex:
            row = self._db.execute("SELECT state FROM checkpoint WHERE version = ?", (_version(),)).fetchone()
            if row is None:
                self.clear()
        return pickle.loads(row[0]) if row else None

    def save(
        self,
        head: int,
        state: dict[str, Any],
        lanes: Mapping[FileKey, FinalLane],
        payments: list[Payment],
        numbers: "Mapping[tuple[int, str, int], array[int]]",
    ) -> None:
        """Store a checkpoint at block `head`, and what left the state since the one before it; `numbers` by pool, node
        (empty: all files of the pool) and position of the first."""
        rows = [(*key, pickle.dumps(lane)) for key, lane in lanes.items()]
        with self._mutex, transaction(self._db):
            self._db.executemany("INSERT OR REPLACE INTO lanes VALUES (?, ?, ?)", rows)
            runs = [(*key, run.tobytes()) for key, run in numbers.items() if run]
            self._db.executemany("INSERT OR REPLACE INTO numbers VALUES (?, ?, ?, ?)", runs)
            if payments:
                self._db.execute("INSERT INTO payments (record) VALUES (?)", (pickle.dumps(payments),))
            self._db.execute("DELETE FROM checkpoint")
            self._db.execute("INSERT INTO checkpoint VALUES (?, ?, ?)", (head, _version(), pickle.dumps(state)))
        self.lane.cache_clear()

    def clear(self, db: sqlite3.Connection | None = None, above: int = -1) -> None:
        """Forget everything, if the checkpoint is above block `above`; as part of a transaction of `db`, if given."""
        with self._mutex:
            db = db or self._db
            row = db.execute("SELECT block FROM checkpoint").fetchone()
            if row is None or row[0] > above:
                for table in ("checkpoint", "lanes", "numbers", "payments"):
                    db.execute(f"DELETE FROM {table}")
        self.lane.cache_clear()


class EventStore:
    """One process at a time may open a file (ConfigError otherwise). Thread-safe."""

    def __init__(self, path: Path, identity: dict[str, str]) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._mutex = threading.RLock()
        self._lock_file = FileLock(path.with_name(path.name + ".lock"), thread_local=False)
        try:
            # Wait a moment: a check of whether we run (protocol.files) holds it for as long as it takes.
            self._lock_file.acquire(timeout=0.5)
        except Timeout:
            raise ConfigError(f"another process uses {path}", "stop it, or name another data folder") from None
        try:
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.executescript(_SCHEMA)
            self._identify(identity)
            self.archive = Archive(path)
        except sqlite3.DatabaseError as error:
            self._lock_file.release()
            if isinstance(error, sqlite3.OperationalError):
                raise self._unwritten(error) from None
            raise ConfigError(f"{path} is damaged ({error})", "delete it: it is rebuilt from the chain") from None
        except ConfigError:
            self.close()
            raise

    def _identify(self, identity: dict[str, str]) -> None:
        known = dict(self._db.execute("SELECT key, value FROM meta WHERE key LIKE 'id:%'").fetchall())
        wanted = {f"id:{k}": v for k, v in identity.items()}
        if not known:
            with transaction(self._db):  # a part of it would be another deployment's for ever
                self._db.executemany("INSERT INTO meta VALUES (?, ?)", list(wanted.items()))
        elif differing := sorted(k[3:] for k in wanted if known.get(k) != wanted[k]):
            what = f"{self.path} follows another deployment (differs in {', '.join(differing)})"
            raise ConfigError(what, "delete it, or name another data folder")

    @property
    def cursor(self) -> int | None:
        """The block up to which everything is stored."""
        with self._mutex:
            row = self._db.execute("SELECT value FROM meta WHERE key = 'cursor'").fetchone()
        return int(row[0]) if row else None

    def hash_at(self, block: int) -> bytes | None:
        with self._mutex:
            row = self._db.execute("SELECT hash FROM blocks WHERE number = ?", (block,)).fetchone()
            row = row or self._db.execute("SELECT hash FROM logs WHERE block = ? LIMIT 1", (block,)).fetchone()
        return bytes(row[0]) if row else None

    def known_blocks(self, below: int, most: int) -> list[tuple[int, bytes]]:
        """(number, hash) of at most so many blocks below `below` whose hash is known, newest first."""
        query = "SELECT {0}, hash FROM {1} WHERE {0} < ? {2} ORDER BY 1 DESC LIMIT ?"
        found = dict[int, bytes]()
        with self._mutex:
            for names in (("number", "blocks", ""), ("block", "logs", "GROUP BY block")):
                found |= self._db.execute(query.format(*names), (below, most)).fetchall()
        return [(number, bytes(found[number])) for number in sorted(found, reverse=True)[:most]]

    def append(self, logs: Sequence[Log], blocks: Sequence[tuple[int, bytes]]) -> None:
        """Store the logs of the blocks after the cursor up to the last of `blocks` (number, hash); move the cursor."""
        block = blocks[-1][0]
        rows = [(*place_of(log), bytes.fromhex(log["blockHash"][2:]), json.dumps(log)) for log in logs]
        with self._mutex, self._transaction():
            self._db.executemany("INSERT OR REPLACE INTO logs VALUES (?, ?, ?, ?)", rows)
            self._db.executemany("INSERT OR REPLACE INTO blocks VALUES (?, ?)", blocks)
            self._db.execute("DELETE FROM blocks WHERE number < ?", (block - _KEPT_HEADS,))
            self._set_cursor(block)

    def rewind(self, block: int) -> None:
        """Forget everything above `block`."""
        with self._mutex, self._transaction():
            self._db.execute("DELETE FROM logs WHERE block > ?", (block,))
            self._db.execute("DELETE FROM blocks WHERE number > ?", (block,))
            self.archive.clear(self._db, above=block)
            self._set_cursor(block)

    def logs(self, after: int = -1) -> Iterator[Log]:
        """Yield the stored logs of the blocks above `after` in chain order."""
        position = (after, 1 << 62)
        query = "SELECT block, log_index, raw FROM logs WHERE (block, log_index) > (?, ?) ORDER BY 1, 2 LIMIT 2000"
        while True:
            with self._mutex:
                rows = self._db.execute(query, position).fetchall()
            if not rows:
                return
            for block, index, raw in rows:
                position = (block, index)
                yield json.loads(raw)

    def close(self) -> None:
        with self._mutex:
            self._db.close()
            self._lock_file.release()

    def _set_cursor(self, block: int) -> None:
        self._db.execute("INSERT OR REPLACE INTO meta VALUES ('cursor', ?)", (str(block),))

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Raises MusterError where nothing can be written: nothing of it is stored then."""
        try:
            with transaction(self._db):
                yield
        except sqlite3.OperationalError as error:
            raise self._unwritten(error) from None

    def _unwritten(self, error: sqlite3.OperationalError) -> MusterError:
        return MusterError(f"{self.path} cannot be written: {error}", "make room on its disk")


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[None]:
    """Commit what the block does, or nothing of it."""
    try:
        db.execute("BEGIN IMMEDIATE")
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:  # a disk that is full may have ended it
            db.execute("ROLLBACK")
        raise
