"""Files that seats answer for: on disk whole or not at all, within their limit, through kills."""

import hashlib
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from validator.retention import RetentionStore

FILES = [os.urandom(1000) for _ in range(4)]
HASHES = [hashlib.sha256(data).digest() for data in FILES]


def test_a_file_is_kept_until_it_is_dropped_also_through_a_restart(tmp_path: Path) -> None:
    files = RetentionStore(tmp_path, 1 << 20)
    assert files.keep((1, 7), HASHES[0], FILES[0])
    assert files.keep((1, 7), HASHES[0], FILES[0]), "a second time changes nothing"
    (tmp_path / "notes.txt").write_text("not ours")
    again = RetentionStore(tmp_path, 1 << 20)
    assert again.has((1, 7), HASHES[0])
    assert not again.has((1, 7), HASHES[1])
    assert not again.has((2, 7), HASHES[0])
    assert again.read(HASHES[0]) == FILES[0]
    assert again.read(HASHES[1]) is None
    again.drop((1, 7), HASHES[0])
    assert again.read(HASHES[0]) is None
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_reorganisation_puts_another_file_in_a_place_and_maybe_the_first_one_back(tmp_path: Path) -> None:
    """Both are kept, through a kill as well, until the chain has shown twice which one it wants."""
    files = RetentionStore(tmp_path, 1 << 20)
    for number in (0, 1):
        assert files.keep((1, 7), HASHES[number], FILES[number])
    again = RetentionStore(tmp_path, 1 << 20)
    assert [again.has((1, 7), HASHES[number]) for number in (0, 1)] == [True, True]
    again.drop((1, 7), HASHES[0])
    assert [again.read(HASHES[number]) for number in (0, 1)] == [None, FILES[1]]


def test_a_full_store_says_so_and_loses_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = RetentionStore(tmp_path, 5000)
    assert [files.keep((1, number), HASHES[number], FILES[number]) for number in range(4)] == [True, True, False, False]
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 1, "said once a minute"
    assert "file 2 of pool 1 IS NOT RETAINED" in errors[0]
    assert "keep_gib" in files.problem
    files.drop((1, 0), HASHES[0])
    assert files.keep((1, 3), HASHES[3], FILES[3])
    assert files.problem == ""
    assert sorted(files.files) == sorted(((1, number), HASHES[number]) for number in (1, 3))


def test_one_pools_files_leave_room_for_every_others(tmp_path: Path) -> None:
    """Or an owner fills the store with large files, and has those fined who accept another's."""
    files = RetentionStore(tmp_path, 4000)
    kept = [files.keep((1, number), HASHES[number], FILES[number]) for number in range(4)]
    assert kept == [True, True, False, False]
    assert files.keep((2, 0), HASHES[2], FILES[2])
    assert not files.keep((2, 1), HASHES[3], FILES[3])
    assert sorted(place for place, _ in files.files) == [(1, 0), (1, 1), (2, 0)]


def test_a_disk_that_takes_no_more_is_no_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "files"
    files = RetentionStore(folder, 1 << 20)
    folder.rmdir()
    folder.write_text("in the way")
    assert not files.keep((1, 0), HASHES[0], FILES[0])
    assert "IS NOT RETAINED" in caplog.text


WRITER = """
import hashlib, sys
from pathlib import Path
from validator.retention import RetentionStore
files = RetentionStore(Path(sys.argv[1]), 1 << 30)
for number in range(10_000):
    data = bytes([number % 251]) * 300_000
    files.keep((1, number), hashlib.sha256(data).digest(), data)
    print(number, flush=True)
"""


def test_a_kill_leaves_whole_files_only(tmp_path: Path) -> None:
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    said = [int(next(writer.stdout)) for _ in range(5)]
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    (tmp_path / ".1-99-x.parquet.0a0b0c0d.tmp").write_bytes(b"half")
    files = RetentionStore(tmp_path, 1 << 30)
    kept = files.files
    assert {(1, number) for number in said} <= {place for place, _ in kept}, "what it said to be kept is"
    for _, sha256 in kept:
        data = files.read(sha256)
        assert data is not None
        assert hashlib.sha256(data).digest() == sha256
    assert not list(tmp_path.glob(".*")), "what was half written is cleared away"
