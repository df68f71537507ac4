"""A pool and its participants: real role processes on simulated machines, around one simulated chain and bucket.

`simulation.threads.install` has to run before this module is imported.
"""

import hashlib
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import starlette.concurrency
from safetensors.numpy import save_file

import storage.s3
from simulation import bucket, network
from simulation.bucket import SimulatedBucket
from simulation.chain import BLOCK_SECONDS, Chain
from simulation.disks import Disks
from simulation.engine import WEIGHTS, HashEngine, evidence, forged_proof, measure
from simulation.network import Network
from simulation.scheduler import Process, Scheduler

storage.s3.Bucket = SimulatedBucket  # type: ignore[misc,assignment]

# What follows imports the bucket above.
import protocol.waits  # noqa: E402
import runtime.entry  # noqa: E402
import validator.judging.pipeline  # noqa: E402
from chain.client import ChainClient  # noqa: E402
from chain.deploy import deploy  # noqa: E402
from chain.indexer.follower import Follower  # noqa: E402
from chain.indexer.projection import Projection  # noqa: E402
from chain.suite import Suite  # noqa: E402
from engines.base import Completion  # noqa: E402
from environments.registry import load_environment  # noqa: E402
from localnet.network import LOCAL  # noqa: E402
from localnet.onboarding import KeyRing, Onboarding, RoleKey, voter_names  # noqa: E402
from localnet.plan import DEMO_ENVIRONMENT, POOL, DemoPlan, NodeSpec, ValidatorSpec  # noqa: E402
from orchestrator import main as orchestrator_main  # noqa: E402
from orchestrator.config import OrchestratorConfig  # noqa: E402
from protocol.accounts import Account  # noqa: E402
from protocol.config import PoolConfig, TrainConfig, WorkConfig  # noqa: E402
from protocol.encoding import canonical_json, load_document  # noqa: E402
from protocol.errors import MusterError  # noqa: E402
from protocol.files import write_atomic  # noqa: E402
from protocol.models import save_byte_tokenizer  # noqa: E402
from protocol.rollout_file import file as rollout_file  # noqa: E402
from protocol.rollout_file import reader, rows  # noqa: E402
from runtime.entry import Exit  # noqa: E402
from runtime.pool_client import PoolClient  # noqa: E402
from runtime.process import EngineConfig, KeyConfig, ProcessConfig, make_home  # noqa: E402
from storage.keys import object_key  # noqa: E402
from storage.s3 import S3Settings  # noqa: E402
from trainer.data.files import select_files  # noqa: E402
from trainer.model.tiny_model import tiny_model_config  # noqa: E402
from trainer.pool.canaries import CanaryPlan  # noqa: E402
from trainer.pool.publish import StepPublisher  # noqa: E402
from trainer.reports.records import file_id  # noqa: E402
from validator.config import ValidatorConfig  # noqa: E402
from validator.main import build as build_validator  # noqa: E402
from worker.config import WorkerConfig  # noqa: E402
from worker.daemon import Worker  # noqa: E402
from worker.produce import Planned, Producer  # noqa: E402
from worker.submit import WorkerCollaborators  # noqa: E402

log = logging.getLogger("muster.simulation")
RPC, SERVICE = "rpc", "orchestrator"
EPOCH_BLOCKS = 24
PATIENCE = 8  # windows are so many times those of a demo: they have to outlast the faults
_POLL_SECONDS, _HEARTBEAT_SECONDS, _LEASE_SECONDS = 10.0, 60.0, 180.0
_RESTART_SECONDS = 4.0
_SEATS = 12  # two committees and a jury, and one to spare
_FILES_PER_STEP, _STEPS = 4, 10_000
_EMPTY_STEP_SECONDS = 600.0


@dataclass(frozen=True)
class SimulatedPlan(DemoPlan):
    """A demo's plan, whose services have names in place of ports."""

    @property
    def rpc_url(self) -> str:
        return f"http://{RPC}"

    @property
    def http_url(self) -> str:
        return f"http://{SERVICE}"

    def s3_settings(self, port: int = 0, bucket: str = "muster") -> S3Settings:
        return S3Settings(endpoint="http://s3", bucket=bucket, credentials=self.root / "credentials.json")


