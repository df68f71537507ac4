"""A gate over a bucket in memory, and what its members send."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

from orchestrator.auth import RequestGuard
from orchestrator.uploads import ObjectStore
from protocol.api.swarm import EnvelopeUpload
from protocol.http.signing import AuthScope
from runtime.server import HttpServer, bound, server_options
from swarm.envelope import DOMAIN
from swarm.gate import EnvelopeIndex, RecentNonces, SwarmGate, create_app
from tests.orchestrator.conftest import FakeBucket
from tests.swarm.samples import DOCUMENT, KEYS

FIRST, SECOND, STRANGER = (key.address for key in KEYS)


class GateClock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


class CountingStore(FakeBucket):
    """Counts what is read of it."""

    gets = 0

    def get(self, key: str, limit: int) -> bytes:
        self.gets += 1
        return super().get(key, limit)

    def leave(self, data: bytes) -> EnvelopeUpload:
        """As an upload does; what a member then says of it."""
        body = asking(data)
        self.objects[f"envelopes/{body.sha256}.json"] = data
        self.sizes[f"envelopes/{body.sha256}.json"] = len(data)
        return body


def asking(data: bytes) -> EnvelopeUpload:
    return EnvelopeUpload(sha256=hashlib.sha256(data).hexdigest(), size=len(data))


def gate_of(
    folder: Path,
    store: ObjectStore,
    per_hour: int = 1000,
    bytes_per_hour: int = 1 << 30,
    clock: GateClock | None = None,
) -> SwarmGate:
    index = EnvelopeIndex(folder / "gate.sqlite")
    return SwarmGate(DOCUMENT, [FIRST, SECOND], store, index, per_hour, bytes_per_hour, clock or GateClock())


@contextmanager
def served(gate: SwarmGate, rate: float = 1000.0) -> Iterator[str]:
    """Its URL."""
    with bound("127.0.0.1", 0) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        guard = RequestGuard(AuthScope.of(url, DOMAIN.chain_id, DOMAIN.contract), RecentNonces().use)
        server = HttpServer(server_options(create_app(gate, guard, rate, rate), 64))
        thread = Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield url
        finally:
            server.should_exit = True
            thread.join()
