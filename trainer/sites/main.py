"""`run_keeper(config_path)`, `run_site(config_path)`: the processes of a run over several sites."""

import logging
import os
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from protocol.accounts import LocalAccount
from protocol.encoding import load_document
from protocol.errors import ConfigError
from protocol.lifetime import die_with_parent
from protocol.sites.run import SitesRun
from runtime.process import Daemon, start
from storage.s3 import Bucket
from trainer.config import ParallelConfig
from trainer.exits import EXIT_DONE, EXIT_LOST, RanksLostError
from trainer.sites.config import KeeperConfig, RunMemberConfig, SiteConfig
from trainer.sites.exchange import SiteExchange
from trainer.sites.first_state import first_state
from trainer.sites.home import claim_home, hold_home
from trainer.sites.keeper import SitesKeeper
from trainer.sites.site import Site
from trainer.sites.status_file import StatusFile
from trainer.sites.timeouts import Timeouts
from trainer.sites.turns import keep, take_part

if TYPE_CHECKING:  # the keeper's and a site's help need no PyTorch
    from trainer.model.sharding import Placement

log = logging.getLogger("muster.sites")
_LEAST_COLLECTIVE = 60.0
"""Seconds: processes take that long to start."""


def run_keeper(config_path: Path) -> None:
    """Keep the log until SIGINT or SIGTERM, or the last outer step."""
    start(config_path, KeeperConfig, _keeper, grace=None)


def run_site(config_path: Path) -> None:
    """Take part until SIGINT or SIGTERM, or the last outer step."""
    start(config_path, SiteConfig, _site, grace=None)


class ProcessSettings(Protocol):
    """What a process of a run needs to know besides the run."""

    @property
    def home(self) -> Path: ...

    @property
    def poll_seconds(self) -> float: ...

    @property
    def steps(self) -> int: ...


class KeeperDaemon:
    def __init__(
        self,
        keeper: SitesKeeper,
        config: ProcessSettings,
        held: ExitStack,
    ) -> None:
        self._keeper, self._config, self._held = keeper, config, held
        self._stopping = threading.Event()
        self._status = StatusFile(config.home, keeper.status)

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> int:
        self._status.write()
        self._keeper.start()
        print_timeouts(self._keeper.run)
        keep(self._keeper, self._stopping, self._config.poll_seconds, self._status, self._config.steps)
        self._keeper.finish()
        self._status.write()
        return 0


class SiteDaemon:
    """`end`: told how it ended, for the other ranks."""

    def __init__(
        self,
        site: Site,
        config: ProcessSettings,
        held: ExitStack,
        end: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._site, self._config, self._held, self._end = site, config, held, end
        self._stopping = threading.Event()
        self._status = StatusFile(config.home, site.status)

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> int:
        print_timeouts(self._site.run)
        self._status.write()
        try:
            self._site.start(self._asked)
            take_part(self._site, self._stopping, self._config.poll_seconds, self._status, self._config.steps)
            self._site.leave()
            self._site.finish()
        except RanksLostError as error:
            log.error("%s", error)
            return EXIT_LOST
        self._status.write()
        self._end(EXIT_DONE)
        return EXIT_DONE

    def _asked(self) -> bool:
        """Whether to stop; whoever waits for an answer is shown meanwhile what for."""
        self._status()
        return self._stopping.is_set()


def print_timeouts(run: SitesRun) -> None:
    """Into the log, so that nobody need guess what a wait is bounded by."""
    log.info("time-outs of %s:\n%s", run.name, Timeouts.of_run(run).table())


def opened(config: RunMemberConfig) -> tuple[SitesRun, LocalAccount, ExitStack]:
    """The run, this process's key, and what keeps other processes out of its home. Raises MusterError."""
    run, account, held = load_document(config.run, SitesRun), config.key.open(), hold_home(config.home)
    claim_home(config.home, run)
    return run, account, held


def _keeper(config: KeeperConfig) -> Daemon:
    run, account, held = opened(config)
    if account.address != run.keeper:
        raise ConfigError(f"the keeper of {run.name} is {run.keeper}, this key is {account.address}", "name its key")
    first = first_state(config.model)
    keeper = SitesKeeper(SiteExchange(Bucket(config.s3), run), account, first, config.home)
    return KeeperDaemon(keeper, config, held)


def _site(config: SiteConfig) -> Daemon:
    compute = config.compute
    _prepare(compute.threads)
    from engines.loading import set_threads
    from trainer.distributed import Launcher, launched

    run = load_document(config.run, SitesRun)
    parallel = compute.parallel.parallel(max(_LEAST_COLLECTIVE, Timeouts.of_run(run).collective))
    if parallel.ranks > 1 and not launched():
        return Launcher(parallel, sys.orig_argv[1:])
    set_threads(compute.threads)
    if launched():
        die_with_parent()
    return _rank(config, parallel)


def _rank(config: SiteConfig, parallel: ParallelConfig) -> Daemon:
    """One process of a site; the first rank talks to bucket and log, the others to it alone."""
    from trainer.model.sharding import make_placement
    from trainer.sites.works import FollowingSiteRank, learners_of

    compute = config.compute
    try:
        placement = make_placement(parallel, compute.memory, compute.device)
        if placement.ranks.rank:
            return FollowingSiteRank(learners_of(config, placement))
        return _first_rank(config, placement)
    except RanksLostError as error:
        log.error("%s", error)
        sys.exit(EXIT_LOST)


def _first_rank(config: SiteConfig, placement: "Placement") -> Daemon:
    from trainer.sites.works import check_work, work_of

    check_work(config, load_document(config.run, SitesRun))
    run, account, held = opened(config)
    if account.address not in run.sites:
        raise ConfigError(f"{account.address} is no site of {run.name}", "name the key of one, or add it to the run")
    bucket = Bucket(config.s3)
    inner, learners = work_of(config, run, bucket.get, placement)
    site = Site(SiteExchange(bucket, run), account, inner, config.home)
    return SiteDaemon(site, config, held, learners.end)


def _prepare(threads: int) -> None:
    from engines.runtime import torch_environment

    for name, value in torch_environment(threads).items():
        os.environ.setdefault(name, value)
