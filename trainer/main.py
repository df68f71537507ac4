"""`run(config_path)`: the trainer's process, or one for each of its ranks."""

import logging
import sys
from pathlib import Path

from protocol.lifetime import die_with_parent
from runtime.entry import run_role
from runtime.process import Daemon, start
from trainer.config import TrainerConfig
from trainer.exits import EXIT_LOST

log = logging.getLogger("muster.trainer")


def run(config_path: Path) -> None:
    """Train until the last step, a signal, or trouble; trainer/exits.py has the exit codes."""
    start(config_path, TrainerConfig, _build, grace=None)


def _build(config: TrainerConfig) -> Daemon:
    from engines.loading import set_threads
    from trainer.launch import Launcher, launched

    if config.parallel.ranks > 1 and not launched():
        return Launcher(config.parallel, sys.orig_argv[1:])
    set_threads(config.engine.threads)
    if launched():
        die_with_parent()
    return _rank(config)


def _rank(config: TrainerConfig) -> Daemon:
    from trainer.collaborators import TrainerCollaborators
    from trainer.daemon import Trainer
    from trainer.data.keeper import DataKeeper
    from trainer.exits import RanksLostError
    from trainer.followers import FollowingRank
    from trainer.model.sharding import make_placement

    try:
        placement = make_placement(config.parallel, config.memory, config.engine.device)
        if placement.ranks.rank:
            return FollowingRank(config, placement)
        outside = TrainerCollaborators.connect(config)
        keeps = outside.client.pool_config().data is not None
        return DataKeeper(config, outside, placement) if keeps else Trainer(config, outside, placement)
    except RanksLostError as error:
        log.error("%s", error)
        sys.exit(EXIT_LOST)


if __name__ == "__main__":
    run_role(run)
