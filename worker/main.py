"""`run(config_path)`: one worker process."""

import logging
import os
import sys
from pathlib import Path

from runtime.process import load_process, make_home, serve
from worker.config import WorkerConfig


def run(config_path: Path) -> None:
    """Work until SIGINT or SIGTERM, the pool's end (exit code 0) or the node's ejection (exit code 3)."""
    config = load_process(config_path, WorkerConfig)
    prepare(config)
    from worker.daemon import Worker

    worker = Worker(config)
    sys.exit(serve(worker.run, worker.stop))


def prepare(config: WorkerConfig) -> None:
    """Logging, and the environment that torch reads when it is first imported."""
    from engines.runtime import torch_environment

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s", datefmt="%H:%M:%S")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    make_home(config.home)
    for name, value in torch_environment(config.engine.threads).items():
        os.environ.setdefault(name, value)
