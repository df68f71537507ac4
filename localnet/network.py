"""The whole network on one machine, as supervised processes: chain, S3, orchestrator, validators, workers, trainer."""

import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import psutil

from chain.deployment import NetworkConfig
from engines.torch_process import torch_environment
from localnet.onboarding import KeyRing, voter_names
from localnet.plan import DemoPlan, NodeSpec, RunFolder, ValidatorSpec
from localnet.ports import claim_port
from protocol.config import PoolConfig
from protocol.errors import MusterError
from protocol.http.transport import tls_context
from protocol.waits import wait_for
from runtime.entry import Exit
from runtime.environment_files import publish_files
from runtime.supervisor import Child, Supervisor
from storage.keys import object_key
from storage.s3 import Bucket, S3Settings

LOCAL = NetworkConfig.load("local")
BUCKET = "muster"
_STAGES = {"chain": 0, "s3": 0, "orchestrator": 1}
_LONGEST_PAUSE, _READY_SECONDS = 60.0, 240.0  # who dies is noticed at once; a busy machine is only slow


class ProgressPrinter:
    """Prints lines with the seconds since it was made."""

    def __init__(self) -> None:
        self._started = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started

    def say(self, text: str) -> None:
        print(f"[{self.seconds:5.0f} s] {text}", flush=True)

    def notice(self, text: str) -> None:
        """Print a line about the processes rather than about the run."""
        self.say(f"· {text}")


class Stop:
    """True once Ctrl-C or SIGTERM came; a second signal interrupts at once."""

    def __init__(self) -> None:
        self.asked = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)

    def _on_signal(self, *_: object) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True

    def __call__(self) -> bool:
        return self.asked


class Processes:
    """Starts the processes of a run with its homes and logs in `folder`, in order, and stops them in reverse."""

    def __init__(self, folder: RunFolder, notice: Callable[[str], None], stop: Stop) -> None:
        self.folder, self.stop_requested, self.supervisor = folder, stop, Supervisor(notice)

    def check(self) -> None:
        """Restart what died. Raises KeyboardInterrupt once a person wants to stop, MusterError when a process keeps
        failing."""
        if self.stop_requested():
            raise KeyboardInterrupt
        self.supervisor.check()

    def start(self, name: str, argv: list[str], **options: Any) -> Child:
        """Start our Python with `argv`, as a child with these options. Who is no service uses torch."""
        env = dict(os.environ) | {"PYTHONUNBUFFERED": "1"} | ({} if name in _STAGES else torch_environment())
        command, log_path, stage = [sys.executable, "-P", *argv], self.folder.log(name), _STAGES.get(name, 2)
        return self.supervisor.start(Child(name, command, log_path, env, stage=stage, **options))

    def start_storage(self, settings: S3Settings) -> None:
        port = settings.endpoint.rpartition(":")[2]
        argv = ["-m", "localnet.services.s3", "--data", str(self.folder.home("s3")), "--port", port]
        self.start("s3", [*argv, "--bucket", settings.bucket])

    def wait_ready(self, name: str, seconds: float = _READY_SECONDS) -> None:
        """Wait until a service has said that it answers."""
        child = self.supervisor.children[name]
        self.wait(f"{name} to start", lambda: "READY" in child.said(), name, seconds)

    def wait(self, what: str, ready: Callable[[], bool], child: str, seconds: float = _READY_SECONDS) -> None:
        """Until `ready`, which `child` is to bring about within `seconds`. Raises as `check` does, and MusterError with
        the end of the child's log."""

        def alive() -> bool:
            self.check()
            return ready()

        process = self.supervisor.children[child]
        try:
            wait_for(what, alive, timeout=seconds, hint=f"see {process.log_path}")
        except MusterError as error:
            raise MusterError(f"{error.what}: {process.tail(2)}", error.hint) from None


