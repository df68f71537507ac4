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

log = logging.getLogger("muster.orchestrator")
MAX_BACKOFF = 5.0
_LEADER_LOCK = 0x6C6561646572
"""PostgreSQL's advisory lock of the leader: "leader" in ASCII."""


class BackgroundTask:
    """A supervised thread that calls `work` again and again; `work` returns the seconds until the next call.

    Nothing that `work` raises ends the thread: `problem` says what failed until a call succeeds, and the next call
    comes after a pause that doubles up to MAX_BACKOFF seconds.
    """

    def __init__(self, name: str, work: Callable[[], float], first_pause: float = 0.25) -> None:
        self.name, self._work, self._first_pause = name, work, first_pause
        self._failure = ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread after the call under way."""
        self._stop.set()
        self._thread.join(timeout=10)

    @property
    def problem(self) -> str:
        """Why this task does not do its work, or empty."""
        if self._failure:
            return self._failure
        has_died = self._thread.ident is not None and not self._thread.is_alive() and not self._stop.is_set()
        return f"{self.name}: the thread has ended; restart the service" if has_died else ""

    def _run(self) -> None:
        backoff = self._first_pause
        while not self._stop.is_set():
            try:
                pause = self._work()
                self._failure, backoff = "", self._first_pause
                self._stop.wait(pause)
            except BaseException as error:  # not even SystemExit may end this thread unnoticed
                self._report(error)
                with WAITS.on(f"{self.name} to succeed"):
                    self._stop.wait(backoff)
                backoff = min(MAX_BACKOFF, 2 * backoff)

    def _report(self, error: BaseException) -> None:
        failure = f"{self.name}: {describe(error)}"
        if failure == self._failure:
            return
        self._failure = failure
        if isinstance(error, MusterError | SQLAlchemyError):
            log.warning("%s", failure)
        else:
            log.error("%s", failure, exc_info=error)


def describe(error: BaseException) -> str:
    """Return what went wrong, in one line."""
    return error.what if isinstance(error, MusterError) else f"{type(error).__name__}: {error}".splitlines()[0]


class Leader:
    """This replica's candidacy for work that one replica does: attesting uploads, pruning, reading files.

    The leader holds a lock that ends with its process: an advisory lock of PostgreSQL on a connection of its own, or a
    lock on a file beside SQLite's. Correctness never depends on it: two leaders would send a transaction twice.
    Thread-safe.
    """

    def __init__(self, db: Database) -> None:
        self._db = db
        self._mutex = threading.Lock()
        self._connection: Connection | None = None
        self._file = FileLock(f"{db.engine.url.database}.leader", thread_local=False) if db.is_sqlite else None

    def leads(self) -> bool:
        """Return whether this replica leads; it takes the lead if nobody has it. Never raises."""
        with self._mutex:
            return self._has_file(self._file) if self._file is not None else self._has_advisory_lock()

    def close(self) -> None:
        """Let another replica lead."""
        with self._mutex:
            if self._file is not None:
                self._file.release(force=True)
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _has_file(self, lock: FileLock) -> bool:
        try:
            if not lock.is_locked:
                lock.acquire(blocking=False)
        except (Timeout, OSError):
            return False
        return True

    def _has_advisory_lock(self) -> bool:
        try:
            if self._connection is not None:
                self._connection.execute(text("SELECT 1"))
                return True
            connection = self._db.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
            # Back in the pool, the connection would keep the lock.
            connection.detach()
            if connection.scalar(text("SELECT pg_try_advisory_lock(:key)"), {"key": _LEADER_LOCK}):
                self._connection = connection
                return True
            connection.close()
        except SQLAlchemyError:
            self._connection = None
        return False
