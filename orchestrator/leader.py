"""Which replica does what must be done once: attesting uploads, cleaning up.

The leader holds a lock that ends with its process: an advisory lock of PostgreSQL on a connection of its own, or a lock
on a file beside SQLite's. Nothing depends on there being one leader: two would only send a transaction twice.
"""

import threading

from filelock import FileLock, Timeout
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from orchestrator.db import Database

_KEY = 0x6C6561646572
""""leader" in ASCII."""


class Leader:
    """This replica's candidacy. Thread-safe."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._mutex = threading.Lock()
        self._connection: Connection | None = None
        self._file = FileLock(f"{db.engine.url.database}.leader", thread_local=False) if db.is_sqlite else None

    def leads(self) -> bool:
        """Whether this replica leads, now; it takes the lead if nobody has it. Never raises."""
        with self._mutex:
            return self._has_file() if self._file is not None else self._has_advisory_lock()

    def close(self) -> None:
        """Let another replica lead."""
        with self._mutex:
            if self._file is not None:
                self._file.release(force=True)
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _has_file(self) -> bool:
        assert self._file is not None
        try:
            if not self._file.is_locked:
                self._file.acquire(blocking=False)
        except (Timeout, OSError):
            return False
        return True

    def _has_advisory_lock(self) -> bool:
        try:
            if self._connection is not None:
                self._connection.execute(text("SELECT 1"))
                return True
            connection = self._db.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
            # Never back into the pool: the lock would live on with the connection.
            connection.detach()
            if connection.scalar(text("SELECT pg_try_advisory_lock(:key)"), {"key": _KEY}):
                self._connection = connection
                return True
            connection.close()
        except DBAPIError:
            self._connection = None
        return False
