"""Where the trainer's metrics go, from its configuration."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from protocol.documents import Document
from trainer.metrics.prometheus import PrometheusSink
from trainer.metrics.sinks import Sink
from trainer.metrics.trackers import TensorBoardSink, WandbSink

PROMETHEUS_FILE = "metrics.prom"


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

    def sinks(self, home: Path, run: str) -> list[Sink]:
        """Every sink of a run named `run`, whose files are in `home`. Raises ConfigError for one that cannot begin."""
        made: list[Sink] = [PrometheusSink(home / PROMETHEUS_FILE, self.listen)]
        if self.tensorboard is not None:
            made.append(TensorBoardSink(self.tensorboard))
        if self.wandb is not None:
            made.append(WandbSink(self.wandb.project, run, home, self.wandb.mode))
        return made
