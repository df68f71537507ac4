"""The configuration of supervised fine-tuning (`muster trainer sft --config`)."""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from protocol.training import AdamWConfig, OptimizerConfig, ScheduleConfig
from runtime.process import DaemonConfig
from trainer.config import MemoryConfig, ParallelConfig
from trainer.metrics.config import MetricsConfig

_RATES = OptimizerConfig(method=AdamWConfig(learning_rate=2e-5), schedule=ScheduleConfig(decay="cosine", decay_share=1))


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
    optimizer: OptimizerConfig = _RATES
    parallel: ParallelConfig = ParallelConfig()
    memory: MemoryConfig = MemoryConfig()
    metrics: MetricsConfig = MetricsConfig()

    @model_validator(mode="after")
    def _one_length(self) -> Self:
        if (self.epochs is None) == (self.updates is None):
            raise ValueError("set either `epochs` or `updates`")
        return self
