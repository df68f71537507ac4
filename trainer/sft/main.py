"""`run(config_path)`: supervised fine-tuning as a process, or as one for each rank."""

import logging
import os
import sys
from pathlib import Path

from protocol.lifetime import die_with_parent
from runtime.process import Daemon, start
from trainer.exits import EXIT_LOST
from trainer.config import SftConfig

log = logging.getLogger("muster.trainer")


def run(config_path: Path) -> None:
    """Fine-tune until the model is written (exit code 0) or until a signal (4: start again to go on)."""
    start(config_path, SftConfig, _build, grace=None)


def _build(config: SftConfig) -> Daemon:
    from engines.runtime import torch_environment

    for name, value in torch_environment(config.threads).items():
        os.environ.setdefault(name, value)
    from engines.loading import set_threads
    from trainer.launch import Launcher, launched

    if config.parallel.ranks > 1 and not launched():
        return Launcher(config.parallel, sys.orig_argv[1:])
    set_threads(config.threads)
    if launched():
        die_with_parent()
    return _rank(config)


def _rank(config: SftConfig) -> Daemon:
    from trainer.exits import RanksLostError
    from trainer.model.sharding import make_placement
    from trainer.sft.run import SftRun

    try:
        return SftRun(config, make_placement(config.parallel, config.memory, config.device))
    except RanksLostError as error:
        log.error("%s", error)
        sys.exit(EXIT_LOST)
