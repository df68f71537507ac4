"""The trainer's configuration file."""

from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from protocol.documents import Document
from runtime.process import EngineConfig, KeyConfig, ProcessConfig
from storage.settings import S3Settings
from trainer.evaluation.process import EvaluationProcessConfig
from trainer.metrics.config import MetricsConfig
from trainer.sites.chain_config import RunOnChain


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


class TrainerConfig(ProcessConfig):
    """`key` is the pool owner's: it signs manifests, publishes steps and opens canaries. `base` is the folder of policy
    step 0; without it the pool configuration's `model.source` is used (`seed` for the demo's own model).
    `carrier`: the key of a node of the owner's whose every file is a canary, and consents to that when it is opened.
    `keep_exports`: policy folders kept on disk. An accepted file that the bucket lacks for `missing_seconds`, or that
    cannot be scored for so long while others can, is skipped, and so are those whose SHA-256 `exclude` names. While
    nodes that joined late wait for the next step, it is published without training once nobody could make a file for
    `standstill_seconds`, or nobody did for `silence_seconds`. A data pool publishes its step again for nodes that
    joined late, where others work not within `newcomer_seconds` of the last time. `sites`: the document of a run of
    several sites, which then train in this trainer's place (docs/sites.md); `sites_chain`: that run on the chain, where
    its outer steps are recorded then. docs/training.md explains `guards`, `parallel` and `memory`."""

    key: KeyConfig
    s3: S3Settings
    base: Path | None = None
    seed: int = Field(0, ge=0)
    heartbeat_seconds: float = Field(60.0, gt=0, le=600)
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
    sites_chain: RunOnChain | None = None

    @model_validator(mode="after")
    def _chain_of_a_run(self) -> Self:
        if self.sites_chain is not None and self.sites is None:
            raise ValueError("`sites_chain` needs `sites`, the run's document")
        return self
