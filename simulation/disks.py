"""Disks of simulated machines, which all lie in one real folder: lock files that end with their process, writes that a
power cut takes back until they were synced, and disks that fill up."""

import errno
import os
import sqlite3
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

from simulation.scheduler import Process, Scheduler

_NORMAL = 1  # SQLite's `synchronous`: what was committed since the last checkpoint may be lost, the newest first


class Disks:
    """Stands between the roles and the file system."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler, self._random, self._locked = scheduler, Random(), dict[str, Process]()
        self._synced = set[tuple[int, int]]()
        self._connections: dict[tuple[Process, str], list[sqlite3.Connection]] = {}

    def install(self) -> None:
        import filelock

        system: Any = os
        system.fsync, system.replace = self._sync, self._replacing(os.replace)
        database: Any = sqlite3
        database.connect = database.dbapi2.connect = self._connecting(sqlite3.connect)
        library: Any = filelock
        library.FileLock = _lock_class(self, self._scheduler, filelock.Timeout)

    def seed(self, seed: int) -> None:
        self._random.seed(f"disks {seed}")

    # Files: content lasts once it was synced, a new name once its folder was

    def _sync(self, descriptor: int) -> None:
        task = self._scheduler.current
        if task is None:
            return
        self._scheduler.touch()
        self._check_room(task.process, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        about = os.fstat(descriptor)
        inode = about.st_dev, about.st_ino
        if stat.S_ISDIR(about.st_mode):
            waiting = task.process.unsynced
            for path in [path for path, (folder, _) in waiting.items() if folder == inode]:
                del waiting[path]
        else:
            self._synced.add(inode)

    @staticmethod
    def _check_room(process: Process, error: Exception) -> None:
        if process.disk_full:
            raise error

    def _replacing(self, real: Callable[..., None]) -> Callable[..., None]:
        def replace(source: Any, target: Any, **options: Any) -> None:
            task, path = self._scheduler.current, Path(target)
            if task is not None and Path(source).is_file():
                about = os.stat(source)
                inode = about.st_dev, about.st_ino
                previous = path.read_bytes() if path.is_file() else None
                torn = inode not in self._synced
                folder = os.stat(path.parent)
                self._synced.discard(inode)
                first = task.process.unsynced.get(path)
                undo = self._undoing(path, previous, torn) if first is None else first[1]
                task.process.unsynced[path] = (folder.st_dev, folder.st_ino), undo
            real(source, target, **options)

        return replace

    def _undoing(self, path: Path, kept: bytes | None, torn: bool) -> Callable[[], object]:
        """Return what makes of a file that was put in the place of `kept` what a power cut leaves."""

        def undo() -> None:
            with suppress(OSError):
                if torn and self._random.random() < 0.5:
                    os.truncate(path, self._random.randrange(path.stat().st_size + 1))
                elif kept is not None:
                    path.write_bytes(kept)
                else:
                    path.unlink()

        return undo

    # Databases

    def _connecting(self, real: Callable[..., Any]) -> Callable[..., Any]:
        disks = self

        class Connection(sqlite3.Connection):
            """Loses its power, or finds its disk full, before it commits."""

            def commit(self) -> None:
                disks._before_commit()
                super().commit()

            def execute(self, statement: str, *parameters: Any) -> sqlite3.Cursor:
                if statement == "COMMIT":
                    disks._before_commit()
                return super().execute(statement, *parameters)

        def connect(database: Any, *args: Any, **options: Any) -> Any:
            connection = real(database, *args, **options, factory=Connection)
            task = self._scheduler.current
            if task is not None:
                process, path = task.process, str(database)
                known = self._connections.setdefault((process, path), [])
                if not known:
                    process.on_death.append(lambda: self._die(process, path))
                known.append(connection)
            return connection

        return connect

    def _before_commit(self) -> None:
        task = self._scheduler.current
        if task is not None:
            self._scheduler.touch()
            self._check_room(task.process, sqlite3.OperationalError("database or disk is full"))

    def _die(self, process: Process, path: str) -> None:
        """Close what a process had open, so that nothing more is committed, and lose what a power cut would."""
        connections, log = self._connections.pop((process, path)), Path(f"{path}-wal")
        lossy = process.power_cut and log.is_file() and _is_lossy(connections)
        before = (Path(path).read_bytes(), log.read_bytes()) if lossy else None
        for connection in connections:
            connection.close()
        if before is not None:
            Path(path).write_bytes(before[0])
            log.write_bytes(before[1][: self._random.randrange(len(before[1]) + 1)])
            Path(f"{path}-shm").unlink(missing_ok=True)


def _is_lossy(connections: list[sqlite3.Connection]) -> bool:
    for connection in connections:
        with suppress(sqlite3.Error):
            return connection.execute("PRAGMA synchronous").fetchone()[0] == _NORMAL  # type: ignore[no-any-return]
    return False


def _lock_class(disks: Disks, scheduler: Scheduler, timeout_error: type[Exception]) -> type:
    locked = disks._locked

    class FileLock:
        """As `filelock.FileLock`, among simulated processes."""

        def __init__(self, path: object, timeout: float = -1, **_: object) -> None:
            self._path, self._timeout, self.is_locked = str(path), timeout, False

        def acquire(self, timeout: float | None = None, blocking: bool = True, **_: object) -> "FileLock":
            limit = self._timeout if timeout is None else timeout
            end = scheduler.now + (limit if blocking else 0)
            while (holder := locked.get(self._path)) is not None and holder.alive and not self.is_locked:
                if not blocking or 0 <= limit <= scheduler.now - end + limit:
                    raise timeout_error(self._path)
                scheduler.sleep(0.05)
            task = scheduler.current
            locked[self._path] = task.process if task else Process("simulator")
            self.is_locked = True
            return self

        def release(self, force: bool = False) -> None:
            if self.is_locked:
                locked.pop(self._path, None)
                self.is_locked = False

        __enter__ = acquire

        def __exit__(self, *_: object) -> None:
            self.release()

    return FileLock
