"""One connection to the chain, refreshed by several threads."""

import threading
import time
from types import SimpleNamespace
from typing import Any

from runtime.pool_client import ChainConnection


def test_two_threads_never_refresh_at_once() -> None:
    """A worker fetches the next weights in a thread of its own while a file is made."""
    inside: list[int] = []
    overlaps: list[int] = []

    class Projection:
        state = SimpleNamespace(generation=0, head=1)

        def refresh(self) -> None:
            inside.append(1)
            time.sleep(0.01)
            overlaps.append(len(inside))
            inside.pop()

    connection: Any = ChainConnection.__new__(ChainConnection)
    connection.projection, connection._refreshing = Projection(), threading.Lock()
    threads = [threading.Thread(target=connection.refresh) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert overlaps == [1] * 8
