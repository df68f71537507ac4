"""The documents and configuration files of a DiLoCo run."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from protocol.api.base import Address, Hex64
from protocol.config import AdamWConfig, OptimizerConfig, ScheduleConfig
from protocol.encoding import Document, canonical_json, load_document
from protocol.errors import ConfigError, IntegrityError
from protocol.identity import PoolId
from runtime.process import DaemonConfig, KeyConfig
from storage.s3 import S3Settings
from storage.weights.manifest import MAX_WORKERS
from trainer.config import MemoryConfig, ParallelConfig, TrainerConfig

Mode = Literal["float32", "int8", "sparse"]
NO_POOL = "0x" + "00" * 20
# Inner optimizer of INTELLECT-1 (2412.01152): AdamW with a warmup-stable-decay schedule.
INTELLECT_1 = OptimizerConfig(
    method=AdamWConfig(learning_rate=7.5e-5, beta1=0.9, beta2=0.95, weight_decay=0.1),
    schedule=ScheduleConfig(warmup_updates=1000, decay="linear", decay_share=0.2, final_share=0.0),
    grad_clip=1.0,
)


class OuterConfig(Document):
    """The outer optimizer: SGD with Nesterov momentum. The defaults are INTELLECT-1's."""

    learning_rate: float = Field(0.7, gt=0, le=2, description="Outer learning rate.")
    momentum: float = Field(0.9, ge=0, lt=1, description="Nesterov momentum.")


class AdmissionConfig(Document):
    """Which contributions count in an outer step."""

    minimum: int = Field(3, ge=1, le=MAX_WORKERS, description="Fewer admitted contributions make no outer step.")
    norm_factor: float = Field(
        3.0, gt=1, le=100, description="How many times longer or shorter than the median a contribution may be."
    )
    cosine: float | None = Field(
        0.05, ge=0, lt=1,
        description="Least median cosine with the others. Null where one owner trusts all workers: then every finite "
        "contribution counts.",
    )  # fmt: skip

    @model_validator(mode="after")
    def _a_majority_needs_three(self) -> Self:
        if self.cosine is not None and self.minimum < 3:
            what = "two contributions cannot outvote one another: set `minimum` to 3 or more, or `cosine` null"
            raise ValueError(what)
        return self


class DilocoConfig(Document):
    """How often and how workers synchronise."""

    inner_steps: int = Field(100, ge=1, le=1 << 16, description="Inner steps between two outer steps (H).")
    mode: Mode = Field("int8", description="How pseudo-gradients are encoded.")
    shards: int = Field(
        16, ge=1, le=1024,
        description="Files of equal length that a contribution is cut into. Settling an outer step holds one shard of "
        "each contribution in memory.",
    )  # fmt: skip
    window_seconds: int = Field(600, ge=1, le=1 << 20, description="Seconds that payloads may take to arrive.")
    training_seconds: int = Field(
        1800, ge=1, le=1 << 24, description="Seconds that the slowest worker may take for its inner steps."
    )
    state_every: int = Field(1, ge=1, le=1 << 16, description="Outer steps between two published states.")
    outer: OuterConfig = OuterConfig()
    admission: AdmissionConfig = AdmissionConfig()


class DilocoRun(Document):
    """The run's document. Everyone who takes part has the same one, and everything that is signed names its hash."""

    kind: Literal["diloco-run"] = "diloco-run"
    name: str = Field(min_length=1, max_length=64, description="Tells runs apart that are alike in everything else.")
    coordinator: Address = Field(description="Address whose key writes the log.")
    workers: tuple[Address, ...] = Field(
        min_length=1, max_length=MAX_WORKERS, description="Addresses of those who may take part."
    )
    seed: Hex64 = Field("0" * 64, description="32 public bytes that decide how data is partitioned.")
    assigned: bool = Field(
        False,
        description="Whether the coordinator names the files that each outer step trains on (RL). Otherwise every "
        "worker reads its partition of a data stream that all have.",
    )
    chain_id: int = Field(0, ge=0, lt=1 << 64, description="Chain of the pool whose policy is trained; 0 for none.")
    pools: Address = Field(NO_POOL, description="Address of that chain's Pools contract.")
    pool: int = Field(0, ge=0, lt=1 << 256, description="Number of that pool.")
    pool_config: Hex64 | None = Field(None, description="SHA-256 of that pool's document.")
    data: Hex64 | None = Field(None, description="Hash of a text run's documents and tokenizer: muster diloco init.")
    settings: DilocoConfig = DilocoConfig()

    @model_validator(mode="after")
    def _workers_suffice(self) -> Self:
        if len(set(self.workers)) < len(self.workers):
            raise ValueError("a worker is named twice")
        least = self.settings.admission.minimum
        if len(self.workers) < least:
            what = f"{len(self.workers)} workers, and an outer step needs {least} (`settings.admission.minimum`)"
            raise ValueError(what)
        return self

    @property
    def pool_id(self) -> PoolId:
        return PoolId(self.chain_id, self.pools, self.pool)

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of the canonical document."""
        return hashlib.sha256(canonical_json(self.model_dump(mode="json"))).hexdigest()

    def check_workers(self, named: Iterable[str]) -> None:
        """Raise IntegrityError unless all of them are workers of this run."""
        for worker in sorted(set(named) - set(self.workers)):
            raise IntegrityError(f"{worker} is no worker of {self.name}", "stop: the run's coordinator is wrong")


@dataclass(frozen=True)
class Timeouts:
    """All timeouts of a run in seconds, derived from two settings so that each outlasts what it waits for."""

    collective: float = field(metadata={"meaning": "an exchange between the ranks inside a worker"})
    window: float = field(metadata={"meaning": "from the call for payloads until those that are missing do not count"})
    join: float = field(metadata={"meaning": "a newcomer's fetch and check of weights, momentum and data position"})
    collect: float = field(
        metadata={"meaning": "inner steps and the signed hashes of their results; long enough for a newcomer"}
    )
    step: float = field(metadata={"meaning": "one attempt at an outer step: collect, and a window for the payloads"})
    stall: float = field(metadata={"meaning": "without any progress in the log: the worker stops"})

    @classmethod
    def of(cls, run: DilocoRun) -> "Timeouts":
        window = float(run.settings.window_seconds)
        collect = run.settings.training_seconds + 2 * window
        step = collect + window
        return cls(window / 4, window, 2 * window, collect, step, 2 * step)

    def table(self) -> str:
        """Return one line per timeout, for a person."""
        return "\n".join(
            f"{field.name:11}{getattr(self, field.name):>10.1f} s  {field.metadata['meaning']}"
            for field in fields(self)
        )


class RanksConfig(Document):
    """Processes on one machine that train together."""

    ranks: int = Field(1, ge=1, le=4096, description="Processes, one per GPU.")
    shard: int = Field(
        0, ge=0, le=4096, description="Ranks that weights and optimizer state are sharded over (0: all)."
    )
    max_restarts: int = Field(5, ge=0, description="Failures in a row after which the worker gives up.")

    def parallel(self, seconds: float) -> ParallelConfig:
        """Return the trainer's form of it, with `seconds` for every wait between ranks."""
        return ParallelConfig(timeout_seconds=seconds, **self.model_dump())


