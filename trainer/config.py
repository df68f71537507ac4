"""The trainer's configuration file."""

from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from protocol.encoding import Document
from protocol.training import AdamWConfig, OptimizerConfig, ScheduleConfig
from runtime.process import DaemonConfig, EngineConfig, KeyConfig, ProcessConfig
from storage.s3 import S3Settings


class ParallelConfig(Document):
    """`ranks`: processes on this machine that train together, one to a GPU. Weights, gradients and the optimizer's
    state are sharded over groups of `shard` ranks (0: all), each group a replica. A rank waits at most
    `timeout_seconds` for the others. After `max_restarts` failures in a row the trainer gives up."""

    ranks: int = Field(1, ge=1, le=4096)
    shard: int = Field(0, ge=0, le=4096)
    timeout_seconds: float = Field(600.0, gt=0)
    max_restarts: int = Field(5, ge=0)


class MemoryConfig(Document):
    """What is traded for memory and time. `row_tokens`: tokens that a rank trains at once, packed; `head_chunk_mib`:
    logits that exist at once. `checkpoint_activations` computes activations a second time, `offload_optimizer` and
    `offload_reference` keep the policy's and the base model's shards in the host's memory. `compile` trades the time
    of the first steps for faster ones, `float8` the exactness of the blocks' projections for products in 8 bits."""

    row_tokens: int = Field(8192, ge=1)
    head_chunk_mib: int = Field(64, ge=1)
    checkpoint_activations: bool = False
    offload_optimizer: bool = False
    offload_reference: bool = False
    compile: bool = False
    float8: bool = False


class ComputeConfig(BaseModel):
    """How a trainer computes: a part of its configuration file, of which everything else is ignored here."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    engine: EngineConfig = EngineConfig()
    parallel: ParallelConfig = ParallelConfig()
    memory: MemoryConfig = MemoryConfig()


class GuardConfig(Document):
    """When a step counts as unstable and is not published: a gradient norm of more than `norm_factor` times the median
    of the last `norm_window` steps, an entropy (nats) below `entropy_share` of the last steps' or below
    `entropy_floor`, and anything that is not a number."""

    norm_factor: float = Field(50.0, gt=1)
    norm_window: int = Field(20, ge=5)
    entropy_share: float = Field(0.1, ge=0, lt=1)
    entropy_floor: float = Field(0.0, ge=0)


class WandbConfig(Document):
    """A project of Weights & Biases; the login is wandb's own."""

    project: str = Field(min_length=1)
    mode: Literal["online", "offline"] = "online"


class MetricsConfig(Document):
    """`listen`: HOST:PORT at which Prometheus may scrape. `tensorboard`: a folder for event files. `peak_tflops`: what
    the device can do at most, for MFU, where muster does not know it."""

    listen: str = ""
    tensorboard: Path | None = None
    wandb: WandbConfig | None = None
    peak_tflops: float | None = Field(None, gt=0)


class EvaluationProcessConfig(Document):
    """How the trainer measures: with which engine (its own if none is named), at which priority (`nice`), for at most
    how many seconds."""

    engine: EngineConfig | None = None
    nice: int = Field(5, ge=0, le=19)
    seconds: float = Field(3600.0, gt=0)


class TrainerConfig(ProcessConfig):
    """`key` is the pool owner's: it signs manifests, publishes steps and opens canaries. `base` is the folder of policy
    step 0; without it the pool configuration's `model.source` is used (`seed` for the demo's own model).
    `carrier`: the key of a node of the owner's whose every file is a canary, and consents to that when it is opened.
    `keep_exports`: policy folders kept on disk. An accepted file that the bucket lacks for `missing_seconds`, or that
    cannot be scored for so long while others can, is skipped, and so are those whose SHA-256 `exclude` names. While
    nodes that joined late wait for the next step, it is published without training once nobody could make a file for
    `standstill_seconds`, or nobody did for `silence_seconds`. A data pool publishes its step again for nodes that
    joined late, where others work not within `newcomer_seconds` of the last time. `sites`: the document of a run of
    several sites, which then train in this trainer's place (docs/sites.md)."""

    key: KeyConfig
    s3: S3Settings
    base: Path | None = None
    seed: int = Field(0, ge=0)
    heartbeat_seconds: float = Field(5.0, gt=0, le=60)
    keep_exports: int = Field(4, ge=2)
    carrier: KeyConfig | None = None
    metrics: MetricsConfig = MetricsConfig()
    evaluation: EvaluationProcessConfig = EvaluationProcessConfig()
    missing_seconds: float = Field(60.0, ge=0)
    exclude: tuple[str, ...] = ()
    standstill_seconds: float = Field(20.0, ge=0)
    silence_seconds: float = Field(900.0, gt=0)
    newcomer_seconds: float = Field(300.0, ge=0)
    guards: GuardConfig = GuardConfig()
    parallel: ParallelConfig = ParallelConfig()
    memory: MemoryConfig = MemoryConfig()
    sites: Path | None = None


_SFT_OPTIMIZER = OptimizerConfig(
    method=AdamWConfig(learning_rate=2e-5), schedule=ScheduleConfig(decay="cosine", decay_share=1)
)


class SftConfig(DaemonConfig):
    """`model`: a folder or Hugging Face id; `data`: a file of conversations, one JSON object a line; `out`: the folder
    to write; `home` keeps checkpoints and `metrics.jsonl`.

    Every update learns from `batch` conversations, in an order that `seed` decides anew each epoch; there are `updates`
    of them, or as many as `epochs` take. Conversations of more than `max_tokens` are left out. `heldout` of the
    conversations are kept apart, and their loss is measured at every checkpoint.
    """

    model: str
    data: Path
    out: Path
    chat_template: bool = True
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    device: str = "cpu"
    threads: int = Field(1, ge=1, le=1024)
    epochs: int | None = Field(None, ge=1)
    updates: int | None = Field(None, ge=1)
    batch: int = Field(64, ge=1)
    max_tokens: int = Field(4096, ge=2)
    heldout: int = Field(0, ge=0)
    seed: int = Field(0, ge=0)
    checkpoint_updates: int = Field(100, ge=1)
    optimizer: OptimizerConfig = _SFT_OPTIMIZER
    parallel: ParallelConfig = ParallelConfig()
    memory: MemoryConfig = MemoryConfig()
    metrics: MetricsConfig = MetricsConfig()

    @model_validator(mode="after")
    def _one_length(self) -> Self:
        if (self.epochs is None) == (self.updates is None):
            raise ValueError("set either `epochs` or `updates`")
        return self
