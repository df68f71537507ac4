"""The configuration files of a run's keeper and of a site."""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from protocol.encoding import Document, load_document
from protocol.errors import ConfigError
from protocol.training import AdamWConfig, OptimizerConfig, ScheduleConfig
from runtime.process import DaemonConfig, KeyConfig
from storage.s3 import S3Settings
from trainer.config import MemoryConfig, ParallelConfig

_RATES = OptimizerConfig(method=AdamWConfig(learning_rate=2e-5), schedule=ScheduleConfig(decay_share=0))
INTELLECT_1 = OptimizerConfig(
    method=AdamWConfig(learning_rate=7.5e-5, beta1=0.9, beta2=0.95, weight_decay=0.1),
    schedule=ScheduleConfig(warmup_updates=1000, decay="linear", decay_share=0.2, final_share=0.0),
    grad_clip=1.0,
)
"""Of the inner steps (2412.01152): AdamW, and a rate that rises, stays and falls (WSD)."""


class SiteRanksConfig(Document):
    """`ranks`: processes on this machine that train together, one to a GPU. Weights, gradients and the optimiser's
    state are sharded over groups of `shard` ranks (0: all), each group a replica. After `max_restarts` failures in a
    row the site gives up. How long ranks wait for one another follows from the run's time-outs."""

    ranks: int = Field(1, ge=1, le=4096)
    shard: int = Field(0, ge=0, le=4096)
    max_restarts: int = Field(5, ge=0)

    def parallel(self, seconds: float) -> ParallelConfig:
        """The same for ranks that wait so long."""
        return ParallelConfig(timeout_seconds=seconds, **self.model_dump())


class ComputeOfSite(Document):
    """Where inner steps are computed."""

    device: str = "cpu"
    threads: int = Field(1, ge=1, le=1024)
    memory: MemoryConfig = MemoryConfig()
    parallel: SiteRanksConfig = SiteRanksConfig()


class ImitationConfig(ComputeOfSite):
    """A site's inner steps on conversations (docs/design/training.md, *Supervised fine-tuning*): `data` is the same
    file on all sites, each of which trains on the conversations that are dealt to it, `batch` of them an inner step.
    `updates`: as many inner steps the schedule of the learning rate is for. `max_z_loss`: as for text."""

    data: Path
    chat_template: bool = True
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    batch: int = Field(64, ge=1)
    max_tokens: int = Field(4096, ge=2)
    heldout: int = Field(0, ge=0)
    updates: int = Field(1_000_000, ge=1)
    seed: int = Field(0, ge=0)
    optimizer: OptimizerConfig = _RATES
    max_z_loss: float = Field(0.0, ge=0)


class TextConfig(ComputeOfSite):
    """A site's inner steps on documents: `files` are the same on all sites, or folders of them, JSON lines with the
    text in `field` or plain text, of which `separator` is the line that ends a document. An inner step sees
    `batch_tokens` tokens, in pieces of documents of at most `sequence_tokens`. The last `heldout` documents are kept
    apart, and their loss is measured at every outer step. `updates`: inner steps of the whole run, which the schedule
    of the learning rate is for. `max_z_loss`, times the mean square of the largest logit of a prediction, is added to
    the loss that is minimised; `loss` is reported without it."""

    files: tuple[Path, ...] = Field(min_length=1)
    field: str = "text"
    separator: str | None = None
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    batch_tokens: int = Field(1 << 16, ge=2, le=1 << 32)
    sequence_tokens: int = Field(2048, ge=2, le=1 << 24)
    heldout: int = Field(0, ge=0)
    updates: int = Field(100_000, ge=1)
    optimizer: OptimizerConfig = INTELLECT_1
    max_z_loss: float = Field(2e-4, ge=0)


class ReinforcementConfig(ComputeOfSite):
    """A site's inner steps on the accepted files of a pool that are dealt to it: `pool` is the pool's document, whose
    `train` says how; `seed` decides the order of a step's samples."""

    pool: Path
    seed: int = Field(0, ge=0)


class RunMemberConfig(DaemonConfig):
    """What keeper and sites of a run name alike. `run`: its document; `model`: folder or Hugging Face id of the weights
    that it begins with; `s3`: the bucket they share. It ends after outer step `steps` (0: never)."""

    run: Path
    key: KeyConfig
    s3: S3Settings
    model: str
    poll_seconds: float = Field(0.5, gt=0, le=60)
    steps: int = Field(0, ge=0)


class KeeperConfig(RunMemberConfig):
    """`muster site keep`."""


class SiteConfig(RunMemberConfig):
    """`muster site run`, with one kind of inner steps."""

    imitation: ImitationConfig | None = None
    text: TextConfig | None = None
    reinforcement: ReinforcementConfig | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if len(self._kinds) != 1:
            raise ValueError("name one of `imitation`, `text` and `reinforcement`")
        return self

    @property
    def compute(self) -> ComputeOfSite:
        """Where its inner steps are computed."""
        return self._kinds[0]

    @property
    def _kinds(self) -> list[ComputeOfSite]:
        return [one for one in (self.imitation, self.text, self.reinforcement) if one is not None]


def member_config(path: Path) -> RunMemberConfig:
    """A site's or keeper's configuration. Raises ConfigError."""
    try:
        return load_document(path, SiteConfig)
    except ConfigError:
        return load_document(path, KeeperConfig)
