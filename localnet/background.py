"""A local network in the background: `muster up`, `muster ps`, `muster logs`, `muster down`.

`python -m localnet.background --folder FOLDER` is its supervisor, which `muster up` starts. SIGTERM takes the network
down once the files under way are judged; a second SIGTERM does so at once.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import platformdirs
import psutil
from pydantic import Field

from localnet.base_model import base_model_process, wait_for_folder
from localnet.demo import Demo
from localnet.plan import POOL, DemoPlan, NodeSpec, ValidatorSpec, pool_config
from localnet.ports import is_free, lock_folder
from localnet.services.chain import find_anvil
from localnet.services.s3 import INSTALL_SWIFT
from protocol.encoding import Document, load_document
from protocol.errors import ConfigError, MusterError, UnreachableError
from protocol.files import write_atomic
from protocol.http.transport import tls_context
from protocol.waits import wait_for
from runtime.entry import run_main
from runtime.supervisor import Child


class NetworkPhase(StrEnum):
    STARTING = "starting"
    UP = "up"
    STOPPING = "stopping"
    DOWN = "down"
    FAILED = "failed"


class ProcessState(StrEnum):
    RUNNING = "running"
    RESTARTING = "restarting"
    FINISHED = "finished"
    STOPPED = "stopped"
    GONE = "gone"


class ProcessEntry(Document):
    """One process. `since`: Unix time of its last start or end; `restart_at`: of the next start of one that died;
    `exit_code` of its last end, negative for a signal."""

    name: str
    state: ProcessState
    pid: int | None
    since: float
    restarts: int
    exit_code: int | None
    restart_at: float | None
    log: str

    @property
    def role(self) -> str:
        return self.name.partition("-")[0]


class NetworkState(Document):
    """`pid` and `created` (its start, Unix time) tell the supervisor from a later process with its number; `doing` is
    what it does now, `problem` why it failed."""

    pid: int
    created: float
    phase: NetworkPhase
    doing: str
    since: float
    problem: str = ""
    processes: tuple[ProcessEntry, ...] = ()

    def lives(self) -> bool:
        """Whether the supervisor that wrote this runs."""
        try:
            process = psutil.Process(self.pid)
            return process.create_time() == self.created and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    def as_found(self) -> "NetworkState":
        """Return what a reader can say: the processes of a supervisor that was killed are gone with it."""
        if self.lives() or self.phase in (NetworkPhase.DOWN, NetworkPhase.FAILED):
            return self
        changes = {"state": ProcessState.GONE, "pid": None, "restart_at": None}
        gone = tuple(process.model_copy(update=changes) for process in self.processes)
        why = f"the supervisor (pid {self.pid}) was killed; `muster up` goes on"
        return self.model_copy(update={"phase": NetworkPhase.FAILED, "problem": why, "processes": gone})


def process_entry(child: Child, monotonic: float, now: float) -> ProcessEntry:
    """Describe a supervised process; `monotonic` and `now` (Unix) are the same moment."""
    state, restart_at = ProcessState.RUNNING, None
    if child.restart_at is not None:
        state, restart_at = ProcessState.RESTARTING, round(now + child.restart_at - monotonic, 1)
    elif child.finished:
        state = ProcessState.STOPPED if child.exit_code else ProcessState.FINISHED
    return ProcessEntry(
        name=child.name,
        state=state,
        pid=child.process.pid if child.process and state is ProcessState.RUNNING else None,
        since=child.since,
        restarts=child.restarts,
        exit_code=child.exit_code,
        restart_at=restart_at,
        log=str(child.log_path),
    )


SEATS = 12  # enough for two committees and a jury of the demo's pool, and one to spare
_PORTS = 4
# Below the ports that Linux gives to outgoing connections: the network's own would take them while it is down.
_PORT_RANGE = range(21_700, 32_000, _PORTS)


class NetworkSettings(Document):
    """What a network is made with, for good. `port` is the chain's; storage, service and the trainer's metrics have
    the three after it."""

    workers: int = Field(2, ge=1, le=16)
    validators: int = Field(2, ge=1, le=SEATS)
    steps: int = Field(1_000_000, ge=1, le=1_000_000)
    seed: int = Field(7, ge=0)
    port: int = Field(ge=1024, le=65_532)

    @property
    def ports(self) -> range:
        return range(self.port, self.port + _PORTS)


class NetworkFolder:
    """A folder that is, or is to become, a network's. `root` is absolute. `opened` is there once contracts, pool and
    participants are on the chain, and names the base model's folder. `bucket_path`: the bucket, for other pools."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.settings_path = root / "network.json"
        self.state_path = root / "supervisor.json"
        self.supervisor_log = root / "logs" / "supervisor.log"
        self.opened = root / "opened"
        self.bucket_path = root / "s3.json"

    @classmethod
    def at(cls, path: Path | None) -> "NetworkFolder":
        """The user's own network, `~/.local/share/muster/local` on Linux, unless another folder is named."""
        return cls((path or platformdirs.user_data_path("muster") / "local").expanduser().resolve())

    def settings(self) -> NetworkSettings | None:
        """Return None where there is no network yet. Raises ConfigError for a folder that holds something else."""
        if self.settings_path.exists():
            return load_document(self.settings_path, NetworkSettings)
        if self.root.is_dir() and any(self.root.iterdir()):
            raise ConfigError(f"{self.root} is not empty and holds no network", "name another --folder")
        return None

    def known_settings(self) -> NetworkSettings:
        """Raises ConfigError where there is no network."""
        settings = self.settings()
        if settings is None:
            raise ConfigError(f"there is no network in {self.root}", "`muster up` makes one; or name another --folder")
        return settings

    def state(self) -> NetworkState | None:
        """What its supervisor last wrote."""
        return load_document(self.state_path, NetworkState) if self.state_path.exists() else None

    def living(self) -> NetworkState | None:
        """The same, if that supervisor runs."""
        return state if (state := self.state()) and state.lives() else None

    def forget_run(self) -> None:
        """Delete everything but settings and logs: a first start was interrupted, with nothing to go on with."""
        for name in ("homes", "keys", "deployment", "configs", "pool.json"):
            path = self.root / name
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)


