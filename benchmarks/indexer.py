"""Measure the chain indexer: how its costs grow with the history, and whether faults leave a trace in its state.

`python -m benchmarks indexer [--quick]`. Keys: `histories`, by size: `events` read over HTTP from another process,
checked, stored, decoded and applied to the state at `events_per_s`; then `turn_ms`, a turn with one block of
`block_events` events (median of TURNS); `reorganisation_ms`, of eight blocks; `restart_ms`, from the file on disk;
`rss_mb` at the end. `schedules` of faults tried (support/schedules.py), `differing`: those whose state differs from
one rebuilt from scratch; `faults`: how many of each kind occurred; `load`: the machine's load average at the end.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import psutil

from benchmarks.support.made_up_chain import CHAIN_ID, Endpoint, MadeUpChain, deployment
from benchmarks.support.schedules import run_schedule
from chain.indexer.follower import Follower
from chain.indexer.projection import Projection
from chain.rpc import ChainReader, FailoverProvider

FILES = 16  # in a block
BLOCKS = {"1e5": 2_040, "1e6": 20_400}
QUICK_BLOCKS = {"quick": 700, "quick twice": 1_400}
TURNS = 40
SCHEDULES, QUICK_SCHEDULES = 200, 20


def serve(endpoint: Endpoint) -> ThreadingHTTPServer:
    """A server of `endpoint` on a free port, in a thread."""

    class Answer(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            data = json.dumps(endpoint.answer(body)).encode()
            self.send_response_only(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def serve_chain(blocks: int) -> None:
    """Serve a chain of so many blocks until the input ends. Whoever asks for `mine` and `fork` moves it."""
    chain = MadeUpChain(FILES)
    chain.grow(blocks)

    def moved(method: str, params: list[Any]) -> dict[str, Any] | None:
        if method not in ("mine", "fork"):
            return None
        chain.grow(1) if method == "mine" else chain.fork(8, 9, branch=int(params[0]))
        return {"result": chain.head.number}

    server = serve(Endpoint(chain, fault=moved))
    print(f"http://127.0.0.1:{server.server_address[1]} {sum(len(block.logs) for block in chain.blocks)}", flush=True)
    sys.stdin.read()


def measure(url: str, blocks: int, folder: Path) -> dict[str, Any]:
    """Follow the chain at `url`, then move it and follow on."""

    def ask(method: str, *params: Any) -> int:
        answer = httpx.post(url, json={"jsonrpc": "2.0", "id": 1, "method": method, "params": list(params)})
        return int(answer.json()["result"])

    def opened() -> Projection:
        reader = ChainReader(FailoverProvider([url], CHAIN_ID, timeout=60))
        return Projection(Follower(reader, deployment(), folder / "events.sqlite"))

    def timed(action: Callable[[], object]) -> float:
        began = time.monotonic()
        action()
        return 1000 * (time.monotonic() - began)

    def turn(method: str, *params: Any) -> float:
        head = ask(method, *params)
        spent = timed(projection.refresh)
        assert projection.state.head == head
        return spent

    projection = opened()

    def catch_up() -> None:
        while projection.state.head < blocks:
            projection.refresh()

    seconds = timed(catch_up) / 1000
    turns = [turn("mine") for _ in range(TURNS)]
    reorganisations = [turn("fork", branch) for branch in range(1, 6)]
    projection.source.close()  # type: ignore[attr-defined]
    began = time.monotonic()
    projection = opened()
    restart = 1000 * (time.monotonic() - began)
    turn("mine")
    memory = psutil.Process().memory_info().rss / (1 << 20)
    files = projection.state.submissions_of(1)
    assert [file.sequence for file in files] == list(range(len(files)))
    assert len(files) > (blocks - 1) * FILES, "every file must be in the state"
    return {
        "seconds": seconds,
        "turn_ms": round(statistics.median(turns), 1),
        "reorganisation_ms": round(statistics.median(reorganisations), 1),
        "restart_ms": round(restart, 1),
        "rss_mb": round(memory),
        "open_files": len(projection.state.submissions),
    }


def run(quick: bool, progress: Callable[[str], None] = lambda line: None) -> dict[str, Any]:
    """Both parts; returns the keys of the module's docstring."""
    histories = {}
    for name, blocks in (QUICK_BLOCKS if quick else BLOCKS).items():
        histories[name] = _history(blocks)
        progress(f"{name}: {histories[name]}")
    faults, differing = Counter[str](), 0
    count = QUICK_SCHEDULES if quick else SCHEDULES
    for seed in range(count):
        with tempfile.TemporaryDirectory() as folder:
            same, met = run_schedule(seed, Path(folder))
        faults.update(met)
        differing += not same
        if seed % 20 == 19:
            progress(f"{seed + 1} of {count} schedules, {differing} differ")
    return {
        "histories": histories,
        "block_events": len(MadeUpChain(FILES).grown(3).head.logs),
        "schedules": count,
        "differing": differing,
        "faults": dict(sorted(faults.items())),
        "load": round(os.getloadavg()[0], 1),
    }


def _history(blocks: int) -> dict[str, Any]:
    """Measure in a process of its own, whose memory nothing else takes."""
    command = [sys.executable, "-m", "benchmarks.indexer"]
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(
            [*command, "serve", str(blocks)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as server,
    ):
        assert server.stdin is not None
        assert server.stdout is not None
        url, events = server.stdout.readline().split()
        measured = subprocess.run(
            [*command, "measure", str(blocks), url, folder], stdout=subprocess.PIPE, text=True, check=True
        )
        server.stdin.close()
    figures: dict[str, Any] = json.loads(measured.stdout)
    return {"events": int(events), "events_per_s": round(int(events) / figures.pop("seconds")), **figures}


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve_chain(int(sys.argv[2]))
    else:
        print(json.dumps(measure(sys.argv[3], int(sys.argv[2]), Path(sys.argv[4]))))
