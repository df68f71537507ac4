"""How the ranks of a run come together: rank 0 is the daemon and says what to train, the others follow it."""

import logging
from pathlib import Path

from protocol.config import PoolConfig
from trainer.commands import LearnerGroup
from trainer.config import TrainerConfig
from trainer.exits import EXIT_LOST, RanksLostError
from trainer.learner import Learner
from trainer.model.sharding import Placement

log = logging.getLogger("muster.trainer")
_LAST_SECONDS = 5.0


def lead(config: TrainerConfig, pool: PoolConfig, base: Path, placement: Placement) -> LearnerGroup:
    """Rank 0's part: tell the others what is trained, from which folder of weights, which all of them must see."""
    placement.ranks.command((pool, base.resolve()))
    return _group(config, pool, base, placement)


class FollowingRank:
    """Every other rank's process: it talks to nobody but the ranks. `run` returns rank 0's exit code, or 3 if a rank is
    gone."""

    def __init__(self, config: TrainerConfig, placement: Placement) -> None:
        self._config, self._placement = config, placement

    def run(self) -> int:
        try:
            pool, base = self._placement.ranks.command()
            return _group(self._config, pool, base, self._placement).follow()
        except RanksLostError as error:
            log.error("%s", error)
            return EXIT_LOST

    def stop(self) -> None:
        """Rank 0 is asked too and decides; should it be gone, do not wait for it much longer."""
        self._placement.ranks.hurry(_LAST_SECONDS)


def _group(config: TrainerConfig, pool: PoolConfig, base: Path, placement: Placement) -> LearnerGroup:
    def make() -> Learner:
        return Learner(base, pool.train, pool.work.temperature, pool.model.dtype, placement, config.seed)

    return LearnerGroup(placement.ranks, make)
