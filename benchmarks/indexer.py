"""Measure the chain indexer: how fast it reads a history, and whether faults leave a trace in its state.

`python -m benchmarks indexer [--quick]`. Keys: `events` read over HTTP from another process, checked, stored, decoded
and applied to the state at `events_per_s` (`seconds` of wall time, `cpu_us` of processor time per event, `rss_mb` at
the end); `schedules` of faults tried (support/schedules.py), `differing`: those whose state differs from one rebuilt
from scratch; `faults`: how many of each kind occurred; `load`: the machine's load average at the end.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from benchmarks.support.made_up_chain import CHAIN_ID, Endpoint, MadeUpChain, deployment
from benchmarks.support.schedules import run_schedule
from chain.indexer.follower import Follower
from chain.indexer.projection import Projection
from chain.rpc import ChainReader, FailoverProvider


def serve(endpoint: Endpoint) -> ThreadingHTTPServer:
    """A server of `endpoint` on a free port, in a thread."""

    class Answer(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            data = json.dumps(endpoint.answer(body)).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


@contextmanager
def endpoint_process(blocks: int, files: int) -> Iterator[tuple[str, int]]:
    """The URL of a process that serves such a chain, and the number of its events."""
    command = [sys.executable, "-m", "benchmarks.indexer", str(blocks), str(files)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        url, events = child.stdout.readline().split()
        yield url, int(events)
        child.stdin.close()


def main(blocks: int, files: int) -> None:
    chain = MadeUpChain(files)
    chain.grow(blocks)
    server = serve(Endpoint(chain))
    print(f"http://127.0.0.1:{server.server_address[1]} {sum(len(one.logs) for one in chain.blocks)}", flush=True)
    sys.stdin.read()


BLOCKS, QUICK_BLOCKS = 20_800, 1_000
FILES = 16
"""Files in a block, 48 events."""
SCHEDULES, QUICK_SCHEDULES = 200, 20


def run(quick: bool, progress: Callable[[str], None] = lambda line: None) -> dict[str, Any]:
    """Both parts; returns the keys of the module's docstring."""
    with tempfile.TemporaryDirectory() as folder:
        found = _back_fill(QUICK_BLOCKS if quick else BLOCKS, Path(folder), progress)
    faults, differing = Counter[str](), 0
    count = QUICK_SCHEDULES if quick else SCHEDULES
    for seed in range(count):
        with tempfile.TemporaryDirectory() as folder:
            same, met = run_schedule(seed, Path(folder))
        faults.update(met)
        differing += not same
        if seed % 20 == 19:
            progress(f"{seed + 1} of {count} schedules, {differing} differ")
    return found | {
        "schedules": count,
        "differing": differing,
        "faults": dict(sorted(faults.items())),
        "load": round(os.getloadavg()[0], 1),
    }


def _back_fill(blocks: int, folder: Path, progress: Callable[[str], None]) -> dict[str, Any]:
    with endpoint_process(blocks, FILES) as (url, events):
        progress(f"{events} events in {blocks} blocks")
        reader = ChainReader(FailoverProvider([url], CHAIN_ID, timeout=60))
        began, spent = time.monotonic(), time.process_time()
        follower = Follower(reader, deployment(), folder / "events.sqlite")
        projection = Projection(follower)
        while projection.state.head < blocks:
            projection.refresh()
        seconds, spent = time.monotonic() - began, time.process_time() - spent
        assert len(projection.state.submissions) == (blocks - 1) * FILES, "every file must be in the state"
        follower.close()
        reader.close()
    progress(f"read in {seconds:.0f} s")
    return {
        "events": events,
        "events_per_s": round(events / seconds),
        "seconds": round(seconds, 1),
        "cpu_us": round(spent / events * 1e6, 1),
        "rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