def make_plan(root: Path, workers: int, validators: int, cheats: int) -> SimulatedPlan:
    """Plan a pool; the last `cheats` of its `workers` send rollouts that they never computed."""
    nodes = tuple(
        NodeSpec(f"w{number}", "transformers", "forged" if number > workers - cheats else "")
        for number in range(1, workers + 1)
    )
    seats = -(-_SEATS // validators)
    judges = tuple(ValidatorSpec(f"v{number}", seats) for number in range(1, validators + 1))
    return SimulatedPlan(root, 0, _STEPS, 0, 0, 0, nodes, judges, patience=PATIENCE)


class Keys(KeyRing):
    """Keys that follow from the seed, not encrypted."""

    def __init__(self, seed: int, folder: Path) -> None:
        super().__init__(folder)
        self._seed = seed

    def __missing__(self, name: str) -> RoleKey:
        account = Account.from_key(hashlib.sha256(f"{self._seed} {name}".encode()).digest())
        path = self.folder / name
        key = self[name] = RoleKey(path, path, account)
        return key


def pool_config(seed: int) -> PoolConfig:
    return PoolConfig(
        name=f"simulation-{seed}",
        model=tiny_model_config(),
        environments=(DEMO_ENVIRONMENT,),
        work=WorkConfig(problems_per_file=2, samples_per_problem=2, max_new_tokens=24, max_prompt_tokens=96),
        train=TrainConfig(steps=_STEPS, files_per_step=_FILES_PER_STEP, max_off_policy_steps=4),
    )


class ForgingProducer(Producer):
    """A cheat: it makes up tokens and proofs in no time."""

    def complete(self, work: Any, plan: Any) -> list[Completion]:
        out = []
        planned: Planned
        for planned in plan:
            random = Random(hashlib.sha256(repr(planned.noise_key).encode()).digest())
            tokens = (*(random.randrange(97, 123) for _ in range(self.config.work.max_new_tokens - 1)), 65)
            logprobs = tuple(-random.random() * 8 for _ in tokens)
            out.append(Completion(tokens, logprobs, 1, (forged_proof(random),)))
        return out


@dataclass
class Machine:
    """A simulated process that is started again when it ends, unless it may be `over`."""

    name: str
    body: Callable[[], int | None]
    process: Process
    starts: int = 0
    over: bool = False
    seconds_per_token: float = 0.0
    held_down_until: float = 0.0
    clock_ahead: float = 0.0
    disk_full: bool = False


@dataclass
class World:
    """Everything that is simulated. `machines`: by process name; `said`: the story so far; `violations`: what must not
    have happened."""

    scheduler: Scheduler
    disks: Disks
    plan: SimulatedPlan
    config: PoolConfig = field(init=False)
    machines: dict[str, Machine] = field(default_factory=dict)
    said: list[tuple[float, str]] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    faults: int = 0

    def __post_init__(self) -> None:
        scheduler, seed = self.scheduler, self.plan.seed
        self.config = pool_config(seed)
        self.network = Network(scheduler, Random(f"network {seed}"))
        self.network.install()
        self.chain = Chain(self.plan.chain_id, lambda: scheduler.now, Random(f"chain {seed}"))
        self.keys = Keys(seed, self.plan.root / "keys")
        self.speeds = Random()
        self.store, self.start_store = bucket.serve(self.network, scheduler)
        self.chain_process, self._itself = Process("chain"), Process("simulator")
        self.network.serve(RPC, self.chain_process, self.chain)
        self._replace_shells()
        self.onboarding = Onboarding(self.plan, self.keys)
        self._settings = self.plan.s3_settings().model_dump(mode="json")

    def say(self, text: str) -> None:
        self.said.append((self.scheduler.now, text))

    def spawn(self, name: str, run: Callable[[], object]) -> None:
        """Let the simulator itself do something beside."""
        self.scheduler.spawn(self._itself, name, run)

    @property
    def workers(self) -> list[str]:
        """Addresses of the nodes."""
        return [self.keys[f"node-{node.name}"].address for node in self.plan.nodes]

    @property
    def forgers(self) -> set[str]:
        """Those of the cheats."""
        return {self.keys[f"node-{node.name}"].address for node in self.plan.nodes if node.cheats}

    def who(self, address: str) -> str:
        """Return whose address it is."""
        return next((name for name, key in self.keys.items() if key.address == address), address)

    # What replaces the thin shells around the roles

    def _replace_shells(self) -> None:
        scheduler, world = self.scheduler, self

        def waits() -> dict[str, Any]:
            return scheduler.current.process.waits if scheduler.current else {}

        lib: Any = protocol.waits.Waits
        lib._current = property(lambda self: waits(), lambda self, value: None)
        KeyConfig.open = lambda self: world.keys[self.keystore.name].account  # type: ignore[method-assign]
        configured: Any = EngineConfig
        configured.make = lambda self: HashEngine(world.speed())
        judging: Any = validator.judging.pipeline
        judging.measure, judging.evidence = measure, evidence
        files: Any = rollout_file.Sandbox
        files.parse = lambda self, data, limits: list(rows.unpack_body(reader.parse(data, limits)))

        async def run_sync(function: Callable[..., Any], *args: Any, **_: Any) -> Any:
            return function(*args)

        concurrency: Any = starlette.concurrency
        concurrency.anyio.to_thread.run_sync = run_sync

        def follow(message: str) -> None:
            assert scheduler.current is not None
            scheduler.kill(scheduler.current.process, Exit.STALLED, message)

        runtime.entry._Death.follow = staticmethod(follow)

        def crashed(args: Any) -> None:
            world._crashed(scheduler.current.label if scheduler.current else "?", args.exc_value)

        threading.excepthook = crashed

    def _crashed(self, who: str, error: BaseException) -> None:
        self.violations.append(f"{who} raised {type(error).__name__}: {error}")
        log.error("%s raised", who, exc_info=error)

    def speed(self) -> float:
        """Seconds for each token of the machine that asks."""
        current = self.scheduler.current
        machine = self.machines.get(current.process.name) if current else None
        return machine.seconds_per_token if machine else 0.0

    # Machines

    def _add(self, name: str, body: Callable[[], int | None]) -> Machine:
        machine = self.machines[name] = Machine(name, body, Process(name, alive=False))
        return machine

    def start(self, machine: Machine) -> None:
        """Start a process on its machine, which finds the disk as the one before left it."""
        process = Process(machine.name, clock_ahead=machine.clock_ahead, disk_full=machine.disk_full)
        machine.process = process
        machine.starts += 1

        def body() -> None:
            code: int | None = Exit.DONE
            message = ""
            try:
                code = machine.body() or Exit.DONE
            except (MusterError, OSError) as error:
                code, message = Exit.REFUSED, str(error)
            except Exception as error:
                code, message = Exit.FOUND_WRONG, repr(error)
                self._crashed(machine.name, error)
            machine.over = code in (Exit.DONE, Exit.EJECTED)
            self.say(f"{machine.name} ended with {code}{': ' + message if message else ''}")
            self.scheduler.kill(process, int(code), message)

        self.scheduler.spawn(process, "main", body)

    def kill(self, name: str, down: float = _RESTART_SECONDS) -> None:
        """Kill a process; it starts again after `down` seconds."""
        machine = self.machines[name]
        machine.held_down_until = self.scheduler.now + down
        self.scheduler.kill(machine.process)

    def supervise(self) -> None:
        """Start again what ended, for ever."""
        while True:
            time.sleep(1.0)
            for machine in self.machines.values():
                if machine.process.alive or machine.over:
                    continue
                if machine.held_down_until == 0.0:
                    machine.held_down_until = self.scheduler.now + _RESTART_SECONDS
                if self.scheduler.now >= machine.held_down_until:
                    machine.held_down_until = 0.0
                    self.start(machine)

    # The pool

    def found(self) -> None:
        """Deploy, found the pool, bond, and let every node join. No role runs when this ends."""
        plan, ring = self.plan, self.keys
        self.scheduler.spawn(self.chain_process, "miner", self._mine)
        plan.root.mkdir(parents=True, exist_ok=True)
        (plan.root / "pool.json").write_bytes(self.config.canonical())
        self._base = self._make_base()
        for name in self._payers():
            self.chain.set_balance(ring[name].address, 100 * 10**18)
        suite = LOCAL.suite.model_copy(update={"epoch_blocks": EPOCH_BLOCKS, "block_seconds": BLOCK_SECONDS})
        network_config = LOCAL.model_copy(update={"rpc_urls": (plan.rpc_url,), "suite": suite})
        self.deployment = deploy(self.onboarding.client("deployer"), network_config, plan.deployment.parent)
        SimulatedBucket(plan.s3_settings()).put(object_key("configs", self.config.digest), self.config.canonical())
        self.onboarding.give_tokens()
        assert self.onboarding.create_pool(self.config) == POOL
        self.onboarding.bond()
        self.onboarding.open_pool(POOL)
        for spec in plan.validators:
            self._add_validator(spec)
        service = self._add(SERVICE, self._service_body())
        self._add("trainer", self._trainer_body())
        for node in plan.nodes:
            self._add_worker(node)
        load_environment(DEMO_ENVIRONMENT)  # its imports take longer than a short simulation
        self.start(service)
        while SERVICE not in self.network.servers:
            time.sleep(1.0)
        self.onboarding.join(plan.http_url)
        self.scheduler.kill(service.process)

    def open(self, seed: int) -> None:
        """Start every role, each on a machine whose speed follows from the seed as all that happens from now on."""
        self.scheduler.begin(seed)
        self.network.random.seed(f"network {seed}")
        self.chain.random.seed(f"chain {seed}")
        self.speeds.seed(f"speeds {seed}")
        self.disks.seed(seed)
        self.network.onlookers.add("onlooker")
        self.observer = self._observe()
        for machine in self.machines.values():
            machine.seconds_per_token = self.speeds.uniform(0.1, 0.5)
            self.start(machine)
        self.spawn("supervisor", self.supervise)
        self.say("the pool is open, and all of its nodes joined")

    def _payers(self) -> list[str]:
        voters = [voter for spec in self.plan.validators for voter in voter_names(spec.name, spec.seats)]
        owners = [f"validator-{spec.name}" for spec in self.plan.validators]
        nodes = [f"node-{node.name}" for node in self.plan.nodes]
        return ["deployer", "owner", "service", "watcher", *owners, *voters, *nodes]

    def _mine(self) -> None:
        while True:
            time.sleep(BLOCK_SECONDS)
            self.chain.mine()
            self.scheduler.trace("block", self.chain.head.number, self.chain.head.hash)

    def _make_base(self) -> Path:
        folder = self.plan.root / "base"
        folder.mkdir()
        size = save_byte_tokenizer(folder, ["<think>", "</think>"])
        (folder / "config.json").write_text(json.dumps({"vocab_size": size, "eos_token_id": size - 2}))
        return folder

    def _observe(self) -> Projection:
        client = ChainClient([self.plan.rpc_url], self.plan.chain_id, None)
        self.suite = Suite(client, self.deployment)
        home = self.plan.home("observer")
        home.mkdir(parents=True, exist_ok=True)
        return Projection(Follower(client, self.deployment, home / "events.sqlite"))

    # Configurations, as `localnet.network` writes them

    def _role(self, name: str) -> dict[str, Any]:
        plan = self.plan
        home = plan.home(name)
        values = {"home": home, "deployment": plan.deployment, "rpc": [plan.rpc_url], "pool": POOL, "confirmations": 2}
        return values | {"poll_seconds": _POLL_SECONDS}

    def _client(self, name: str) -> dict[str, Any]:
        more = {"orchestrator": self.plan.http_url, "cache": self.plan.home(name) / "weights", "name": name}
        return self._role(name) | more | {"allow_private_sources": True}

    def _service_body(self) -> Callable[[], int | None]:
        values = self._role(SERVICE) | {
            "public_url": self.plan.http_url,
            "public_rpc": [self.plan.rpc_url],
            "pool_config": self.plan.root / "pool.json",
            "owner": self.keys["owner"].address,
            "key": self.keys["service"].reference(),
            "s3": self._settings,
            "heartbeat_seconds": _HEARTBEAT_SECONDS,
            "lease_seconds": _LEASE_SECONDS,
            "lane_seconds": 10,
            "claim_seconds": 60,
            "most_loans": 64,
            "loans_a_day": 256,
        }
        path = self.plan.write_config(SERVICE, values)

        def body() -> None:
            config = load_document(path, OrchestratorConfig)
            make_home(config.home)
            with ExitStack() as stack:
                app = orchestrator_main.build(config, config.key.open(), config.home, stack)
                for task in app.state.service.tasks:
                    task.start()
                assert self.scheduler.current is not None
                handler = network.application(app, self.scheduler, SERVICE)
                self.network.serve(SERVICE, self.scheduler.current.process, handler, waits=True)
                threading.Event().wait()

        return body

    def _add_validator(self, spec: ValidatorSpec) -> None:
        name = f"validator-{spec.name}"
        values = self._client(name) | {
            "voters": [self.keys[voter].reference() for voter in voter_names(spec.name, spec.seats)],
            "heartbeat_seconds": _HEARTBEAT_SECONDS,
        }
        path = self.plan.write_config(name, values)

        def body() -> int:
            config = load_document(path, ValidatorConfig)
            make_home(config.home)
            return build_validator(config).run()

        self._add(name, body)

    def _add_worker(self, spec: NodeSpec) -> None:
        name = f"worker-{spec.name}"
        node = {"node": self.keys[f"node-{spec.name}"].reference(), "isolation": "none"}
        path = self.plan.write_config(name, self._client(name) | node | {"heartbeat_seconds": _HEARTBEAT_SECONDS})
        kind = ForgingProducer if spec.cheats else Producer

        def body() -> int:
            config = load_document(path, WorkerConfig)
            make_home(config.home)
            make_home(config.cache)
            collaborators = WorkerCollaborators.connect(config, lambda pool, engine: kind(pool, engine))
            collaborators.producer._keep = collaborators.journal.rows
            return Worker(config, collaborators).run()

        self._add(name, body)

    def _trainer_body(self) -> Callable[[], int | None]:
        path = self.plan.write_config("trainer", self._client("trainer"))

        def body() -> None:
            config = load_document(path, ProcessConfig)
            make_home(config.home)
            ScriptedTrainer(config, self.keys["owner"].account, self.config, self._base, self.plan.s3_settings()).run()

        return body


class ScriptedTrainer:
    """Chooses files and publishes steps as the trainer does; the weights of a step are a hash of what it was trained
    on. The record of a step is on disk before the step is published."""

    def __init__(self, config: ProcessConfig, account: Any, pool: PoolConfig, base: Path, settings: S3Settings) -> None:
        self._pool, self._base = pool, base
        self._client = PoolClient(config, account)
        canaries = CanaryPlan(account, config.pool, None)
        self._publisher = StepPublisher(self._client, SimulatedBucket(settings), account, pool, canaries)  # type: ignore[arg-type]
        self._path = self._client.home / "trained.json"
        self.trained: list[list[str]] = json.loads(self._path.read_bytes()) if self._path.exists() else [[]]

    def run(self) -> None:
        manifests: list[bytes] = []
        while True:
            try:
                while len(manifests) < len(self.trained):
                    self._export(len(manifests))
                    manifests.append(self._publisher.upload(len(manifests), manifests))
                self._publisher.ensure(manifests)
                self._train()
            except MusterError as error:
                log.info("trainer: %s", error)
                time.sleep(5.0)

    def _train(self) -> None:
        step, deadline = len(self.trained), time.monotonic() + _EMPTY_STEP_SECONDS
        while True:
            state = self._client.refresh()
            consumed = {name for files in self.trained for name in files}
            lag, confirmations = self._pool.train.max_off_policy_steps, self._client.config.confirmations
            files = select_files(state, self._client.config.pool, step - 1, lag, confirmations, consumed).files
            if len(files) >= self._pool.train.files_per_step or time.monotonic() > deadline:
                break
            time.sleep(5.0)
        self.trained.append([file_id(file) for file in files[: self._pool.train.max_files]])
        write_atomic(self._path, canonical_json(self.trained))
        log.info("step %d is trained on %d files", step, len(self.trained[-1]))

    def _export(self, step: int) -> None:
        folder = self._publisher.folder(step)
        folder.mkdir(parents=True, exist_ok=True)
        for path in self._base.iterdir():
            (folder / path.name).write_bytes(path.read_bytes())
        digest = hashlib.sha256(canonical_json(self.trained[: step + 1])).digest()
        save_file({"weights": np.frombuffer(digest * 8, dtype=np.float32)}, folder / WEIGHTS)


@contextmanager
def quiet_logging(scheduler: Scheduler, path: Path | None) -> Iterator[None]:
    """Write what the roles log to a file, with the simulated time and the process; without a file drop it."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    if path is None:
        logging.disable(logging.CRITICAL)
    else:
        handler = logging.FileHandler(path)

        def add(record: logging.LogRecord) -> bool:
            record.simulated = f"{scheduler.now:.3f} {scheduler.current.label if scheduler.current else '-'}"
            return True

        handler.addFilter(add)
        handler.setFormatter(logging.Formatter("%(simulated)s %(levelname).1s %(name)s: %(message)s"))
        root.handlers, root.level = [handler], logging.INFO
        logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
        root.handlers, root.level = handlers, level
