"""What lies on a relay's cache may have been spoilt or swapped: it is read no further than it may be long."""

import errno
import hashlib
import os
from pathlib import Path

import pytest

from protocol.errors import IntegrityError
from storage.keys import object_key
from storage.partial import PartialDownload
from storage.relay.cache import RelayCache

DATA = b"a shard" * 1000
KEY = object_key("shards", hashlib.sha256(DATA).digest())


def cache_of(folder: Path) -> RelayCache:
    cache = RelayCache(folder, 1 << 20)
    cache.name([(KEY, len(DATA))])
    return cache


@pytest.mark.parametrize("size", [len(DATA), 1 << 26])
def test_a_shard_is_copied_whole_and_not_read_to_the_end_of_a_file_that_has_grown(tmp_path: Path, size: int) -> None:
    cache, whole = cache_of(tmp_path), PartialDownload()
    assert not cache.copy(KEY, whole)
    assert cache.put(KEY, DATA)
    os.truncate(tmp_path / KEY, size)
    assert cache.copy(KEY, whole)
    assert whole.received == len(DATA)
    assert whole.whole() == DATA


def test_a_swapped_file_of_the_same_length_is_thrown_away(tmp_path: Path) -> None:
    cache, whole = cache_of(tmp_path), PartialDownload()
    cache.put(KEY, DATA)
    (tmp_path / KEY).write_bytes(DATA[::-1])
    assert not cache.copy(KEY, whole)
    assert len(whole) == 0


def test_what_a_former_process_left_is_not_hashed_where_its_length_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "shards").mkdir()
    path = tmp_path / KEY
    path.touch()
    os.truncate(path, 1 << 43)  # a sparse file: to hash it would take days
    assert not cache_of(tmp_path).has(KEY)
    assert not path.exists()


def test_what_comes_while_it_is_looked_for_is_not_thrown_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread finds nothing there, or something wrong, and another keeps the shard before the first goes on."""
    for failure in (FileNotFoundError(), IntegrityError("left by a former process")):
        cache, whole = cache_of(tmp_path / type(failure).__name__), PartialDownload()

        def come(key: str, named: int, cache: RelayCache = cache, failure: Exception = failure) -> int:
            assert cache.put(key, DATA)
            raise failure

        monkeypatch.setattr(cache, "_checked_size", come)
        assert cache.copy(KEY, whole)
        assert whole.whole() == DATA
        assert cache.path(KEY) == cache.folder / KEY


def test_a_shard_that_the_disk_has_no_room_for_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    cache = cache_of(tmp_path)
    monkeypatch.setattr("storage.partial.write", full)
    assert not cache.put(KEY, DATA)
    assert not list((tmp_path / "shards").iterdir())
