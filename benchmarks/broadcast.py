"""What hostile sources cost a download, and what relays spare their origin.

`python -m benchmarks broadcast [--quick] [--size MB] [--only sources|hosts]`. Sources send so many bytes a second each:
the machine's load matters little. Keys: `hostile_slowdown`: how many times as long a download from twelve sources takes
if four are hostile (one poisons, one drips a byte a second, one sends half a shard of poison and breaks off, one holds
back the last byte of all it sends), medians of `seconds` = {honest, hostile}; `sent`: bytes that all sources sent in
the hostile run per byte of the object; `origin_share`: what
an origin sends while `clients` fetch from three relays that fetch from it, in sizes of the object (three is one copy
for each relay); `megabytes`, `shards`, `source_mb_s`.

As root, and with shardcast in build/peers-shardcast (`make peers`), the same origin, relays and clients are hosts of
their own (`benchmarks.broadcast_hosts`), and `--size` megabytes (1,000) go through lines of 200 Mb/s and 20 ms by us
and by shardcast: `last_client_ratio`, our seconds until the last client has all by theirs; `origin_share` is ours on
these lines, with the heads of packets; on free lines `cpu_ratio`, their CPU seconds for the same bytes by ours.
"""

import hashlib
import os
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from benchmarks.broadcast_hosts import PEER, compared
from protocol.errors import ConfigError
from runtime.http_server import HttpServer, bound, server_options
from storage.keys import object_key
from storage.relay.cache import Flights, RelayShelf
from storage.relay.server import RelayApp, RelayLimits
from storage.sources import SpreadSources
from storage.transfers import HttpObjects

SHARD = 1 << 20
SHARDS, QUICK_SHARDS = 96, 16
RATE = 1 << 20
HOSTILE = ("poison", "drip", "break", "withhold")
SOURCES, RELAYS, CLIENTS = 12, 3, 8
RUNS, QUICK_RUNS = 5, 1
SLICE = 32 << 10
Objects = dict[str, bytes]


