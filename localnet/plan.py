"""What a run consists of: its participants, ports and folders, and the configuration and terms of its pool."""

import json
import os
import secrets
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from chain.indexer.records import Terms
from engines.torch_process import vllm_installed
from localnet.ports import claim_port
from protocol.config import (
    AdamWConfig,
    EnvironmentConfig,
    EvaluationConfig,
    OptimizerConfig,
    PoolConfig,
    TrainConfig,
    WorkConfig,
)
from protocol.encoding import TOKEN
from protocol.seeds import AUDIT_EVERYTHING
from storage.s3 import S3Settings
from trainer.model.tiny_model import tiny_model_config

EPOCH_BLOCKS = 24  # a committee is drawn within three epochs: a busy machine manages that
POOL = 1  # the first pool of a fresh chain
CHEAT = "weights-noise=0.02"
CANARY = "weights-noise=0.05"


@dataclass(frozen=True)
class NodeSpec:
    """One worker of the demo, with so many engines. `attack` names its transform (see `attacks/`), empty for honest
    nodes. A `decoy` belongs to the pool's owner and cheats on purpose: its files are canaries."""

    name: str
    engine: str
    attack: str = ""
    decoy: bool = False
    engines: int = 1

    @property
    def cheats(self) -> bool:
        return bool(self.attack) and not self.decoy


@dataclass(frozen=True)
class ValidatorSpec:
    """One validator process, how many bonded seats it serves, and what it computes with: engine, and rollouts in one
    pass. `attack`: see `attacks/validator.py`."""

    name: str
    seats: int
    attack: str = ""
    engine: str = "transformers"
    batch: int = 64


@dataclass(frozen=True)
class RunFolder:
    """Where a run's processes keep what is theirs."""

    root: Path

    def home(self, process: str) -> Path:
        return self.root / "homes" / process

    def log(self, process: str) -> Path:
        return self.root / "logs" / f"{process}.log"

    def s3_settings(self, port: int, bucket: str) -> S3Settings:
        credentials = self.home("s3") / "etc" / "credentials.json"
        return S3Settings(endpoint=f"http://127.0.0.1:{port}", bucket=bucket, credentials=credentials)


@dataclass(frozen=True)
class DemoPlan(RunFolder):
    """Everything that is chosen before the network starts."""

    seed: int
    steps: int
    chain_port: int
    s3_port: int
    http_port: int
    nodes: tuple[NodeSpec, ...]
    validators: tuple[ValidatorSpec, ...]
    absentee: str = ""  # a node of the pool without a process; empty for none
    # The node whose first files the service does not relay: the only one that has ether. Empty for none.
    censored: str = ""
    chain_id: int = 31337
    dtype: str = "float32"  # what workers, validators and the evaluation compute in
    worker_batch: int = 64  # how many rollouts workers generate at once
    trainer_threads: int = 1
    trainer_row_tokens: int = 8192  # how many tokens are trained at once: what the trainer's memory grows with
    patience: int = 1  # how much longer than the demo's the pool's windows are, and the wait for something to move
    background: bool = False  # whether processes are restarted for ever, as those of `muster up`
    metrics_port: int = 0  # where Prometheus may scrape the trainer, 0 for nowhere
    # How many DiLoCo workers train in the trainer's place, which then coordinates them; 1: none.
    diloco: int = 1

    @property
    def members(self) -> list[str]:
        """Names of all nodes that join the pool."""
        return [*(node.name for node in self.nodes), *([self.absentee] if self.absentee else [])]

    @property
    def diloco_workers(self) -> list[str]:
        """Names of the DiLoCo workers, if there are several."""
        return [f"diloco-{number + 1}" for number in range(self.diloco)] if self.diloco > 1 else []

    @property
    def diloco_run(self) -> Path:
        """The document of their run."""
        return self.root / "diloco.json"

    @property
    def rpc_url(self) -> str:
        return f"http://127.0.0.1:{self.chain_port}"

    @property
    def s3_url(self) -> str:
        return f"http://127.0.0.1:{self.s3_port}"

    @property
    def http_url(self) -> str:
        return f"http://127.0.0.1:{self.http_port}"

    @property
    def deployment(self) -> Path:
        return self.root / "deployment" / "deployment.json"

    def write_config(self, process: str, values: dict[str, Any]) -> Path:
        path = self.root / "configs" / f"{process}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values, indent=2, default=str))
        return path


