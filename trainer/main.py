"""`run(config_path)`: the trainer's process."""

import logging
import os
import signal
import sys
from pathlib import Path

from runtime.process import load_process
from trainer.config import TrainerConfig

EXIT_DONE, EXIT_STOPPED = 0, 4


def run(config_path: Path) -> None:
    """Train until the last step (exit code 0) or until SIGINT or SIGTERM (exit code 4: start again to go on)."""
    from engines.runtime import torch_environment

    config = load_process(config_path, TrainerConfig)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s", datefmt="%H:%M:%S")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    for name, value in torch_environment(config.engine.threads).items():
        os.environ.setdefault(name, value)
    from trainer.daemon import Trainer
    from trainer.threads import quiet_threads

    quiet_threads(config.engine.threads)
    trainer = Trainer(config)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: trainer.stop())
    sys.exit(EXIT_DONE if trainer.run() else EXIT_STOPPED)
