"""A disk that is full: nothing of a block is stored, it is said so, and all goes on once there is room."""

from pathlib import Path

import pytest

from chain.indexer.store import EventStore
from protocol.errors import ConfigError, MusterError

BIG = {"data": "0x" + "ab" * 200_000}


def log(block: int) -> dict[str, str]:
    return {"blockNumber": hex(block), "logIndex": "0x0", "blockHash": "0x" + "11" * 32, **BIG}


def test_what_does_not_fit_is_said_and_stored_later(tmp_path: Path) -> None:
    store = EventStore(tmp_path / "events.sqlite", {"chain": "1"})
    store.append([], [(1, bytes(32))])
    (pages,) = store._db.execute("PRAGMA page_count").fetchone()
    store._db.execute(f"PRAGMA max_page_count = {pages + 4}")
    for _ in range(2):
        with pytest.raises(
            MusterError, match=r"events\.sqlite cannot be written: .*full; make room on its disk"
        ) as caught:
            store.append([log(2)], [(2, bytes(32))])
        assert not isinstance(caught.value, ConfigError), "a process would end by it"
        assert (store.cursor, list(store.logs())) == (1, [])
    store._db.execute("PRAGMA max_page_count = 100000")
    store.append([log(2)], [(2, bytes(32))])
    assert (store.cursor, len(list(store.logs()))) == (2, 1)
    store.close()
