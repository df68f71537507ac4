"""What a site's configuration trains: the learners of each rank, and the inner work that rank 0 drives them by."""

import logging

from protocol.config import PoolConfig
from protocol.encoding import load_document
from protocol.sites.run import SitesRun
from storage.weights.fetch import OpenObject
from trainer.exits import EXIT_LOST, RanksLostError
from trainer.model.policy import model_folder
from trainer.model.sharding import Placement
from trainer.sites.config import SiteConfig
from trainer.sites.imitation import ImitationWork, imitation_learners
from trainer.sites.inner import InnerWork
from trainer.sites.learners import SiteLearners
from trainer.sites.pool_run import check_run_of
from trainer.sites.reinforcement import ReinforcementWork, reinforcement_learners
from trainer.sites.text import TextWork, text_learners
from trainer.text.run_data import check_data, data_digest, text_corpus

log = logging.getLogger("muster.sites")
_LAST_SECONDS = 5.0


def learners_of(config: SiteConfig, placement: Placement) -> SiteLearners:
    """Of this rank. Raises ConfigError, IntegrityError."""
    folder = model_folder(config.model)
    if config.imitation is not None:
        return imitation_learners(config.imitation, folder, placement)
    if config.text is not None:
        return text_learners(config.text, folder, placement)
    assert config.reinforcement is not None, "there is one kind"
    pool = load_document(config.reinforcement.pool, PoolConfig)
    return reinforcement_learners(pool, folder, placement, config.reinforcement.seed)


def check_work(config: SiteConfig, run: SitesRun) -> None:
    """Raise ConfigError where the run is for other work, or for other data, before anything is loaded or claimed."""
    if config.reinforcement is not None:
        check_run_of(run, load_document(config.reinforcement.pool, PoolConfig))
    if config.text is not None:
        corpus = text_corpus(config.text, config.home)
        check_data(run, data_digest(corpus, config.text, model_folder(config.model)))


def work_of(
    config: SiteConfig, run: SitesRun, open_object: OpenObject, placement: Placement
) -> tuple[InnerWork, SiteLearners]:
    """For rank 0, which tells the learners when it ends."""
    folder = model_folder(config.model)
    if config.imitation is not None:
        imitating = imitation_learners(config.imitation, folder, placement)
        return ImitationWork(config.imitation, folder, imitating), imitating
    if config.text is not None:
        corpus = text_corpus(config.text, config.home)
        reading = text_learners(config.text, folder, placement)
        return TextWork(config.text, folder, corpus, run, reading), reading
    assert config.reinforcement is not None, "there is one kind"
    pool = load_document(config.reinforcement.pool, PoolConfig)
    learning = reinforcement_learners(pool, folder, placement, config.reinforcement.seed)
    return ReinforcementWork(pool, folder, open_object, learning), learning


class FollowingSiteRank:
    """Every rank's process but the first: it talks to nobody but the ranks. `run` returns rank 0's exit code, or 3 if a
    rank is gone."""

    def __init__(self, learners: SiteLearners) -> None:
        self._learners = learners

    def run(self) -> int:
        try:
            return self._learners.follow()
        except RanksLostError as error:
            log.error("%s", error)
            return EXIT_LOST

    def stop(self) -> None:
        """Rank 0 is asked too and decides; should it be gone, do not wait for it much longer."""
        self._learners.ranks.shorten_wait(_LAST_SECONDS)
