"""The configuration files of `muster pool train` and of fine-tuning (`muster pool train --sft`)."""

from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from protocol.config import AdamWConfig, OptimizerConfig, ScheduleConfig
from protocol.encoding import Document
from runtime.process import DaemonConfig, EngineConfig, IsolatedConfig, KeyConfig
from storage.s3 import S3Settings

CANARY_SECRET = "muster/canary-secret/1"  # tag of the secret that canaries follow from


class ParallelConfig(Document):
    """The processes that train together; nothing here changes what is learned."""

    ranks: int = Field(1, ge=1, le=4096, description="Processes on this machine, one per GPU.")
    shard: int = Field(0, ge=0, le=4096, description="Ranks that share one copy of weights and optimizer; 0: all.")
    context: int = Field(1, ge=1, le=64, description="Ranks that share a row, whose attention they divide by heads.")
    timeout_seconds: float = Field(600.0, gt=0, description="How long a rank waits for the others.")
    max_restarts: int = Field(5, ge=0, description="Failures in a row after which the trainer gives up.")


class MemoryConfig(Document):
    """What is traded for memory and time."""

    row_tokens: int = Field(8192, ge=1, description="Tokens that a rank trains at once, packed.")
    head_chunk_mib: int = Field(0, ge=0, description="Logits at once, in MiB; 0: 64 on a CPU, 640 on a GPU.")
    checkpoint_activations: bool = Field(False, description="Compute activations twice instead of keeping them.")
    offload_optimizer: bool = Field(False, description="Keep the optimizer's state in host memory between updates.")
    reduce_dtype: Literal["float32", "bfloat16"] = Field("float32", description="What gradients are summed in.")
    compile: bool = Field(False, description="Compile the blocks: slower first steps, faster ones after.")


class ComputeConfig(BaseModel):
    """How a trainer computes: the part of its configuration file that `muster pool train --bench` reads."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    engine: EngineConfig = EngineConfig()
    parallel: ParallelConfig = ParallelConfig()
    memory: MemoryConfig = MemoryConfig()


class GuardConfig(Document):
    """When a step counts as unstable and is not published. Anything that is not finite always does."""

    norm_factor: float = Field(50.0, gt=1, description="Largest norm, in medians of the last `norm_window` steps.")
    norm_window: int = Field(20, ge=5, description="Steps whose gradient norms are compared.")
    entropy_share: float = Field(0.1, ge=0, lt=1, description="Least entropy, in medians of the last five steps.")
    entropy_floor: float = Field(0.0, ge=0, description="Least entropy in nats.")


class MetricsConfig(Document):
    """Where metrics go besides `metrics.jsonl` and `metrics.prom`."""

    listen: str = Field("", description="HOST:PORT at which Prometheus may scrape.")
    tensorboard: Path | None = Field(None, description="A folder for TensorBoard's event files.")
    wandb: str = Field("", description="A project of Weights & Biases; WANDB_MODE and the login are wandb's own.")


class EvaluationProcessConfig(Document):
    """How the trainer measures held-out problems."""

    engine: EngineConfig | None = Field(None, description="The engine; the trainer's own if None.")
    seconds: float = Field(3600.0, gt=0, description="Time limit of one policy step's evaluation.")


class NullModelConfig(Document):
    """How the trainer learns what honest work with a policy step's weights errs by, in a pool with `evidence`."""

    every: int = Field(1, ge=1, description="Every how many policy steps; files of the others give no evidence.")
    files: int = Field(64, ge=16, le=100_000, description="Honest files that are made and measured for each.")
    batches: tuple[int, ...] = Field((8, 64), min_length=1, description="Completions that workers decode at once.")
    seconds: float = Field(1800.0, gt=0, description="Time limit; a step whose time is over has no null model.")


