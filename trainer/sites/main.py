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
from protocol.documents import load_document
from protocol.errors import ConfigError
from protocol.lifetime import die_with_parent
from protocol.sites.run import SitesRun
from runtime.process import Daemon, start
from storage.bucket import Bucket
from trainer.config import ParallelConfig
from trainer.exits import EXIT_DONE, EXIT_LOST, RanksLostError
from trainer.sites.config import KeeperConfig, RunMemberConfig, SiteConfig
from trainer.sites.contradiction_watch import ContradictionWatch, shown_with
from trainer.sites.exchange import SiteExchange
from trainer.sites.first_state import first_state
from trainer.sites.home import claim_home, hold_home
from trainer.sites.keeper import SitesKeeper
from trainer.sites.keeper_on_chain import KeeperOnChain
from trainer.sites.record_watch import RecordWatch
from trainer.sites.run_chain import ChainWork, RunChain, chain_of
from trainer.sites.site import Site
from trainer.sites.status_file import StatusFile
from trainer.sites.timeouts import Timeouts
from trainer.sites.turns import keep, take_part

if TYPE_CHECKING:  # the keeper's and a site's help need no PyTorch
    from trainer.model.sharding import Placement

log = logging.getLogger("muster.sites")
_LEAST_COLLECTIVE = 60.0
"""Seconds: processes take that long to start."""
_WATCH_SECONDS = 5.0
"""For which a site that ends waits for the chain."""


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
        on_chain: KeeperOnChain | None = None,
    ) -> None:
        self._keeper, self._config, self._held, self._on_chain = keeper, config, held, on_chain
        self._stopping = threading.Event()
        contradictions = None if on_chain is None else on_chain.contradictions
        self._status = StatusFile(config.home, shown_with(keeper.status, contradictions))

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> int:
        self._status.write()
        self._keeper.start()
        print_timeouts(self._keeper.run)
        if self._on_chain is not None:
            self._on_chain.start()
        keep(self._keeper, self._stopping, self._config.poll_seconds, self._status, self._config.steps)
        self._keeper.finish()
        if self._on_chain is not None:
            self._on_chain.finish()
        self._status.write()
        return 0


class SiteDaemon:
    """`watch`, `contradictions`: what it does on chain; `end`: told how it ended, for the other ranks."""

    def __init__(
        self,
        site: Site,
        config: ProcessSettings,
        held: ExitStack,
        watch: RecordWatch | None = None,
        end: Callable[[int], None] = lambda _: None,
        contradictions: ContradictionWatch | None = None,
    ) -> None:
        self._site, self._config, self._held, self._end = site, config, held, end
        self._on_chain: list[ChainWork] = [one for one in (watch, contradictions) if one is not None]
        self._stopping = threading.Event()
        self._status = StatusFile(config.home, shown_with(site.status, contradictions))

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> int:
        print_timeouts(self._site.run)
        self._status.write()
        for work in self._on_chain:
            work.start()
        try:
            self._site.start(self._asked)
            take_part(self._site, self._stopping, self._config.poll_seconds, self._status, self._config.steps)
            self._site.leave()
            self._site.finish()
        except RanksLostError as error:
            log.error("%s", error)
            return EXIT_LOST
        for work in self._on_chain:
            work.stop(_WATCH_SECONDS)
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
    exchange, chain = SiteExchange(Bucket(config.s3), run), _chain(config, run, account)
    on_chain = None if chain is None else KeeperOnChain.of(chain, exchange, first, config.home)
    keeper = SitesKeeper(
        exchange, account, first, config.home, recorder=None if on_chain is None else on_chain.recorder
    )
    return KeeperDaemon(keeper, config, held, on_chain)


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
    exchange, chain = SiteExchange(bucket, run), _chain(config, run, account)
    watch, contradictions = None, None
    if chain is not None:
        watch = RecordWatch(chain, account.address)
        contradictions = ContradictionWatch(chain, exchange, account.address, config.home)
    site = Site(exchange, account, inner, config.home, watch)
    if watch is not None:
        watch.first = site.state.digest
    return SiteDaemon(site, config, held, watch, learners.end, contradictions)


def _chain(config: RunMemberConfig, run: SitesRun, account: LocalAccount) -> RunChain | None:
    return None if config.chain is None else chain_of(config.chain, run, account)


def _prepare(threads: int) -> None:
    from engines.runtime import torch_environment

    for name, value in torch_environment(threads).items():
        os.environ.setdefault(name, value)