class Network(Processes):
    """The processes of a plan. Configuration files name everything."""

    def __init__(self, plan: DemoPlan, ring: KeyRing, notice: Callable[[str], None], stop: Stop) -> None:
        super().__init__(plan, notice, stop)
        self.plan, self.ring = plan, ring
        self.config_path = plan.root / "pool.json"
        self.isolation = {"isolation": "none"}  # our own processes on our own machine
        self.service_settings: dict[str, Any] = {}  # further fields of the orchestrator's configuration

    def start(self, name: str, argv: list[str], **options: Any) -> Child:
        options["final_exits"] = final_exits(name, self.plan.background)
        if self.plan.background:
            options |= {"max_restarts": None, "longest_pause": _LONGEST_PAUSE}
        return super().start(name, argv, **options)

    def wait(self, what: str, ready: Callable[[], bool], child: str, seconds: float = _READY_SECONDS) -> None:
        super().wait(what, ready, child, seconds * self.plan.patience)

    # Services

    def start_services(self) -> None:
        """Chain and object storage, which are up some seconds later: see `wait_services`."""
        plan = self.plan
        argv = ["-m", "localnet.services.chain", "--data", str(plan.home("chain")), "--port", str(plan.chain_port)]
        self.start("chain", [*argv, "--chain-id", str(plan.chain_id)])
        self.start_storage(self.s3_settings())

    def wait_services(self) -> None:
        self.wait_ready("chain")
        self.wait_ready("s3")

    # The pool owner's processes

    def s3_settings(self) -> S3Settings:
        return self.plan.s3_settings(self.plan.s3_port, BUCKET)

    def publish_config(self, config: PoolConfig) -> None:
        """The configuration document, beside the run and, for everybody else, in the bucket under its hash."""
        self.config_path.write_bytes(config.canonical())
        bucket = Bucket(self.s3_settings())
        bucket.put(object_key("configs", config.digest), config.canonical())
        publish_files(config, bucket)

    def start_orchestrator(self, pool: int) -> None:
        values = self._role_settings(pool, "orchestrator") | {
            "host": "127.0.0.1",
            "port": self.plan.http_port,
            "public_url": self.plan.http_url,
            "public_rpc": [self.plan.rpc_url],
            "pool_config": self.config_path,
            "owner": self.ring["owner"].address,
            "key": self.ring["service"].reference(),
            "s3": self.s3_settings().model_dump(mode="json"),
            "heartbeat_seconds": 5,
            "lease_seconds": 30,
            "lane_seconds": 2,
            "claim_seconds": 5,
            "most_loans": 64,
            "loans_a_day": 256,
        }
        censored = self.ring[f"node-{self.plan.censored}"].address if self.plan.censored else ""
        self._start_role("orchestrator", "orchestrator", values | self.service_settings, censored)
        self.wait("the orchestrator to answer", lambda: answers(f"{self.plan.http_url}/health"), "orchestrator")

    def start_trainer(self, pool: int, base: Path) -> None:
        decoys = [self.ring[f"node-{node.name}"].reference() for node in self.plan.nodes if node.decoy]
        values = self._client_settings(pool, "trainer") | {
            "key": self.ring["owner"].reference(),
            "s3": self.s3_settings().model_dump(mode="json"),
            "base": base,
            "decoy": decoys[0] if decoys else None,
            "engine": {"name": "transformers", "dtype": self.plan.dtype, "threads": self.plan.trainer_threads},
            "memory": {"row_tokens": self.plan.trainer_row_tokens},
            "null_models": {"files": 16, "batches": [self.plan.worker_batch]},
        }
        if self.plan.diloco_workers:
            values["run"] = self.plan.diloco_run
        if self.plan.metrics_port:
            values["metrics"] = {"listen": f"127.0.0.1:{self.plan.metrics_port}"}
        role = "diloco run --coordinator" if self.plan.diloco_workers else "trainer"
        self._start_role("trainer", role, values)

    def start_diloco_workers(self, base: Path) -> None:
        """Start the DiLoCo workers, if there are any, from the folder of policy step 0."""
        for name in self.plan.diloco_workers:
            values = {
                "home": self.plan.home(name),
                "run": self.plan.diloco_run,
                "model": base,
                "key": self.ring[name].reference(),
                "s3": self.s3_settings().model_dump(mode="json"),
                "poll_seconds": 0.4,
                "rl": {
                    "pool": self.config_path,
                    "threads": self.plan.trainer_threads,
                    "memory": {"row_tokens": self.plan.trainer_row_tokens},
                },
            }
            self._start_role(name, "diloco run", values)

    # Workers and validators

    def start_validator(self, pool: int, spec: ValidatorSpec) -> None:
        name = f"validator-{spec.name}"
        shown = f"127.0.0.1:{claim_port()}"
        values = self._client_settings(pool, name) | {
            "voters": [self.ring[voter].reference() for voter in voter_names(spec.name, spec.seats)],
            "engine": {"name": spec.engine, "dtype": self.plan.dtype, "threads": 1, "batch": spec.batch},
            "serve": {"listen": shown, "public_url": f"http://{shown}"},
            "allow_private_sources": True,  # each other's kept files are on this machine
        }
        self._start_role(name, "validator", values, spec.attack)

    def start_worker(self, pool: int, spec: NodeSpec) -> None:
        name = f"worker-{spec.name}"
        values = self._client_settings(pool, name)
        engine = {"name": spec.engine, "dtype": self.plan.dtype, "threads": 1, "batch": self.plan.worker_batch}
        engine |= {"data_parallel": spec.engines}
        values |= {"node": self.ring[f"node-{spec.name}"].reference(), "engine": engine}
        self._start_role(name, "worker", values, spec.attack)

    # Shared

    def _role_settings(self, pool: int, process: str) -> dict[str, Any]:
        plan = self.plan
        return {
            "home": plan.home(process),
            "deployment": plan.deployment,
            "rpc": [plan.rpc_url],
            "pool": pool,
            "confirmations": 0,
        }

    def _client_settings(self, pool: int, process: str) -> dict[str, Any]:
        more = {"orchestrator": self.plan.http_url, "cache": self.plan.home(process) / "weights", "name": process}
        return self._role_settings(pool, process) | more | self.isolation | {"poll_seconds": 0.4}

    def _start_role(self, name: str, role: str, values: dict[str, Any], attack: str = "") -> None:
        path = self.plan.write_config(name, values)
        if attack:
            argv = ["-m", f"attacks.{role}", "--attack", attack, "--config", str(path)]
        else:
            module = ["cli.main", *role.split()] if " " in role else [f"{role}.main"]
            argv = ["-m", *module, "--config", str(path)]
        self.start(name, argv)


def final_exits(name: str, background: bool) -> frozenset[int]:
    """Exit codes after which a process is left alone. In a network in the background an end without a reason of its
    own is somebody's mistake: what a stray SIGTERM stopped is started again."""
    role = name.partition("-")[0]
    if role == "trainer":
        return frozenset({Exit.DONE, Exit.UNSTABLE} if background else {Exit.DONE})
    ended = frozenset({Exit.EJECTED}) if role == "worker" else frozenset[int]()
    return ended if background else ended | {0}


def answers(url: str) -> bool:
    """Whether an HTTP GET gives 200 within two seconds."""
    try:
        return httpx.get(url, timeout=2, trust_env=False, verify=tls_context()).status_code == 200
    except httpx.HTTPError:
        return False


def resident(pid: int) -> float:
    """Return the MiB of a process and its descendants; 0 if it has just ended."""
    total = 0
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        total = sum(part.memory_info().rss for part in (process, *process.children(recursive=True)))
    return round(total / (1 << 20), 1)
