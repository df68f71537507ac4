"""`run(config_path)`: one validator process for one or several seats."""

import logging
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from protocol.process import load_process
from validator.config import ValidatorConfig

if TYPE_CHECKING:
    from validator.daemon import Validator


def run(config_path: Path) -> None:
    """Validate until SIGINT or SIGTERM."""
    config = load_process(config_path, ValidatorConfig)
    prepare(config)
    from validator.daemon import Validator

    sys.exit(serve(Validator(config)))


def prepare(config: ValidatorConfig) -> None:
    """Logging, and the environment that torch reads when it is first imported."""
    from protocol.engines.runtime import torch_environment

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s", datefmt="%H:%M:%S")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    config.home.mkdir(parents=True, exist_ok=True)
    for name, value in torch_environment(config.engine.threads).items():
        os.environ.setdefault(name, value)


def serve(validator: "Validator") -> int:
    """Run with signal handlers that ask it to stop."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: validator.stop())
    return validator.run()