def new_run_folder(runs: Path, seed: int) -> Path:
    """A fresh `runs/<time>-seed<seed>-<random>`; `runs/latest` points to it."""
    root = runs / f"{datetime.now():%Y%m%d-%H%M%S}-seed{seed}-{secrets.token_hex(2)}"
    root.mkdir(parents=True)
    fresh = runs / f".latest-{os.getpid()}"
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(root.name)
    fresh.replace(runs / "latest")
    return root


def make_plan(runs: Path, seed: int, steps: int, diloco: int = 1) -> DemoPlan:
    """Plan a fresh run in a folder of `runs`, on free ports. See `cast` for who takes part."""
    root, ports = new_run_folder(runs, seed), (claim_port(), claim_port(), claim_port())
    # A whole file of the demo's: with so small a model a step of decoding costs the same for one rollout as for all.
    return DemoPlan(root, seed, steps, *ports, *cast(CHEAT, CANARY), censored="bob", worker_batch=128, diloco=diloco)


def cast(cheat: str, canary: str) -> tuple[tuple[NodeSpec, ...], tuple[ValidatorSpec, ...]]:
    """Two honest workers (one on vLLM where it is installed, one with two engines), a cheater and the owner's decoy of
    canaries; twelve seats in four processes: two honest ones (one on vLLM), one whose seats collude once to reject
    honest work and once to hold it up, one that never looks."""
    fast = "vllm" if vllm_installed() else "transformers"
    nodes = (
        NodeSpec("ada", fast),
        NodeSpec("bob", "transformers", engines=2),
        NodeSpec("mallory", "transformers", cheat),
        NodeSpec("carol", "transformers", canary, decoy=True),
    )
    # The honest ones compute differently and have to agree. The lazy one has a single seat: two could let a cheater
    # pass before anybody disputes. Canaries evict it in the end: the pool must have enough seats without it. The
    # colluding one has as many as it takes to be a majority twice in the few dozen lanes of a run.
    validators = (
        ValidatorSpec("xena", 3),
        ValidatorSpec("wanda", 3, engine=fast, batch=16),
        ValidatorSpec("yuri", 5, "colluder", batch=7),
        ValidatorSpec("zoe", 1, "lazy"),
    )
    return nodes, validators


BUDGET = 2_000 * TOKEN
STEP_BUDGET = 4 * TOKEN  # the most that one step's files can cost, with room: full length, every fee
STAKE = 200 * TOKEN
RATE = TOKEN // 10_000
FEE = TOKEN // 100
DEMO_ENVIRONMENT = EnvironmentConfig(
    name="reasoning_gym/chain_sum",
    params={"min_terms": 3, "max_terms": 4, "min_digits": 1, "max_digits": 1, "score_threshold": 1.0},
)


def training(steps: int) -> TrainConfig:
    """Rollouts up to four steps old hide most of a file's way through the chain. At twice this learning rate they make
    a run oscillate; four updates a step make up for the lower one."""
    optimizer = OptimizerConfig(method=AdamWConfig(learning_rate=1.5e-4))
    return TrainConfig(steps=steps, files_per_step=4, max_off_policy_steps=4, minibatches=4, optimizer=optimizer)


def pool_config(seed: int, steps: int) -> PoolConfig:
    """Sums of three or four one-digit numbers; four files of 16 problems × 8 samples make a training step."""
    return PoolConfig(
        name=f"demo-{seed}",
        model=tiny_model_config(),
        environments=(DEMO_ENVIRONMENT,),
        work=WorkConfig(problems_per_file=16, samples_per_problem=8, max_new_tokens=64, max_prompt_tokens=96),
        train=training(steps),
        evaluation=EvaluationConfig(every=10),
    )


def budget(steps: int) -> int:
    """What the pool's owner escrows, in base units."""
    return max(BUDGET, steps * STEP_BUDGET)


def pool_terms(config: PoolConfig, patience: int = 1) -> Terms:
    """Windows of seconds, as a test pool may have, times `patience`; production values are in chain/networks/terms/."""
    return Terms(
        rate=RATE,
        fee=FEE,
        juryFee=10 * FEE,
        minStake=STAKE,
        leverage=2,
        maxUnits=config.work.units,
        committee=3,
        jury=5,
        appealJury=0,
        maxLag=config.train.max_off_policy_steps + 2,
        auditRate=AUDIT_EVERYTHING,
        drawBlocks=64,
        commitWindow=25 * patience,
        revealWindow=20 * patience,
        challengeWindow=20 * patience,
        appealWindow=5 * patience,
        juryCommitWindow=25 * patience,
        juryRevealWindow=20 * patience,
        receiptWindow=40 * patience,
        group=0,
        inviteOnly=False,
        configHash=config.digest,
    )
