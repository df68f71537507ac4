"""Compare weight broadcast with shardcast 0.3.2: one file to eight clients over three relays, each on its own host.

`python -m benchmarks broadcast [--quick] [--size MB]`. Hosts are network namespaces on a bridge: this needs root,
iproute2, and shardcast in build/peers-shardcast (`make peers`). Lines are paced to 200 Mb/s in both directions, and
support/delay.py adds 20 ms before each server, since not every kernel has netem. Ours polls every half second;
shardcast's relays every five seconds, the least its documentation names, its clients every half second.

Keys: `last_client_ratio`, our seconds until the last client has everything by theirs; `origin_share`, bytes that leave
our origin in sizes of the file; `cpu_ratio`, their CPU seconds by ours on unpaced lines; `hosts`, all figures of each
system; `hosts_megabytes`.
"""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from benchmarks.support.broadcast_role import BEHIND, PORT
from protocol.api.endpoints import OBJECTS
from protocol.errors import ConfigError
from storage.weights.manifest import SHARD_BYTES

SWITCH = "musterbench"
ROOT = Path(__file__).parent.parent
PEER = ROOT / "build" / "peers-shardcast"
FOLDER = ROOT / "build" / "broadcast"
RELAYS, CLIENTS = 3, 8
MEGABITS, DELAY = 200.0, 0.02
CHECK_SECONDS = 5
# What shardcast cuts a gigabyte into by default, and a smaller file too: it wants ten, or waits for ever.
SHARDS = 20
TRIES = 4  # of a system some of whose clients never come to an end, as shardcast's do now and then
ROLES = ("origin", "relay", "client")
NAMES = ("origin", *(f"relay{one}" for one in range(RELAYS)), *(f"client{one}" for one in range(CLIENTS)))


class Host:
    """A namespace with the one interface `line`, at `address`."""

    def __init__(self, name: str, number: int) -> None:
        self.name, self.space, self.address = name, f"{SWITCH}-{name}", f"10.77.0.{number + 1}"

    def inside(self, command: Sequence[str], tmp: Path) -> list[str]:
        """Return the command that runs `command` in this host, with `tmp` as its /tmp."""
        tmp.mkdir(parents=True, exist_ok=True)
        mounted = 'mount --bind "$0" /tmp && exec "$@"'
        return ["ip", "netns", "exec", self.space, "unshare", "-m", "sh", "-c", mounted, str(tmp.resolve()), *command]

    def sent(self) -> int:
        """Return the bytes that have left it, heads of packets included."""
        path = "/sys/class/net/line/statistics/tx_bytes"
        return int(_done(["ip", "netns", "exec", self.space, "cat", path]))


@contextmanager
def hosts(names: Sequence[str], megabits: float | None) -> Iterator[dict[str, Host]]:
    """Make a namespace for each name, with lines of `megabits` both ways (None: unpaced). Raises ConfigError."""
    if os.geteuid():
        raise ConfigError("network namespaces need root", "run it as root")
    made = {name: Host(name, number) for number, name in enumerate(names)}
    _remove(made)
    try:
        _ip("netns", "add", SWITCH)
        _ip("-n", SWITCH, "link", "add", "bridge0", "type", "bridge")
        _ip("-n", SWITCH, "link", "set", "bridge0", "up")
        for number, host in enumerate(made.values()):
            _attach(host, f"port{number}", megabits)
        yield made
    finally:
        _remove(made)


def _attach(host: Host, port: str, megabits: float | None) -> None:
    _ip("netns", "add", host.space)
    _ip("-n", SWITCH, "link", "add", port, "type", "veth", "peer", "name", "line", "netns", host.space)
    _ip("-n", SWITCH, "link", "set", port, "master", "bridge0", "up")
    _ip("-n", host.space, "addr", "add", f"{host.address}/24", "dev", "line")
    for device in ("line", "lo"):
        _ip("-n", host.space, "link", "set", device, "up")
    if megabits is not None:
        pace = ["tbf", "rate", f"{megabits}mbit", "burst", "256kb", "latency", "100ms"]
        _done(["tc", "-n", host.space, "qdisc", "add", "dev", "line", "root", *pace])
        _done(["tc", "-n", SWITCH, "qdisc", "add", "dev", port, "root", *pace])


def _remove(made: dict[str, Host]) -> None:
    for space in (SWITCH, *(host.space for host in made.values())):
        with suppress(ConfigError):
            _ip("netns", "delete", space)


def _ip(*words: str) -> None:
    _done(["ip", *words])


