"""Relays as processes, and the bucket behind them."""

import json
import subprocess
import sys
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
from tests.conftest import free_port
from tests.storage.mirror import begin, send

ROOT = Path(__file__).parents[3]


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


class RelayProcess:
    """A relay; `url` is the base of its objects."""

    def __init__(self, folder: Path, upstreams: list[str], manifests: list[bytes], **options: Any) -> None:
        self.port, self.folder = free_port(), folder
        self.root = f"http://127.0.0.1:{self.port}"
        self.url = self.root + OBJECTS
        given = {"upstreams": upstreams, "manifests": [one.hex() for one in manifests], "folder": str(folder)}
        self._options = {**given, "port": self.port, **options}
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.storage.relay.process", json.dumps(self._options)]
        self.process = subprocess.Popen(command, cwd=ROOT)
        wait_for("the relay starts", lambda: self.process.poll() is not None or self.status())
        assert self.process.poll() is None, "the relay ended"

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
        self.process.wait()


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