class PacedSource:
    """Serves `objects` with ranges at RATE bytes a second in all. `kind`: honest, or one of HOSTILE."""

    def __init__(self, objects: Objects, kind: str = "honest", rate: float = RATE) -> None:
        self.objects, self.kind, self.rate, self.sent = objects, kind, rate, 0
        self._lock, self._free = threading.Lock(), 0.0

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        data = self.objects.get(handler.path.removeprefix("/").removeprefix("v1/objects/"))
        if data is None:
            handler.send_error(404)
            return
        start = int((handler.headers.get("Range") or "bytes=0-")[6:-1])
        if self.kind not in ("honest", "withhold"):
            data = bytes(len(data))
        handler.send_response(206 if start else 200)
        handler.send_header("Content-Length", str(len(data) - start))
        if start:
            handler.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        handler.end_headers()
        with suppress(OSError):  # the client has what it wanted
            self._send(handler, data, start)

    def _send(self, handler: BaseHTTPRequestHandler, data: bytes, start: int) -> None:
        if self.kind == "drip":
            for at in range(start, len(data)):
                handler.wfile.write(data[at : at + 1])
                time.sleep(1)
        end = {"break": len(data) // 2, "withhold": len(data) - 1}.get(self.kind, len(data))
        for at in range(start, end, SLICE):
            piece = data[at : min(at + SLICE, end)]
            self._wait(len(piece))
            handler.wfile.write(piece)
        if self.kind == "withhold":
            handler.connection.settimeout(60.0)
            handler.connection.recv(1)  # until the client hangs up
        if end < len(data):
            handler.close_connection = True

    def _wait(self, size: int) -> None:
        """Until the line is free for so many bytes more."""
        with self._lock:
            self._free = max(self._free, time.monotonic()) + size / self.rate
            until = self._free
            self.sent += size
        time.sleep(max(0.0, until - time.monotonic()))


@contextmanager
def served(source: PacedSource) -> Iterator[str]:
    class PacedHandler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            source.answer(self)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), PacedHandler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def relayed(upstream: str, keys: Objects, folder: Path) -> Iterator[str]:
    """A relay that may serve `keys`, in a thread."""
    objects = HttpObjects([upstream], timeout=60.0)
    shelf = RelayShelf(folder, 1 << 40)
    shelf.name((key, len(data)) for key, data in keys.items())
    flights = Flights(SpreadSources(objects.each()), shelf, 64 << 20)
    listener = bound("127.0.0.1", 0)
    server = HttpServer(server_options(RelayApp(shelf, flights, RelayLimits(1e6, 1e6, 1000)), 1000, files=True))
    thread = threading.Thread(target=lambda: server.run(sockets=[listener]), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1/objects"
    finally:
        server.should_exit = True
        thread.join(10)
        flights.close()
        objects.close()


def made(shards: int) -> Objects:
    pieces = (random.Random(number).randbytes(SHARD) for number in range(shards))
    return {object_key("shards", hashlib.sha256(data).digest()): data for data in pieces}


def downloaded(objects: Objects, bases: list[str], parallel: int = SOURCES) -> float:
    """Seconds for all objects from all bases, `parallel` at a time."""
    source = HttpObjects(bases, timeout=60.0)
    spread, began = SpreadSources(source.each()), time.monotonic()
    with ThreadPoolExecutor(parallel) as pool:
        for key, data in zip(objects, pool.map(lambda key: spread(key, SHARD), objects), strict=True):
            assert data == objects[key]
    taken = time.monotonic() - began
    source.close()
    return taken


def against(objects: Objects, kinds: list[str]) -> tuple[float, int]:
    """Seconds of a download from sources of these kinds, and bytes that all of them sent."""
    sources = [PacedSource(objects, kind) for kind in kinds]
    with ExitStack() as stack:
        bases = [stack.enter_context(served(source)) for source in sources]
        random.Random(len(objects)).shuffle(bases)
        return downloaded(objects, bases, len(bases)), sum(source.sent for source in sources)


def origin_share(objects: Objects, folder: Path) -> float:
    """How many times an origin sends the objects, while clients fetch them from relays."""
    origin = PacedSource(objects, rate=1e12)
    with ExitStack() as stack:
        base = stack.enter_context(served(origin))
        relays = [stack.enter_context(relayed(base, objects, folder / str(number))) for number in range(RELAYS)]
        with ThreadPoolExecutor(CLIENTS) as pool:
            list(pool.map(lambda _: downloaded(objects, relays), range(CLIENTS)))
    return origin.sent / sum(map(len, objects.values()))


def run(quick: bool, progress: Callable[[str], None], size: int = 0, only: str = "") -> dict[str, Any]:
    """See the module. `only`: one of its two parts."""
    if only not in ("", "sources", "hosts"):
        raise ConfigError(f"broadcast has no part {only!r}", "choose sources or hosts")
    beside, found = dict[str, Any](), dict[str, Any]()
    if only != "sources" and PEER.is_dir() and not os.geteuid():
        beside = compared(size or (16 if quick else 1000), progress)
    elif only == "hosts":
        raise ConfigError("hosts of their own need root, and shardcast", "run `make peers` once, and this as root")
    if only != "hosts":
        found = hostile_sources(quick, progress)
    return {**found, **beside}


def hostile_sources(quick: bool, progress: Callable[[str], None]) -> dict[str, Any]:
    """What a third of hostile sources costs, and what relays on this host spare their origin."""
    objects = made(QUICK_SHARDS if quick else SHARDS)
    total = sum(map(len, objects.values()))
    hostile = [*HOSTILE, *["honest"] * (SOURCES - len(HOSTILE))]
    seconds: dict[str, list[float]] = {"honest": [], "hostile": []}
    sent = list[float]()
    for number in range(QUICK_RUNS if quick else RUNS):
        seconds["honest"].append(against(objects, ["honest"] * SOURCES)[0])
        taken, spent = against(objects, hostile)
        seconds["hostile"].append(taken)
        sent.append(spent / total)
        progress(f"run {number}: {seconds['honest'][-1]:.1f} s honest, {taken:.1f} s with a third hostile")
    with tempfile.TemporaryDirectory() as folder:
        share = origin_share(objects, Path(folder))
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    return {
        "hostile_slowdown": round(medians["hostile"] / medians["honest"], 3),
        "seconds": {name: round(value, 2) for name, value in medians.items()},
        "sent": round(statistics.median(sent), 3),
        "origin_share": round(share, 3),
        "clients": CLIENTS,
        "megabytes": total >> 20,
        "shards": len(objects),
        "source_mb_s": RATE / 1e6,
    }
