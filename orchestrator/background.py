"""Background work of the service: supervised threads, and the lock of the replica that leads."""

import logging
import threading
from collections.abc import Callable

from filelock import FileLock, Timeout
from sqlalchemy import Connection, text
from sqlalchemy.exc import SQLAlchemyError

from orchestrator.db import Database
from protocol.errors import MusterError
from protocol.waits import WAITS
from runtime.entry import essential

log = logging.getLogger("muster.orchestrator")
MAX_BACKOFF = 5.0
# PostgreSQL's advisory lock of the leader: "leader" in ASCII.
_LEADER_LOCK = 0x6C6561646572


class BackgroundTask:
    """A supervised thread that calls `work` every `pause` seconds. No Exception of `work` ends it: `problem` says what
    failed until a call succeeds, and the next call comes after a pause that doubles up to MAX_BACKOFF seconds. Anything
    else, such as SystemExit, ends the thread and with it the process."""

    def __init__(self, name: str, work: Callable[[], object], pause: float, first_backoff: float = 0.25) -> None:
        self.name, self._work, self._pause, self._first_backoff = name, work, pause, first_backoff
        self.problem = ""
        self._stop = threading.Event()
        self._thread = essential(name, self._run)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread after the call under way."""
        self._stop.set()
        self._thread.join(timeout=10)

    def _run(self) -> None:
        backoff = self._first_backoff
        while not self._stop.is_set():
            try:
                self._work()
                self.problem, backoff = "", self._first_backoff
                self._stop.wait(self._pause)
            except Exception as error:
                failure = f"{self.name}: {describe(error)}"
                if failure != self.problem:
                    is_foreseen = isinstance(error, MusterError | SQLAlchemyError)
                    log.warning("%s", failure, exc_info=None if is_foreseen else error)
                self.problem = failure
                with WAITS.on(f"{self.name} to succeed"):
                    self._stop.wait(backoff)
                backoff = min(MAX_BACKOFF, 2 * backoff)


def describe(error: Exception) -> str:
    """Return what went wrong, in one line."""
    return error.what if isinstance(error, MusterError) else f"{type(error).__name__}: {error}".splitlines()[0]


class Leader:
    """This replica's candidacy for work that one replica does: relaying files, pruning. The leader holds a lock that
    ends with its process: an advisory lock of PostgreSQL on a connection of its own, or a lock on a file beside
    SQLite's. Correctness never depends on it: two leaders would send a transaction twice. Thread-safe."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._mutex = threading.Lock()
        self._connection: Connection | None = None
        self._file = FileLock(f"{db.engine.url.database}.leader", thread_local=False) if db.is_sqlite else None

    def leads(self) -> bool:
        """Return whether this replica leads; it takes the lead if nobody has it. Never raises."""
        with self._mutex:
            try:
                if self._file is None:
                    return self._has_advisory_lock()
                if not self._file.is_locked:
                    self._file.acquire(blocking=False)
                return True
            except (Timeout, OSError):
                return False
            except SQLAlchemyError:
                self._connection = None
                return False

    def close(self) -> None:
        """Let another replica lead."""
        with self._mutex:
            if self._file is not None:
                self._file.release(force=True)
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _has_advisory_lock(self) -> bool:
        if self._connection is not None:
            self._connection.execute(text("SELECT 1"))
            return True
        connection = self._db.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        connection.detach()  # back in the pool, it would keep the lock
        if connection.scalar(text("SELECT pg_try_advisory_lock(:key)"), {"key": _LEADER_LOCK}):
            self._connection = connection
            return True
        connection.close()
        return False
