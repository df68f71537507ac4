"""Experiment trackers that an owner may have: TensorBoard and Weights & Biases, imported only where configured."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from protocol.errors import ConfigError
from trainer.metrics.catalogue import MetricSample


class TensorBoardSink:
    """Event files in `folder`. Raises ConfigError if TensorBoard is not installed."""

    name = "tensorboard"

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise ConfigError(
                "`metrics.tensorboard` is set, but TensorBoard is not installed", "pip install tensorboard"
            ) from None
        make: Any = SummaryWriter
        self._writer = make(log_dir=str(folder))

    def write(self, step: int, numbers: Sequence[MetricSample]) -> None:
        for one in numbers:
            self._writer.add_scalar(one.path, one.value, step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class WandbSink:
    """A run of Weights & Biases; the same `run` after a restart. Raises ConfigError if the package is not installed or
    refuses to start."""

    name = "wandb"

    def __init__(self, project: str, run: str, folder: Path, mode: str = "online") -> None:
        try:
            import wandb  # type: ignore[import-not-found,unused-ignore]
        except ImportError:
            raise ConfigError("`metrics.wandb` is set, but wandb is not installed", "pip install wandb") from None
        library: Any = wandb
        try:
            self._run = library.init(project=project, id=run, name=run, dir=str(folder), mode=mode, resume="allow")
        except Exception as error:  # its client has errors of its own
            raise ConfigError(
                f"wandb does not start: {error}", 'log in with `wandb login`, or set `metrics.wandb.mode` = "offline"'
            ) from None

    def write(self, step: int, numbers: Sequence[MetricSample]) -> None:
        self._run.log({one.path: one.value for one in numbers}, step=step)

    def close(self) -> None:
        self._run.finish()
