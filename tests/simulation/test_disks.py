"""Disks: what was synced survives a power cut, and nothing else has to."""

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from protocol.files import write_atomic
from simulation.disks import Disks
from simulation.scheduler import Process, Scheduler


class Machine:
    """One process on a disk, whose power is cut when it has done its work."""

    def __init__(self, seed: int = 0) -> None:
        self.scheduler, self.process = Scheduler(), Process("p")
        self.disks = Disks(self.scheduler)
        self.disks.seed(seed)

    def run(self, work: Callable[[], object], cut: bool = True) -> None:
        def main() -> None:
            self.scheduler.spawn(self.process, "work", work)
            self.scheduler.sleep(1.0)
            self.process.power_cut = cut
            self.scheduler.kill(self.process)

        self.scheduler.run(main, Process("onlooker"))

    def write(self, monkeypatch: pytest.MonkeyPatch, path: Path, data: bytes, synced: bool, cut: bool = True) -> bytes:
        monkeypatch.setattr(os, "replace", self.disks._replacing(os.replace))
        monkeypatch.setattr(os, "fsync", self.disks._sync if synced else lambda descriptor: None)
        self.run(lambda: write_atomic(path, data), cut)
        monkeypatch.undo()
        return path.read_bytes()


def test_a_file_that_was_not_synced_is_as_before_or_torn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, left = tmp_path / "file", set[bytes]()
    for seed in range(20):
        path.write_bytes(b"old")
        assert Machine(seed).write(monkeypatch, path, b"new content", synced=True) == b"new content"
        path.write_bytes(b"old")
        assert Machine(seed).write(monkeypatch, path, b"new content", synced=False, cut=False) == b"new content"
        path.write_bytes(b"old")
        left.add(Machine(seed).write(monkeypatch, path, b"new content", synced=False))
    assert b"old" in left
    assert len(left) > 3
    assert all(b"new content".startswith(content) for content in left - {b"old"})


@pytest.mark.parametrize("synchronous", ["NORMAL", "FULL"])
def test_a_database_loses_the_newest_commits_unless_it_syncs_them(tmp_path: Path, synchronous: str) -> None:
    rows = set[int]()
    for seed in range(10):
        machine, path = Machine(seed), tmp_path / f"{seed}.sqlite"
        connect = machine.disks._connecting(sqlite3.connect)

        def work(connect: Callable[..., sqlite3.Connection] = connect, path: Path = path) -> None:
            connection = connect(path, isolation_level=None)
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute(f"PRAGMA synchronous={synchronous}")
            connection.execute("CREATE TABLE numbers (number INTEGER)")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            for number in range(20):
                connection.execute("INSERT INTO numbers VALUES (?)", (number,))

        machine.run(work)
        kept = [number for (number,) in sqlite3.connect(path).execute("SELECT number FROM numbers")]
        assert kept == list(range(len(kept)))
        rows.add(len(kept))
    assert rows == {20} if synchronous == "FULL" else len(rows) > 3


def test_power_is_cut_at_a_write_and_a_full_disk_takes_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine, path = Machine(), tmp_path / "file"
    path.write_bytes(b"old")
    machine.process.cut_after = 1
    assert machine.write(monkeypatch, path, b"new", synced=True) == b"old"
    assert machine.process.message == "its power was cut"
    full = Machine()
    full.process.disk_full = True
    with pytest.raises(OSError, match="No space"):
        full.write(monkeypatch, path, b"new", synced=True)
    assert path.read_bytes() == b"old"