def _done(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ConfigError(f"{' '.join(command[:6])}: {done.stderr.strip()}", "run as root, with iproute2 installed")
    return done.stdout


class Running:
    """A host's process of `benchmarks.support.broadcast_role`."""

    def __init__(self, host: Host, options: dict[str, Any]) -> None:
        command = [sys.executable, "-m", "benchmarks.support.broadcast_role", json.dumps(options)]
        log = (FOLDER / f"{host.name}.log").open("w")
        self.host = host
        self._process = subprocess.Popen(
            host.inside(command, FOLDER / host.name / "tmp"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=ROOT,
        )

    def hear(self, name: str) -> Any:
        """Wait for what it says of that; other lines are noise."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{") and name in (facts := json.loads(line)):
                return facts[name]
        raise StuckError(f"{self.host.name} ended; see {FOLDER / self.host.name}.log")

    def tell(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


class StuckError(AssertionError):
    """A host did not come to its end."""


def tried(system: str, file: Path, shaped: bool, progress: Callable[[str], None]) -> dict[str, float]:
    """Return the figures of `broadcast`, and {tries}."""
    for tries in range(1, TRIES):
        try:
            return {**broadcast(system, file, shaped), "tries": float(tries)}
        except StuckError as error:
            progress(f"{system}: {error}")
    return {**broadcast(system, file, shaped), "tries": float(TRIES)}


def broadcast(system: str, file: Path, shaped: bool) -> dict[str, float]:
    """Return {seconds until the last client has it, cpu seconds of all and of each role, bytes that left the origin,
    load}. Raises StuckError if a host takes twenty times as long as the line does, and two minutes."""
    for name in NAMES:
        shutil.rmtree(FOLDER / name, ignore_errors=True)
    (FOLDER / "digest").unlink(missing_ok=True)
    with ExitStack() as stack:
        made = stack.enter_context(hosts(NAMES, MEGABITS if shaped else None))
        running: dict[str, Running] = {}
        for role in ROLES:  # shardcast wants whom it asks to answer at once
            tier = [host for name, host in made.items() if name.startswith(role)]
            for host in tier:
                if shaped and role != "client":
                    stack.callback(_delayed(host).kill)
                running[host.name] = Running(host, _options(system, role, host, made, file, shaped))
                stack.callback(running[host.name].end)
            for host in tier:
                running[host.name].hear("ready")
        most = 120 + 20 * file.stat().st_size * 8 / MEGABITS / 1e6
        ending = threading.Timer(most, lambda: list(map(Running.end, running.values())))
        ending.daemon = True
        ending.start()
        stack.callback(ending.cancel)
        return _timed(running)


def _delayed(host: Host) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "benchmarks.support.delay", str(PORT), str(BEHIND), str(DELAY)]
    return subprocess.Popen(host.inside(command, FOLDER / host.name / "tmp"), cwd=ROOT)


def _options(system: str, role: str, host: Host, made: dict[str, Host], file: Path, shaped: bool) -> dict[str, Any]:
    asked = {"origin": [], "relay": ["origin"], "client": [f"relay{one}" for one in range(RELAYS)]}[role]
    path, peer = {"ours": OBJECTS, "shardcast": ""}[system], FOLDER / host.name / "peer"
    if system == "shardcast":
        shutil.copytree(PEER, peer)  # it keeps a file beside its own
    return {
        "system": system,
        "role": role,
        "file": str(file),
        "folder": str(FOLDER / host.name / "data"),
        "upstreams": [f"http://{made[name].address}:{PORT}{path}" for name in asked],
        "digest": str(FOLDER / "digest"),
        "check_seconds": CHECK_SECONDS,
        "shard": SHARD_BYTES if system == "ours" else -(-file.stat().st_size // SHARDS),
        "port": BEHIND if shaped and role != "client" else PORT,
        "peer": str(peer),
    }


def _timed(running: dict[str, Running]) -> dict[str, float]:
    clients = [one for name, one in running.items() if name.startswith("client")]
    sent = running["origin"].host.sent()
    for name, one in running.items():
        if name != "origin":
            one.tell()
    running["origin"].tell()
    began = running["origin"].hear("done")
    seconds = max(one.hear("done") for one in clients) - began
    sent = running["origin"].host.sent() - sent
    for one in running.values():
        one.tell()
    cpu = {name: float(one.hear("cpu")) for name, one in running.items()}
    tiers = {f"cpu_{role}": sum(one for name, one in cpu.items() if name.startswith(role)) for role in ROLES}
    return {"seconds": seconds, "cpu": sum(cpu.values()), **tiers, "origin": float(sent), "load": os.getloadavg()[0]}


def compared(megabytes: int, progress: Callable[[str], None]) -> dict[str, Any]:
    """Compare both systems, on shaped lines and on free ones."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    file = FOLDER / "step" / "model.bin"
    file.parent.mkdir(exist_ok=True)
    with Path("/dev/urandom").open("rb") as noise, file.open("wb") as out:
        for _ in range(megabytes):
            out.write(noise.read(1_000_000))
    found: dict[str, dict[str, float]] = {}
    for shaped in (True, False):
        for system in ("ours", "shardcast"):
            name = f"{system} {'shaped' if shaped else 'free'}"
            began = time.monotonic()
            found[name] = tried(system, file, shaped, progress)
            progress(f"{name}: {found[name]}, {time.monotonic() - began:.0f} s in all")
    shutil.rmtree(FOLDER, ignore_errors=True)
    return {
        "last_client_ratio": round(found["ours shaped"]["seconds"] / found["shardcast shaped"]["seconds"], 3),
        "origin_share": round(found["ours shaped"]["origin"] / megabytes / 1e6, 3),
        "cpu_ratio": round(found["shardcast free"]["cpu"] / found["ours free"]["cpu"], 3),
        "hosts": {name: {key: round(value, 2) for key, value in one.items()} for name, one in found.items()},
        "hosts_megabytes": megabytes,
    }


def run(quick: bool, progress: Callable[[str], None], size: int = 0) -> dict[str, Any]:
    if not PEER.is_dir() or os.geteuid():
        raise ConfigError("this needs root, and shardcast", "run `make peers` once, and this as root")
    return compared(size or (16 if quick else 1000), progress)
