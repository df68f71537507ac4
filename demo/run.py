"""`muster demo`: brings the network up, follows the run, settles accounts, writes summary and report, takes it down."""

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from chain.deploy import deploy
from chain.deployment import Deployment
from chain.follower import Follower
from chain.network import NetworkConfig
from chain.projection import Projection
from demo.accounts import KeyRing, names
from demo.chaos import Chaos
from demo.disputer import Disputer
from demo.finish import Outcome, settle_accounts, write_results
from demo.layout import POOL, DemoPlan, NodeSpec, ValidatorSpec, new_run_folder
from demo.network import Network, vllm_installed
from demo.onboarding import Onboarding
from demo.pool import pool_config
from demo.ports import claim_port
from demo.watch import Watch
from engines.runtime import torch_environment
from protocol.config import PoolConfig
from protocol.errors import MusterError

STALL_SECONDS = 300.0
EPOCH_BLOCKS = 24
CHEAT = "weights-noise=0.02"
CANARY = "weights-noise=0.05"


@dataclass(frozen=True)
class Options:
    """What a person chooses; ports 0 mean any free one."""

    seed: int
    steps: int
    runs: Path
    keep: bool = False
    chain_port: int = 0
    s3_port: int = 0
    http_port: int = 0
    chaos: float = 0.0


class Stop:
    """Set by Ctrl-C or SIGTERM; a second Ctrl-C interrupts at once."""

    def __init__(self) -> None:
        self.event = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)

    def _on_signal(self, *_: object) -> None:
        if self.event.is_set():
            raise KeyboardInterrupt
        self.event.set()

    def __call__(self) -> bool:
        return self.event.is_set()

    def check(self) -> None:
        if self():
            raise KeyboardInterrupt


class Demo:
    """One run. `say` prints a line with the time since the start."""

    def __init__(self, options: Options) -> None:
        self.options, self.started, self.stop = options, time.monotonic(), Stop()
        self.plan = make_plan(options)
        self.ring = KeyRing(self.plan.root / "keys")
        self.network = Network(self.plan, self.ring, self._notice, self.stop)
        self.onboarding = Onboarding(self.plan, self.ring)
        self.config: PoolConfig = pool_config(options.seed, options.steps)
        self.base: BaseModel | None = None

    def say(self, text: str) -> None:
        print(f"[{time.monotonic() - self.started:5.0f} s] {text}", flush=True)

    def _notice(self, text: str) -> None:
        self.say(f"· {text}")

    def run(self) -> Outcome:
        """The whole story; leaves the network up afterwards only with `keep`."""
        try:
            self.bring_up()
            watch = self.follow()
            settle_accounts(self, watch)
            outcome = write_results(self)
            if self.options.keep:
                self._hold()
            return outcome
        finally:
            self.say("stopping everything")
            if self.base is not None:
                self.base.stop()
            self.network.supervisor.stop()

    def bring_up(self) -> None:
        """Services, contracts, people, and every role. The trainer comes last: nodes must have joined before step 0."""
        self.say(f"run {self.plan.root} · seed {self.plan.seed} · {self.plan.steps} policy steps")
        self.network.start_chain()
        self.network.start_storage()
        self.network.config_path.write_bytes(self.config.canonical())
        self.base = BaseModel(self)
        for name in names(self.plan):
            self.ring[name]
        self.network.wait_services()
        self.say(
            f"chain at {self.plan.rpc_url} · S3 at {self.plan.s3_url} · {len(names(self.plan))} encrypted keystores"
        )
        self.onboarding.give_gas()
        deployment = deploy(self.onboarding.client("deployer"), local_network(), self.plan.deployment.parent)
        self.say(f"{len(deployment.contracts)} contracts deployed, Pools at {deployment.address('Pools')}")
        self.network.publish_config(self.config)
        self._start_strangers()
        self.onboarding.give_tokens()
        self.onboarding.bond_and_register()
        self.say(f"{sum(v.seats for v in self.plan.validators)} seats bonded, {len(self.plan.nodes)} nodes registered")
        self.say("waiting for the epoch in which the seats can be drawn")
        pool = self.onboarding.create_pool(self.config)
        if pool != POOL:
            raise MusterError(f"the pool got number {pool} on a fresh chain", "start again")
        self.say(f"pool {pool} escrowed its budget, all nodes joined")
        self.network.start_orchestrator(POOL)
        self.say(f"dashboard: {self.plan.http_url}/")
        self.network.start_trainer(POOL, self.base.wait())

    def _start_strangers(self) -> None:
        """Workers and validators load their engines while the pool is being made; they wait for it."""
        for validator in self.plan.validators:
            self.network.start_validator(POOL, validator)
        for node in self.plan.nodes:
            self.network.start_worker(POOL, node)

    def follow(self) -> Watch:
        """Until the trainer has made its last step; raises MusterError when nothing moves for minutes."""
        watch = self.new_watch()
        disputer = Disputer(self)
        chaos = Chaos(self.network.supervisor, self.options.chaos, self.say) if self.options.chaos else None
        moved, seen = time.monotonic(), (0, 0)
        while not self.network.supervisor.children["trainer"].finished:
            self.stop.check()
            self.network.supervisor.check()
            watch.look()
            disputer.look(watch.state)
            if chaos:
                chaos.tick()
            now_seen = (len(watch.metrics()), len(watch.state.submissions))
            if now_seen != seen:
                moved, seen = time.monotonic(), now_seen
            if time.monotonic() - moved > STALL_SECONDS:
                raise MusterError(f"nothing moved for {STALL_SECONDS:.0f} s", f"see {self.plan.root / 'logs'}")
            time.sleep(0.5)
        self.say("training is over")
        return watch

    def new_watch(self) -> Watch:
        deployment = Deployment.load(self.plan.deployment)
        folder = self.plan.home("demo")
        folder.mkdir(parents=True, exist_ok=True)
        follower = Follower(self.onboarding.client("deployer"), deployment, folder / "events.sqlite")
        known = {self.ring[name].address: name.removeprefix("node-") for name in names(self.plan)}
        home = self.plan.home("trainer")
        return Watch(Projection(follower), POOL, self.plan.steps, home, self.say, known)

    def _hold(self) -> None:
        self.say(f"the network stays up: {self.plan.http_url}/ · Ctrl-C stops it")
        while not self.stop():
            self.network.supervisor.check()
            time.sleep(0.5)


