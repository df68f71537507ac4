"""The configuration files of a run's keeper and of a site."""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from protocol.documents import Document
from protocol.training import AdamWConfig, OptimizerConfig, ScheduleConfig
from runtime.process import DaemonConfig, KeyConfig
from storage.settings import S3Settings
from trainer.config import MemoryConfig

_RATES = OptimizerConfig(method=AdamWConfig(learning_rate=2e-5), schedule=ScheduleConfig(decay_share=0))


class ImitationConfig(Document):
    """A site's inner steps on conversations (docs/training.md, *Supervised fine-tuning*): `data` is the same file on
    all sites, each of which trains on the conversations that are dealt to it, `batch` of them an inner step. `updates`:
    as many inner steps the schedule of the learning rate is for."""

    data: Path
    chat_template: bool = True
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    device: str = "cpu"
    threads: int = Field(1, ge=1, le=1024)
    batch: int = Field(64, ge=1)
    max_tokens: int = Field(4096, ge=2)
    heldout: int = Field(0, ge=0)
    updates: int = Field(1_000_000, ge=1)
    seed: int = Field(0, ge=0)
    optimizer: OptimizerConfig = _RATES


class ReinforcementConfig(Document):
    """A site's inner steps on the accepted files of a pool that are dealt to it: `pool` is the pool's document, whose
    `train` says how; `seed` decides the order of a step's samples."""

    pool: Path
    device: str = "cpu"
    threads: int = Field(1, ge=1, le=1024)
    memory: MemoryConfig = MemoryConfig()
    seed: int = Field(0, ge=0)


class RunChainConfig(Document):
    """A run that the chain knows: number `run` of the deployment in the file `deployment`. What the chain says is read
    every `refresh_seconds`."""

    deployment: Path
    rpc: tuple[str, ...] = Field(min_length=1)
    run: int = Field(ge=1, lt=1 << 256)
    refresh_seconds: float = Field(5.0, gt=0, le=3600)


class RunMemberConfig(DaemonConfig):
    """What keeper and sites of a run name alike. `run`: its document; `model`: folder or Hugging Face id of the weights
    that it begins with; `s3`: the bucket they share; `chain`: where the run's stakes and records are, if they are on a
    chain. It ends after outer step `steps` (0: never)."""

    run: Path
    key: KeyConfig
    s3: S3Settings
    model: str
    chain: RunChainConfig | None = None
    poll_seconds: float = Field(0.5, gt=0, le=60)
    steps: int = Field(0, ge=0)


class KeeperConfig(RunMemberConfig):
    """`muster site keep`."""


class SiteConfig(RunMemberConfig):
    """`muster site run`, with either kind of inner steps."""

    imitation: ImitationConfig | None = None
    reinforcement: ReinforcementConfig | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if (self.imitation is None) == (self.reinforcement is None):
            raise ValueError("name one of `imitation` and `reinforcement`")
        return self
