"""`run(config_path)`: one validator process for one or several seats."""

import logging
import os
import sys
from pathlib import Path

from runtime.process import load_process, make_home, serve
from validator.config import ValidatorConfig


def run(config_path: Path) -> None:
    """Validate until SIGINT or SIGTERM."""
    config = load_process(config_path, ValidatorConfig)
    prepare(config)
    from validator.daemon import Validator

    validator = Validator(config)
    sys.exit(serve(validator.run, validator.stop))


def prepare(config: ValidatorConfig) -> None:
    """Logging, and the environment that torch reads when it is first imported."""
    from engines.runtime import torch_environment

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s", datefmt="%H:%M:%S")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    make_home(config.home)
    for name, value in torch_environment(config.engine.threads).items():
        os.environ.setdefault(name, value)
