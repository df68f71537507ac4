"""The sinks that a configuration asks for."""

from pathlib import Path

from trainer.config import MetricsConfig
from trainer.metrics.prometheus import PrometheusSink
from trainer.metrics.sinks import Sink
from trainer.metrics.trackers import TensorBoardSink, WandbSink

PROMETHEUS_FILE = "metrics.prom"


def make_sinks(config: MetricsConfig, home: Path, run: str) -> list[Sink]:
    """Return every sink of a run named `run`, whose files are in `home`. Raises ConfigError for one that cannot begin."""
    sinks: list[Sink] = [PrometheusSink(home / PROMETHEUS_FILE, config.listen)]
    if config.tensorboard is not None:
        sinks.append(TensorBoardSink(config.tensorboard))
    if config.wandb is not None:
        sinks.append(WandbSink(config.wandb.project, run, home, config.wandb.mode))
    return sinks
