"""Relays as processes, without a chain, and the bucket behind them."""

import multiprocessing
import resource
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import httpx

from protocol.api.endpoints import OBJECTS
from runtime.server import HttpServer, bound, server_options
from storage.keys import object_key
from storage.relay import cache
from storage.relay.cache import RelayCache, RelayFetches
from storage.relay.server import RelayApp, ServeWeights
from storage.sources import MultiSource
from storage.transfers import HttpObjects
from storage.weights.manifest import MAX_STORED_BYTES, unseal
from tests.conftest import free_port
from tests.storage.mirror import begin, send
from tests.storage.weights.folders import PUBLISHER

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.storage.relay.running"])


@dataclass
class Upstream:
    """Answers with `objects`; `asked` counts requests by key. `slice`: bytes before each wait for `go`, all at once if
    0."""

    objects: dict[str, bytes]
    asked: Counter[str] = field(default_factory=Counter)
    slice: int = 0
    go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def __call__(self, handler: BaseHTTPRequestHandler) -> None:
        key = handler.path.removeprefix("/")
        self.asked[key] += 1
        data = self.objects.get(key)
        if data is None:
            return send(handler, 404)
        start = begin(handler, data)
        step = self.slice if self.slice and key.startswith("shards/") else len(data) or 1
        for at in range(start, len(data), step):
            if self.slice and key.startswith("shards/"):
                self.go.acquire()
            handler.wfile.write(data[at : at + step])
            handler.wfile.flush()


def serve(
    port: int,
    folder: Path,
    upstreams: list[str],
    manifests: list[bytes],
    room: int = 1 << 30,
    limits: ServeWeights | None = None,
    again: float = cache.AGAIN_SECONDS,
    open_files: int = 0,
) -> None:
    """Be a relay that believes these manifests. `again`: after how many seconds it looks again for what could not be
    had; `open_files`: how many it may have open at first."""
    cache.AGAIN_SECONDS = again
    if open_files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    spread = MultiSource(HttpObjects(upstreams, timeout=10.0).each())
    held = RelayCache(folder, room)
    named, stored = list[tuple[str, int]](), dict[str, bytes]()
    for digest in manifests:
        key = object_key("manifests", digest)
        stored[key] = spread(key, MAX_STORED_BYTES)
        manifest = unseal(stored[key], digest, PUBLISHER)
        named += [(key, len(stored[key])), *((shard.key, shard.size) for shard in manifest.every_shard())]
    held.name(named)
    for key, data in stored.items():
        held.put(key, data)
    app = RelayApp(held, RelayFetches(spread, held), limits or ServeWeights())
    HttpServer(server_options(app, 64)).run(sockets=[bound("127.0.0.1", port)])


class RelayProcess:
    """A relay; `url` is the base of its objects."""

    def __init__(self, folder: Path, upstreams: list[str], manifests: list[bytes], **options: Any) -> None:
        self.port = free_port()
        self.root = f"http://127.0.0.1:{self.port}"
        self.url = self.root + OBJECTS
        self._given, self._options = (self.port, folder, upstreams, manifests), options
        self.start()

    def start(self) -> None:
        self.process = _CONTEXT.Process(target=serve, args=self._given, kwargs=self._options, daemon=True)
        self.process.start()
        self.pid = self.process.pid or 0
        wait_for("the relay starts", lambda: not self.process.is_alive() or self.status())
        assert self.process.is_alive(), "the relay ended"

    def get(self, key: str, **headers: str) -> httpx.Response:
        return httpx.get(f"{self.url}/{key}", headers=headers, trust_env=False, timeout=60)

    def status(self) -> Any:
        return httpx.get(self.root + "/health", trust_env=False, timeout=60).json()

    def figures(self) -> dict[str, float]:
        text = httpx.get(self.root + "/metrics", trust_env=False, timeout=60).text
        lines = [line.split(" ") for line in text.splitlines() if not line.startswith("#")]
        return {name.removeprefix("muster_relay_"): float(value) for name, value in lines}

    def kill(self) -> None:
        self.process.kill()
        self.process.join()


def wait_for(what: str, reached: Callable[[], object]) -> None:
    """Wait until it is reached, at most 90 s; a server that does not answer yet has reached nothing."""
    end = time.monotonic() + 90
    while time.monotonic() < end:
        with suppress(httpx.HTTPError):
            if reached():
                return
        time.sleep(0.05)
    raise AssertionError(what)


@contextmanager
def relay(folder: Path, upstreams: list[str], manifests: list[bytes], **options: Any) -> Iterator[RelayProcess]:
    running = RelayProcess(folder, upstreams, manifests, **options)
    try:
        yield running
    finally:
        running.kill()
