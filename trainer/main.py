"""`run(config_path)`: the trainer's process."""

from pathlib import Path

from runtime.process import Daemon, start
from trainer.config import TrainerConfig


def run(config_path: Path) -> None:
    """Train until the last step (exit code 0) or until SIGINT or SIGTERM (exit code 4: start again to go on)."""
    start(config_path, TrainerConfig, _build, grace=None)


def _build(config: TrainerConfig) -> Daemon:
    from engines.loading import set_threads
    from trainer.collaborators import TrainerCollaborators
    from trainer.daemon import Trainer

    set_threads(config.engine.threads)
    return Trainer(config, TrainerCollaborators.connect(config))