class TaskConfig(Document):
    """Where inner steps are computed."""

    device: str = "cpu"
    threads: int = Field(1, ge=1, le=1024)
    memory: MemoryConfig = MemoryConfig()
    parallel: RanksConfig = RanksConfig()


class TextTaskConfig(TaskConfig):
    """Inner steps on documents."""

    files: tuple[Path, ...] = Field(
        min_length=1, description="Files of JSON lines, or folders of them, the same for all workers."
    )
    field: str = Field("text", description="Field of a JSON line that holds the text.")
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    heldout: int = Field(0, ge=0, description="Last documents, kept apart to measure the loss.")
    batch_tokens: int = Field(1 << 16, ge=2, le=1 << 32, description="Tokens per inner step.")
    sequence_tokens: int = Field(2048, ge=2, le=1 << 24, description="Longest piece of a document.")
    updates: int = Field(100_000, ge=1, description="Inner steps that the learning-rate schedule is for.")
    optimizer: OptimizerConfig = INTELLECT_1


class RlTaskConfig(TaskConfig):
    """Inner steps of reinforcement learning, on the accepted files of a pool that are assigned to the worker."""

    pool: Path = Field(description="The pool's document, whose `train` says how.")
    seed: int = Field(0, ge=0, description="Decides the order of a step's samples.")


class ChainConfig(Document):
    """Where the run's outer steps are recorded."""

    deployment: Path
    rpc: tuple[str, ...] = Field(min_length=1)
    run: int = Field(ge=1, lt=1 << 256, description="The run's number on chain, from `muster diloco record`.")


class MemberConfig(DaemonConfig):
    """What the coordinator and the workers of a run have in common."""

    run: Path = Field(description="The run's document.")
    key: KeyConfig
    s3: S3Settings
    model: str = Field(description="Folder or Hugging Face id of the weights that the run starts from.")
    chain: ChainConfig | None = None
    poll_seconds: float = Field(0.5, gt=0, le=60)
    steps: int = Field(0, ge=0, description="End after this outer step (0: never).")


class CoordinatorConfig(MemberConfig):
    """`muster diloco run --coordinator`, for workers that read their own data."""

    kind: Literal["diloco-coordinator"] = "diloco-coordinator"


class PolicyCoordinatorConfig(TrainerConfig):
    """`muster diloco run --coordinator` for a pool: the pool's trainer, whose policy steps the workers make."""

    isolation: Literal["auto", "none"] = Field("none", description="A coordinator is a plain process either way.")
    run: Path = Field(description="The run's document.")
    chain_run: int | None = Field(
        None, ge=1, lt=1 << 256, description="The run's number in DilocoRuns, to record steps."
    )


class WorkerConfig(MemberConfig):
    """`muster diloco run`, with one kind of inner steps."""

    text: TextTaskConfig | None = None
    rl: RlTaskConfig | None = None

    @model_validator(mode="after")
    def _one_task(self) -> Self:
        if (self.text is None) == (self.rl is None):
            raise ValueError("name either `text` or `rl`")
        return self

    @property
    def task(self) -> TaskConfig:
        task = self.text or self.rl
        assert task is not None, "a configuration names one task"
        return task


def load_member(path: Path) -> MemberConfig:
    """Load a worker's or a coordinator's configuration. Raises ConfigError."""
    try:
        return load_document(path, WorkerConfig)
    except ConfigError:
        return load_document(path, CoordinatorConfig)
