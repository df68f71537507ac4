"""A run of sites whose stakes and records are on a real chain."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.site_letters import LetterTable
from chain.contracts.site_runs import RunTerms, SiteRuns
from protocol.accounts import LocalAccount
from protocol.sites.outer import OuterState
from protocol.sites.run import SitesRun
from tests.conftest import GRAINS, Deployed
from tests.trainer.sites.world import KEEPER, SITES, MemoryBucket, SitesWorld
from trainer.sites.chain_config import RunChainConfig
from trainer.sites.contradiction_watch import ContradictionWatch
from trainer.sites.exchange import SiteExchange
from trainer.sites.keeper import SitesKeeper
from trainer.sites.record_watch import RecordWatch
from trainer.sites.run_chain import chain_of
from trainer.sites.site import Site
from trainer.sites.step_recorder import StepRecorder

SITE_STAKE, KEEPER_STAKE, DELAY = 40 * GRAINS, 200 * GRAINS, 3600


def on_this_chain(run: SitesRun, deployed: Deployed, pool: int = 0) -> SitesRun:
    """The run's document for a deployment."""
    place = {"chain_id": deployed.deployment.chain_id, "pools": deployed.deployment.address("Pools"), "pool": pool}
    return run.model_copy(update=place)


def open_run(deployed: Deployed, run: SitesRun) -> int:
    """Opened by its keeper, who has tokens and gas since then as the sites have; none has joined."""
    minting = deployed.suite(deployed.governance).token
    for account in (KEEPER, *SITES[: len(run.sites)]):
        deployed.chain.fund(account.address)
        minting.mint(account.address, KEEPER_STAKE).send()
    start = OuterState.start(LetterTable().weights()).digest
    terms = RunTerms(bytes.fromhex(run.digest), start, run.pool, run.keeper, SITE_STAKE, KEEPER_STAKE, DELAY)
    return deployed.suite(KEEPER).site_runs.open(terms).send()


@dataclass
class SiteChainWorld(SitesWorld):
    """`deployed`: the chain, and `number`: of the run there. Threads are not started: tests look at the chain when they
    say so."""

    deployed: Deployed = field(kw_only=True)
    number: int = field(kw_only=True)
    recorder: StepRecorder = field(init=False)
    watches: dict[int, RecordWatch] = field(default_factory=dict)

    @property
    def runs(self) -> SiteRuns:
        return self.deployed.suite(KEEPER).site_runs

    def config(self, rpc: str = "") -> RunChainConfig:
        path = self.home / "deployment.json"
        if not path.exists():
            self.deployed.deployment.save(path)
        return RunChainConfig(
            deployment=path, rpc=(rpc or self.deployed.chain.url,), run=self.number, refresh_seconds=0.1
        )

    def contradictions(self, account: LocalAccount, home: str, accuse: bool = True) -> ContradictionWatch:
        """Whoever has this key watches the run."""
        chain = chain_of(self.config(), self.run, account)
        exchange = SiteExchange(self.bucket, self.run)
        return ContradictionWatch(chain, exchange, account.address, self.home / home, accuse)

    def join(self, number: int) -> None:
        site = SITES[number]
        self.deployed.suite(site).site_runs.join(self.number, SITE_STAKE, site.address).send()

    def start_keeper(self) -> None:
        first = OuterState.start(LetterTable().weights())
        exchange = SiteExchange(self.bucket, self.run)
        self.recorder = StepRecorder(chain_of(self.config(), self.run, KEEPER), exchange, first, self.home / "keeper")
        self.keeper = SitesKeeper(exchange, KEEPER, first, self.home / "keeper", recorder=self.recorder)
        self.keeper.start()

    def start(self, number: int, bucket: object = None) -> Site:
        exchange = SiteExchange(self.bucket, self.run)
        watch = RecordWatch(chain_of(self.config(), self.run, SITES[number]), SITES[number].address)
        site = Site(exchange, SITES[number], self.work(), self.home / f"site-{number}", watch)
        watch.first = site.state.digest
        site.start()
        self.sites[number], self.watches[number] = site, watch
        return site

    def until_step(self, step: int, seconds: float = 60.0) -> None:
        """Until the keeper has made so many outer steps, of whomever."""
        self._until(lambda: self.keeper.state.step >= step, seconds)

    def until_members(self, count: int, seconds: float = 60.0) -> None:
        self._until(lambda: len(self.keeper.book.schedule.members) >= count, seconds)

    def _until(self, reached: Callable[[], bool], seconds: float) -> None:
        end = time.monotonic() + seconds
        while not reached():
            assert time.monotonic() < end, self.keeper.waiting_for()
            self.turn()


def chain_world(deployed: Deployed, home: Path, run: SitesRun, joining: int = 3) -> SiteChainWorld:
    """With a run that so many of its sites have joined."""
    placed = on_this_chain(run, deployed)
    world = SiteChainWorld(MemoryBucket(), placed, home, deployed=deployed, number=open_run(deployed, placed))
    for number in range(joining):
        world.join(number)
    return world