class BaseModel:
    """Makes the base model in its own process while the chain comes up."""

    def __init__(self, demo: Demo) -> None:
        self.demo = demo
        self.log = demo.plan.log("base-model")
        self.log.parent.mkdir(parents=True, exist_ok=True)
        argv = ["-m", "demo.base_model", "--config", str(demo.network.config_path), "--seed", str(demo.plan.seed)]
        env = dict(os.environ) | torch_environment() | {"PYTHONUNBUFFERED": "1"}
        with self.log.open("w") as out:
            self.process = subprocess.Popen(
                [sys.executable, *argv], stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=env
            )

    def wait(self) -> Path:
        """The folder; says how far it is at least every eight seconds."""
        told, since = "", time.monotonic()
        while self.process.poll() is None:
            self.demo.stop.check()
            self.demo.network.supervisor.check()
            last = self._last_line()
            if last != told or time.monotonic() - since > 8:
                self.demo.say(last or "loading PyTorch")
                told, since = last, time.monotonic()
            time.sleep(0.3)
        if self.process.returncode != 0:
            raise MusterError(f"no base model: {self._last_line()}", f"see {self.log}")
        return Path(self._last_line())

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def _last_line(self) -> str:
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""


def local_network() -> NetworkConfig:
    """The local network with epochs long enough that a busy machine draws every committee in time."""
    network = NetworkConfig.load("local")
    return network.model_copy(update={"suite": network.suite.model_copy(update={"epoch_blocks": EPOCH_BLOCKS})})


def make_plan(options: Options) -> DemoPlan:
    """Two honest workers (one on vLLM where it is installed), a cheater and the owner's carrier of canaries; eight
    seats in four processes: two honest ones (one on vLLM), one whose seats collude once to reject honest work, one that
    never looks."""
    fast = "vllm" if vllm_installed() else "transformers"
    if fast != "vllm":
        print("vLLM is not installed here: workers and validators use transformers", flush=True)
    chain_port = claim_port("chain", options.chain_port)
    s3_port = claim_port("s3", options.s3_port)
    http_port = claim_port("http", options.http_port)
    return DemoPlan(
        root=new_run_folder(options.runs, options.seed),
        seed=options.seed,
        steps=options.steps,
        chain_port=chain_port,
        s3_port=s3_port,
        http_port=http_port,
        nodes=(
            NodeSpec("ada", fast),
            NodeSpec("bob", "transformers"),
            NodeSpec("mallory", "transformers", CHEAT),
            NodeSpec("carol", "transformers", CANARY, carrier=True),
        ),
        # The honest ones compute differently and have to agree. The lazy one has a single seat: two could let a cheater
        # pass before anybody disputes.
        validators=(
            ValidatorSpec("xena", 2),
            ValidatorSpec("wanda", 2, engine=fast, batch=16),
            ValidatorSpec("yuri", 3, "colluder", batch=7),
            ValidatorSpec("zoe", 1, "lazy"),
        ),
    )
