"""What holds the bytes of an object on its way."""

import errno
import os
import threading
from pathlib import Path

import pytest

from storage.partial import PartFile, PartialDownload
from storage.sources import MultiSource


def test_a_full_disk_is_heard_of_at_once_and_no_sources_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int, data: memoryview, at: int) -> int:
        raise OSError(errno.ENOSPC, "no room")

    monkeypatch.setattr(os, "pwrite", full)
    draft = PartFile(tmp_path)
    with pytest.raises(OSError, match="no room"):
        draft.append(b"bytes")
    draft.drop()
    assert not list(tmp_path.iterdir())

    def source(key: str, limit: int, partial: PartialDownload) -> None:
        partial.append(b"bytes")

    sources = MultiSource({"a": source, "b": source})
    with pytest.raises(OSError, match="no room"):
        sources.fetch("key", 10, lambda: PartFile(tmp_path))
    assert [stats.failures for stats in sources.stats.values()] == [0, 0]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("end", ["seal", "keep", "drop", "abandon"])
def test_nothing_is_written_after_the_end(tmp_path: Path, end: str) -> None:
    """Where it is may belong to checked bytes by then."""
    with (tmp_path / "file").open("xb+", buffering=0) as file:
        draft = PartFile(location=(file, 4))
        partial = PartialDownload(part_files=lambda: draft)
        partial.append(b"mine")
        if end == "abandon":
            partial.abandon()
        elif end == "keep":
            draft.write_to(file, 4)
        else:
            getattr(draft, end)()
        draft.append(b"late")
        assert (tmp_path / "file").read_bytes() == b"\0\0\0\0mine"


def test_it_is_put_where_it_belongs(tmp_path: Path) -> None:
    with (tmp_path / "file").open("xb+", buffering=0) as file:
        for draft in (PartFile(location=(file, 2)), PartFile(tmp_path), PartFile()):
            draft.append(b"bytes")
            draft.write_to(file, 2)
            assert (tmp_path / "file").read_bytes() == b"\0\0bytes"
            draft.drop()
            os.truncate(tmp_path / "file", 0)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_it_is_read_while_it_is_written(tmp_path: Path) -> None:
    draft, got = PartFile(tmp_path), bytearray()

    def read() -> None:
        while len(got) < 200_000:
            got.extend(draft.read(len(got), 1 << 20))

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    for number in range(200):
        draft.append(bytes([number]) * 1000)
    reader.join(60)
    assert got == b"".join(bytes([number]) * 1000 for number in range(200))