class TrainerConfig(IsolatedConfig):
    """The pool owner's trainer; docs/design/training.md explains `guards`, `parallel` and `memory`."""

    key: KeyConfig = Field(description="The owner's key: signs manifests, publishes steps and opens canaries.")
    s3: S3Settings = Field(description="The pool's bucket.")
    base: Path | None = Field(None, description="Folder of policy step 0; the pool's `model.source` if None.")
    seed: int = Field(0, ge=0, description="Seed of the demo's own base model.")
    heartbeat_seconds: float = Field(60.0, gt=0, le=600, description="Longest pause between heartbeats.")
    checkpoint_seconds: float = Field(600.0, ge=0, description="Training that a kill may cost: it is repeated.")
    decoy: KeyConfig | None = Field(None, description="Key of a node of the owner's whose every file is a canary.")
    metrics: MetricsConfig = MetricsConfig()
    evaluation: EvaluationProcessConfig = EvaluationProcessConfig()
    null_models: NullModelConfig = NullModelConfig()
    missing_seconds: float = Field(
        60.0, ge=0, description="How long an accepted file may be absent, or unscorable while others can be scored."
    )
    exclude: tuple[str, ...] = Field((), description="SHA-256 of files that are never trained on.")
    stall_seconds: float = Field(20.0, ge=0, description="Wait before publishing untrained where nobody can work.")
    silence_seconds: float = Field(900.0, gt=0, description="The same where nodes could make files and did not.")
    newcomer_seconds: float = Field(300.0, ge=0, description="Least pause of a data pool between steps for late nodes.")
    guards: GuardConfig = GuardConfig()
    parallel: ParallelConfig = ParallelConfig()
    memory: MemoryConfig = MemoryConfig()
    models: tuple[Path, ...] = Field((), description="Further folders that an isolated trainer reads: a teacher's.")

    @property
    def keys(self) -> tuple[KeyConfig, ...]:
        return (self.key, *([self.decoy] if self.decoy else []))

    @property
    def writes(self) -> tuple[Path, ...]:
        return (*super().writes, *([self.metrics.tensorboard] if self.metrics.tensorboard else []))

    @property
    def reads(self) -> tuple[Path, ...]:
        return (self.s3.credentials, *self.models, *([self.base] if self.base else []))

    @property
    def urls(self) -> tuple[str, ...]:
        return (*super().urls, self.s3.endpoint)

    @property
    def environment(self) -> tuple[str, ...]:
        return ("WANDB_",) if self.metrics.wandb else ()

    @property
    def listens(self) -> bool:
        return super().listens or bool(self.metrics.listen)


_COSINE = ScheduleConfig(decay="cosine", decay_share=1)


class SftConfig(DaemonConfig):
    """Supervised fine-tuning. `home` keeps checkpoints and `metrics.jsonl`. Set either `epochs` or `updates`."""

    model: str = Field(description="A model folder or Hugging Face id.")
    data: Path = Field(description="Conversations, one JSON object a line.")
    out: Path = Field(description="The model folder to write.")
    chat_template: bool = Field(True, description="Use the model's chat template.")
    dtype: Literal["float32", "bfloat16"] = Field("bfloat16", description="What is computed and exported in.")
    device: str = Field("cpu", description="Device of PyTorch: cpu, cuda.")
    threads: int = Field(1, ge=1, le=1024, description="Threads of PyTorch on the CPU.")
    epochs: int | None = Field(None, ge=1, description="How often every conversation is learned from.")
    updates: int | None = Field(None, ge=1, description="How many updates are taken.")
    batch: int = Field(64, ge=1, description="Conversations of an update.")
    max_tokens: int = Field(4096, ge=2, description="Longer conversations are left out.")
    heldout: int = Field(0, ge=0, description="Last conversations, whose loss is measured at every checkpoint instead.")
    seed: int = Field(0, ge=0, description="Decides the order of conversations, another one each epoch.")
    checkpoint_updates: int = Field(100, ge=1, description="Updates between two checkpoints.")
    optimizer: OptimizerConfig = OptimizerConfig(method=AdamWConfig(learning_rate=2e-5), schedule=_COSINE)
    parallel: ParallelConfig = ParallelConfig()
    memory: MemoryConfig = MemoryConfig()
    metrics: MetricsConfig = MetricsConfig()

    @model_validator(mode="after")
    def _one_length(self) -> Self:
        if (self.epochs is None) == (self.updates is None):
            raise ValueError("set either `epochs` or `updates`")
        return self
