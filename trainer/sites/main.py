"""`run_keeper(config_path)`, `run_site(config_path)`: the processes of a run over several sites."""

import logging
import os
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

from eth_account.signers.local import LocalAccount

from protocol.config import PoolConfig
from protocol.documents import load_document
from protocol.errors import ConfigError
from protocol.files import write_atomic
from protocol.locks import locked
from protocol.sites.run import SitesRun
from runtime.process import Daemon, start
from storage.bucket import Bucket
from trainer.sites.config import KeeperConfig, RunMemberConfig, SiteConfig
from trainer.sites.exchange import SiteExchange
from trainer.sites.first_state import first_state
from trainer.sites.inner import InnerWork
from trainer.sites.keeper import SitesKeeper
from trainer.sites.pool_run import check_run_of
from trainer.sites.record_watch import RecordWatch
from trainer.sites.run_chain import RunChain
from trainer.sites.site import Site
from trainer.sites.status_file import StatusFile
from trainer.sites.step_recorder import StepRecorder
from trainer.sites.timeouts import Timeouts
from trainer.sites.turns import keep, take_part

log = logging.getLogger("muster.sites")
_LOCK, _RUN, _LOCK_SECONDS = "site.lock", "run.sha256", 10.0
_CHAIN_SECONDS = 30.0
"""For which a process that ends waits for the chain."""


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
        self, keeper: SitesKeeper, config: ProcessSettings, held: ExitStack, recorder: StepRecorder | None = None
    ) -> None:
        self._keeper, self._config, self._held, self._recorder = keeper, config, held, recorder
        self._stopping = threading.Event()
        self._status = StatusFile(config.home, keeper.status)

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> int:
        self._status.write()
        self._keeper.start()
        print_timeouts(self._keeper.run)
        if self._recorder is not None:
            self._recorder.start()
        keep(self._keeper, self._stopping, self._config.poll_seconds, self._status, self._config.steps)
        if self._recorder is not None:
            self._recorder.finish(_CHAIN_SECONDS)
        self._status.write()
        return 0


class SiteDaemon:
    def __init__(self, site: Site, config: ProcessSettings, held: ExitStack, watch: RecordWatch | None = None) -> None:
        self._site, self._config, self._held, self._watch = site, config, held, watch
        self._stopping = threading.Event()
        self._status = StatusFile(config.home, site.status)

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> int:
        print_timeouts(self._site.run)
        self._status.write()
        if self._watch is not None:
            self._watch.start()
        self._site.start(self._asked)
        take_part(self._site, self._stopping, self._config.poll_seconds, self._status, self._config.steps)
        self._site.leave()
        if self._watch is not None:
            self._watch.stop(_CHAIN_SECONDS)
        self._status.write()
        return 0

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


def claim_home(home: Path, run: SitesRun) -> None:
    """From now on it is this run's. Raises ConfigError where it is another's: states of both would be taken for one
    another's."""
    mark = home / _RUN
    if not mark.exists():
        write_atomic(mark, run.digest.encode())
    elif mark.read_bytes() != run.digest.encode():
        raise ConfigError(f"{home} is the home of another run than {run.name}", "name another home, or that run")


def hold_home(home: Path) -> ExitStack:
    """While it is not closed no other process works there. Raises MusterError where one does."""
    held = ExitStack()
    held.enter_context(locked(home / _LOCK, f"the other process in {home} to end", _LOCK_SECONDS))
    return held


def _keeper(config: KeeperConfig) -> Daemon:
    run, account, held = opened(config)
    if account.address != run.keeper:
        raise ConfigError(f"the keeper of {run.name} is {run.keeper}, this key is {account.address}", "name its key")
    first = first_state(config.model)
    exchange, chain = SiteExchange(Bucket(config.s3), run), _chain(config, run, account)
    recorder = StepRecorder(chain, exchange, first, config.home) if chain is not None else None
    keeper = SitesKeeper(exchange, account, first, config.home, recorder=recorder)
    return KeeperDaemon(keeper, config, held, recorder)


def _site(config: SiteConfig) -> Daemon:
    run, account, held = opened(config)
    if account.address not in run.sites:
        raise ConfigError(f"{account.address} is no site of {run.name}", "name the key of one, or add it to the run")
    bucket = Bucket(config.s3)
    inner = _imitation(config) if config.imitation is not None else _reinforcement(config, run, bucket)
    chain = _chain(config, run, account)
    watch = RecordWatch(chain, account.address) if chain is not None else None
    return SiteDaemon(Site(SiteExchange(bucket, run), account, inner, config.home, watch), config, held, watch)


def _chain(config: RunMemberConfig, run: SitesRun, account: LocalAccount) -> RunChain | None:
    return None if config.chain is None else RunChain(config.chain, run, account)


def _imitation(config: SiteConfig) -> InnerWork:
    assert config.imitation is not None
    _prepare(config.imitation.threads)
    from engines.loading import set_threads
    from trainer.sites.imitation import ImitationWork

    set_threads(config.imitation.threads)
    return ImitationWork(config.imitation, config.model)


def _reinforcement(config: SiteConfig, run: SitesRun, bucket: Bucket) -> InnerWork:
    settings = config.reinforcement
    assert settings is not None
    pool = load_document(settings.pool, PoolConfig)
    check_run_of(run, pool)
    _prepare(settings.threads)
    from engines.loading import set_threads
    from trainer.basemodel import model_folder
    from trainer.model.sharding import Placement
    from trainer.sites.reinforcement import ReinforcementWork

    set_threads(settings.threads)
    placement = Placement(device=settings.device, memory=settings.memory)
    return ReinforcementWork(pool, model_folder(config.model), bucket.get, placement, settings.seed)


def _prepare(threads: int) -> None:
    from engines.runtime import torch_environment

    for name, value in torch_environment(threads).items():
        os.environ.setdefault(name, value)
