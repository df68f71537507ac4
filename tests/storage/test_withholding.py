"""Sources that send nearly all of an object at once, so that they look good, and hold the rest back."""

import hashlib
import random
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler

import pytest

from storage.keys import object_key
from tests.storage.mirror import begin, sources

PIECES = map(random.Random(1).randbytes, [99_999] * 4)
SHARDS = {object_key("shards", hashlib.sha256(data).digest()): data for data in PIECES}


class Holder:
    """Sends all but the last `held` bytes of what is asked for; `left` counts the clients that hung up."""

    def __init__(self, held: int) -> None:
        self.held, self.asked, self.left = held, 0, threading.Semaphore(0)

    def __call__(self, handler: BaseHTTPRequestHandler) -> None:
        self.asked += 1
        data = SHARDS[handler.path.removeprefix("/")]
        handler.wfile.write(data[begin(handler, data) : len(data) - self.held])
        if self.held:
            with suppress(OSError):
                handler.connection.recv(1)  # until the client hangs up
            self.left.release()


def test_the_last_byte_is_held_back_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """A source of which nothing is known may take an hour by its stats alone."""
    monkeypatch.setattr("storage.sources._DEFAULT_RATE", 100.0)
    holder, got = Holder(1), dict[str, bytes]()
    with sources(holder, Holder(0), Holder(0), timeout=60.0) as asked:

        def fetch() -> None:
            got.update({key: asked(key, len(data)) for key, data in SHARDS.items()})

        thread = threading.Thread(target=fetch, daemon=True)
        thread.start()
        thread.join(60)
        assert got == SHARDS, "it waits for a source that holds back"
        for _ in range(holder.asked):
            assert holder.left.acquire(timeout=60), "whom nobody waits for any more is hung up on"
    assert holder.asked <= 2, "it looks fast, and fails"
    assert asked.stats["0"].failures > 0