def choose_port(wanted: int | None) -> int:
    """Return the first of four free ports: `wanted`, or any. Raises ConfigError naming the port that is taken."""
    if wanted is not None:
        check_ports(range(wanted, wanted + _PORTS), "choose another --port: it and the three after it have to be free")
        return wanted
    for port in random.sample(_PORT_RANGE, len(_PORT_RANGE)):
        if all(map(is_free, range(port, port + _PORTS))):
            return port
    raise ConfigError(f"no four ports in a row are free in {_PORT_RANGE.start}-{_PORT_RANGE.stop}", "pass --port")


def check_ports(ports: range, hint: str) -> None:
    """Raises ConfigError for the first that is taken."""
    for port in ports:
        if not is_free(port):
            raise ConfigError(f"port {port} is in use", hint)


def plan_of(folder: NetworkFolder, settings: NetworkSettings) -> DemoPlan:
    """Honest workers and validators only, with windows that forgive a busy laptop."""
    chain, s3, http, metrics = settings.ports
    seats = [SEATS // settings.validators + (i < SEATS % settings.validators) for i in range(settings.validators)]
    return DemoPlan(
        root=folder.root,
        seed=settings.seed,
        steps=settings.steps,
        chain_port=chain,
        s3_port=s3,
        http_port=http,
        nodes=tuple(NodeSpec(str(i + 1), "transformers") for i in range(settings.workers)),
        validators=tuple(ValidatorSpec(str(i + 1), count) for i, count in enumerate(seats)),
        patience=2,
        background=True,
        metrics_port=metrics,
    )


_LOOK_SECONDS, _WEIGHTS_SECONDS = 0.5, 300.0
# How long files under way are waited for: a seat that voted and does not open its vote in time pays for it.
DRAIN_SECONDS = 60.0


class BackgroundNetwork(Demo):
    """`serve` returns when it is told to stop; it raises MusterError only while it starts."""

    def __init__(self, folder: NetworkFolder, settings: NetworkSettings) -> None:
        config = pool_config(settings.seed, settings.steps).model_copy(update={"name": "local"})
        super().__init__(plan_of(folder, settings), config)
        self._folder, self._settings = folder, settings
        self._phase, self._doing, self._since, self._problem = NetworkPhase.STARTING, "starting", time.time(), ""
        self._written: NetworkState | None = None
        self._ended = threading.Event()
        self.say = self._say

    def serve(self) -> None:
        """From start to end; a thread writes every change to the folder."""
        publisher = threading.Thread(target=self._publish, name="publisher", daemon=True)
        self._write_state()
        publisher.start()
        try:
            self._bring_up()
            self._enter(NetworkPhase.UP, f"dashboard: {self.plan.http_url}/")
            while not self.stop():
                self.network.supervisor.check()
                time.sleep(_LOOK_SECONDS)
            self._enter(NetworkPhase.STOPPING, "stopping the workers")
            self._drain()
        except KeyboardInterrupt:
            self.say("interrupted")
        except MusterError as error:
            self._problem = str(error)
            raise
        finally:
            self._doing = "stopping everything"
            self.network.supervisor.stop()
            self._enter(NetworkPhase.FAILED if self._problem else NetworkPhase.DOWN, "")
            self._ended.set()
            publisher.join(timeout=5)
            self._write_state()

    def standing(self) -> NetworkState:
        """Describe how everything stands now."""
        monotonic, now = time.monotonic(), time.time()
        children = list(self.network.supervisor.children.values())
        return NetworkState(
            pid=os.getpid(),
            created=psutil.Process().create_time(),
            phase=self._phase,
            doing=self._doing,
            since=self._since,
            problem=self._problem,
            processes=tuple(process_entry(child, monotonic, now) for child in children),
        )

    def _publish(self) -> None:
        while not self._ended.wait(_LOOK_SECONDS):
            try:
                self._write_state()
            except BaseException as error:  # such as a full disk: `muster ps` must not show an old state for good
                self.progress.say(f"the network's state cannot be written: {error}")

    def _write_state(self) -> None:
        state = self.standing()
        if state != self._written:
            write_atomic(self._folder.state_path, state.model_dump_json(indent=1).encode())
            self._written = state

    def _bring_up(self) -> None:
        check_ports(self._settings.ports, "stop what uses it: the network's pool names its ports on its chain")
        opened = self._folder.opened
        if not opened.exists():
            self._folder.forget_run()
        self.start_services()
        write_atomic(self._folder.bucket_path, self.network.s3_settings().model_dump_json(indent=1).encode())
        base = Path(opened.read_text()) if opened.exists() else None
        if base is None or not base.is_dir():  # made once: its process takes seconds even if the cache has it
            self.say("making the base model")
            making = base_model_process(self.network.config_path, self.plan.seed, self.plan.log("base-model"))
            base = wait_for_folder(self.network.supervisor.start(making), self.network.check, self.say)
            del self.network.supervisor.children[making.name]
        if opened.exists():
            self.say("going on where it was")
            self.network.wait_services()
            self.start_nodes()
            self.network.start_orchestrator(POOL)
        else:
            self.open_pool()
        write_atomic(opened, str(base).encode())
        self.network.start_trainer(POOL, base)
        self._wait_for_weights()

    def _wait_for_weights(self) -> None:
        """Nobody can join before there are any."""
        what = "the trainer to publish policy step 0"
        self.say(f"waiting for {what}")
        self.network.wait(what, lambda: self._status().get("step") is not None, "trainer", _WEIGHTS_SECONDS)

    def _status(self) -> dict[str, Any]:
        """Return the service's status document; an empty one while it does not answer."""
        try:
            return service_status(self.plan.http_url)
        except UnreachableError:
            return {}

    def _drain(self) -> None:
        """No new files; those under way are judged, so that nobody pays for a vote that is not opened."""
        supervisor = self.network.supervisor
        supervisor.stop(only=lambda child: child.name.startswith("worker-"))
        end = time.monotonic() + DRAIN_SECONDS
        while time.monotonic() < end:
            supervisor.check()
            left = self._status().get("in_flight", {}).get("pending")
            if left == 0:
                return
            self._doing = f"waiting for the votes on {left} files" if left else "waiting for the service"
            time.sleep(_LOOK_SECONDS)
        self.say(f"not waiting longer than {DRAIN_SECONDS:.0f} s for files under way")

    def _enter(self, phase: NetworkPhase, doing: str) -> None:
        self._phase, self._since = phase, time.time()
        self._say(doing or phase)

    def _say(self, text: str) -> None:
        self._doing = text
        self.progress.say(text)


def service_status(url: str) -> dict[str, Any]:
    """The service's status document. Raises UnreachableError."""
    try:
        answer = httpx.get(f"{url}/v1/status", timeout=2, trust_env=False, verify=tls_context())
        answer_document: dict[str, Any] = answer.raise_for_status().json()
    except (httpx.HTTPError, ValueError) as error:
        raise UnreachableError(f"the service at {url} does not answer: {error}", "see its log") from None
    return answer_document


# The base model, made once, takes a slow machine minutes; so does policy step 0 of one that is busy.
UP_SECONDS = 1500.0
DOWN_SECONDS = DRAIN_SECONDS + 60.0
_LONG_LOG = 32 << 20

Say = Callable[[str], None]


def settle_settings(folder: NetworkFolder, wanted: Mapping[str, int | None]) -> NetworkSettings:
    """The network's settings: those that it has, or new ones, written down. `wanted`: what a person named. Raises
    ConfigError for what cannot be changed any more."""
    named = {name: value for name, value in wanted.items() if value is not None}
    existing = folder.settings()
    if existing is None:
        settings = NetworkSettings(**{**named, "port": choose_port(named.get("port"))})
        folder.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomic(folder.settings_path, settings.model_dump_json(indent=2).encode() + b"\n")
        return settings
    for name, value in named.items():
        if getattr(existing, name) != value:
            what = f"the network in {folder.root} has --{name} {getattr(existing, name)}, which cannot become {value}"
            raise ConfigError(what, "name another --folder, or `muster down --delete` first")
    return existing


def bring_up(folder: NetworkFolder, say: Say) -> None:
    """Start the supervisor unless it runs, and wait until the network is up, saying what it does. Raises MusterError
    with what went wrong."""
    state = folder.living()
    if state is not None and state.phase is NetworkPhase.STOPPING:
        say("it is being taken down; waiting for that")
        _wait_for_end(folder, say)
        state = None
    started = None if state is not None else _start(folder)
    shown, end = "", time.monotonic() + UP_SECONDS
    while time.monotonic() < end:
        state = folder.living()
        if state is not None and state.phase is NetworkPhase.UP:
            return
        if state is not None and state.doing != shown:
            shown = state.doing
            say(shown)
        if state is None and started is not None and started.poll() is not None and folder.living() is None:
            raise _failure(folder, started.pid)
        time.sleep(0.2)
    hint = f"see {folder.supervisor_log}; `muster down` stops it"
    raise MusterError(f"the network is not up after {UP_SECONDS:.0f} s: {shown}", hint)


def take_down(folder: NetworkFolder, say: Say) -> None:
    """Ask the supervisor to end, and wait until it has; the processes of a killed one died with it. Raises MusterError
    if it does not end."""
    state = folder.living()
    if state is None:
        return
    if state.phase is not NetworkPhase.STOPPING:
        with suppress(ProcessLookupError):
            os.kill(state.pid, signal.SIGTERM)
    _wait_for_end(folder, say)


def _wait_for_end(folder: NetworkFolder, say: Say) -> None:
    shown = ""

    def ended() -> bool:
        nonlocal shown
        state = folder.living()
        if state is not None and state.phase is NetworkPhase.STOPPING and state.doing != shown:
            shown = state.doing
            say(shown)
        return state is None

    wait_for("the network to stop", ended, timeout=DOWN_SECONDS, hint=f"see {folder.supervisor_log}")


def delete(folder: NetworkFolder) -> None:
    """Delete a network that is down: chain, keys, files."""
    folder.known_settings()
    shutil.rmtree(folder.root)


def check_programs() -> None:
    """Raise ConfigError for a missing program before the base model's minutes."""
    find_anvil()
    if missing := [name for name in ("eventlet", "swift") if find_spec(name) is None]:
        raise ConfigError(f"Swift, the local storage, is not installed ({', '.join(missing)})", INSTALL_SWIFT)


def _start(folder: NetworkFolder) -> "subprocess.Popen[bytes]":
    check_programs()
    logs = folder.supervisor_log.parent
    logs.mkdir(parents=True, exist_ok=True)
    for path in logs.glob("*.log"):
        if path.stat().st_size > _LONG_LOG:
            path.replace(path.with_suffix(".log.old"))
    argv = [sys.executable, "-P", "-m", "localnet.background", "--folder", str(folder.root)]
    with folder.supervisor_log.open("ab") as out:
        return subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, cwd="/", start_new_session=True
        )


def _failure(folder: NetworkFolder, pid: int) -> MusterError:
    state = folder.state()
    if state and state.pid == pid and state.problem:
        return MusterError(state.problem)
    if state and state.pid == pid and state.phase is NetworkPhase.DOWN:
        return MusterError("it was taken down while it started", "run `muster up` again")
    lines = folder.supervisor_log.read_text(errors="replace").strip().splitlines()
    last = lines[-1].removeprefix("muster: ") if lines else "it said nothing"
    return MusterError(f"the supervisor ended: {last}", f"see {folder.supervisor_log}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m localnet.background", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--folder", type=Path, required=True, help="the network's folder")
    folder = NetworkFolder.at(parser.parse_args().folder)
    settings = folder.known_settings()
    lock = lock_folder(folder.root, "network", "--folder")
    try:
        BackgroundNetwork(folder, settings).serve()
    finally:
        lock.release()
    return 0


if __name__ == "__main__":
    run_main(main)
