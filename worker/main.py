"""`run(config_path)`: one worker process."""

import logging
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from protocol.process import load_process
from worker.config import WorkerConfig

if TYPE_CHECKING:
    from worker.daemon import Worker


def run(config_path: Path) -> None:
    """Work until SIGINT or SIGTERM, the pool's end (exit code 0) or the node's ejection (exit code 3)."""
    config = load_process(config_path, WorkerConfig)
    prepare(config)
    from worker.daemon import Worker

    sys.exit(serve(Worker(config)))


def prepare(config: WorkerConfig) -> None:
    """Logging, and the environment that torch reads when it is first imported."""
    from protocol.engines.runtime import torch_environment

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s", datefmt="%H:%M:%S")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    config.home.mkdir(parents=True, exist_ok=True)
    for name, value in torch_environment(config.engine.threads).items():
        os.environ.setdefault(name, value)


def serve(worker: "Worker") -> int:
    """Run with signal handlers that ask it to stop."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: worker.stop())
    return worker.run()
