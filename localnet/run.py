"""`muster demo`: brings the network up, follows the run, settles accounts, writes summary and report, takes it down."""

import time
from pathlib import Path
from typing import Protocol

from chain.deploy import deploy
from chain.deployment import Deployment
from chain.follower import Follower
from chain.network import NetworkConfig
from chain.projection import Projection
from chain.state import State
from engines.runtime import vllm_installed
from localnet.absentee import Absentee
from localnet.accounts import KeyRing, names
from localnet.base_model import base_model_process, wait_for_folder
from localnet.chaos import Chaos
from localnet.disputer import Disputer, DodgingValidator
from localnet.monitor import RunMonitor
from localnet.network import LOCAL, Network
from localnet.onboarding import Onboarding
from localnet.plan import POOL, DemoPlan
from localnet.progress import ProgressPrinter, Stop
from localnet.results import Outcome, write_results
from localnet.settlement import settle_accounts
from localnet.sites import SiteKiller, sites_run
from localnet.sites_summary import sites_summary
from orchestrator.dashboard.results import SitesSummary
from protocol.config import PoolConfig
from protocol.errors import MusterError
from storage.bucket import Bucket

STALL_SECONDS = 300.0
EPOCH_BLOCKS = 24


class Onlooker(Protocol):
    """Does something about the chain's newest state, again and again."""

    def look(self, state: State) -> None: ...


class Demo:
    """One run. `keep`: leave the network up afterwards; `chaos`: seconds between kills on purpose, 0 for none."""

    def __init__(self, plan: DemoPlan, config: PoolConfig, keep: bool = False, chaos: float = 0.0) -> None:
        self.plan, self.config, self.keep, self.chaos = plan, config, keep, chaos
        self.stop, self.progress = Stop(), ProgressPrinter()
        self.say = self.progress.say
        if not vllm_installed() and all(node.engine != "vllm" for node in self.plan.nodes):
            self.say("vLLM is not installed here: workers and validators use transformers")
        self.ring = KeyRing(self.plan.root / "keys")
        self.network = Network(self.plan, self.ring, self.progress.notice, self.stop)
        self.onboarding = Onboarding(self.plan, self.ring)
        self.site_killer = SiteKiller(self.plan, self.network.supervisor.kill, self.say)

    def run(self) -> Outcome:
        """The whole story; leaves the network up afterwards only with `keep`."""
        try:
            self.bring_up()
            monitor = self.follow()
            settle_accounts(monitor, self.onboarding.client("deployer").now, self.network.check, self.say)
            outcome = write_results(
                self.plan, self.ring, self.progress, monitor.state, self._sites_summary(monitor.state)
            )
            if self.keep:
                self._hold()
            return outcome
        finally:
            self.say("stopping everything")
            self.network.supervisor.stop()

    def bring_up(self) -> None:
        """Services, contracts, participants, and every role. The trainer comes last: who joined before step 0
        works from it on."""
        self.say(f"run {self.plan.root} · seed {self.plan.seed} · {self.plan.steps} policy steps")
        self.start_services()
        base = base_model_process(self.network.config_path, self.plan.seed, self.plan.log("base-model"))
        self.network.supervisor.start(base)
        self.open_pool()
        self._start_training(wait_for_folder(base, self.network.check, self.say))

    def _start_training(self, base: Path) -> None:
        if self.plan.site_names:
            pools = Deployment.load(self.plan.deployment).address("Pools")
            run = sites_run(self.plan, self.ring, pools, self.config)
            self.plan.sites_run.write_text(run.model_dump_json(indent=2))
            self.say(f"{self.plan.sites} sites train, the trainer keeps their log")
        self.network.start_trainer(POOL, base)
        self.network.start_sites(base)

    def start_services(self) -> None:
        """Chain and object storage, which are up some seconds later."""
        self.network.start_chain()
        self.network.start_storage()
        self.network.config_path.write_bytes(self.config.canonical())

    def open_pool(self) -> None:
        """On a fresh chain: contracts, participants, the pool, and every role but the trainer."""
        self._make_keys()
        self.network.wait_services()
        self._deploy()
        self.network.publish_config(self.config)
        self.start_nodes()
        self.onboarding.give_tokens()
        self.onboarding.bond_and_register()
        seats = sum(v.seats for v in self.plan.validators)
        self.say(f"{seats} seats bonded and opted into pool {POOL}, {len(self.plan.members)} nodes registered")
        self._create_pool()
        self.network.start_orchestrator(POOL)
        self.say(f"dashboard: {self.plan.http_url}/")

    def _make_keys(self) -> None:
        for name in names(self.plan):
            self.ring[name]

    def _deploy(self) -> None:
        plan = self.plan
        self.say(f"chain at {plan.rpc_url} · S3 at {plan.s3_url} · {len(names(plan))} encrypted keystores")
        self.onboarding.give_gas()
        deployment = deploy(self.onboarding.client("deployer"), demo_chain(plan), plan.deployment.parent)
        self.say(f"{len(deployment.contracts)} contracts deployed, Pools at {deployment.address('Pools')}")

    def _create_pool(self) -> None:
        self.say("waiting for the epoch in which the seats can be drawn")
        pool = self.onboarding.create_pool(self.config)
        if pool != POOL:
            raise MusterError(f"the pool got number {pool} on a fresh chain", "start again")
        self.say(f"pool {pool} escrowed its budget and named its service's key, all nodes joined")

    def start_nodes(self) -> None:
        """Validators and workers. They load their engines while the pool is being made, and wait for it."""
        for validator in self.plan.validators:
            self.network.start_validator(POOL, validator)
        for node in self.plan.nodes:
            self.network.start_worker(POOL, node)

    def follow(self) -> RunMonitor:
        """Until the trainer has made its last step; raises MusterError when nothing moves for minutes."""
        monitor = self._new_monitor()
        onlookers = self.onlookers()
        chaos = Chaos(self.network.supervisor, self.chaos, self.say) if self.chaos else None
        moved, seen = time.monotonic(), (0, 0)
        while not self.network.supervisor.children["trainer"].finished:
            self.network.check()
            monitor.look()
            for one in onlookers:
                one.look(monitor.state)
            if chaos:
                chaos.tick()
            now_seen = (len(monitor.metrics()), len(monitor.state.submissions))
            if now_seen != seen:
                moved, seen = time.monotonic(), now_seen
            if time.monotonic() - moved > STALL_SECONDS * self.plan.patience:
                raise MusterError(
                    f"nothing moved for {time.monotonic() - moved:.0f} s", f"see {self.plan.root / 'logs'}"
                )
            time.sleep(0.5)
        self.say("training is over")
        return monitor

    def onlookers(self) -> list[Onlooker]:
        """Who looks at every new state of the chain, and acts."""
        found: list[Onlooker] = [kind(self.onboarding, self.say) for kind in (Disputer, DodgingValidator, Absentee)]
        return [*found, self.site_killer] if self.plan.site_names else found

    def _new_monitor(self) -> RunMonitor:
        deployment = Deployment.load(self.plan.deployment)
        folder = self.plan.home("demo")
        folder.mkdir(parents=True, exist_ok=True)
        follower = Follower(self.onboarding.client("deployer"), deployment, folder / "events.sqlite")
        known = {self.ring[name].address: name.removeprefix("node-") for name in names(self.plan)}
        return RunMonitor(Projection(follower), POOL, self.plan.steps, self.plan.home("trainer"), self.say, known)

    def _sites_summary(self, state: State) -> SitesSummary | None:
        if not self.plan.site_names:
            return None
        return sites_summary(self.plan, self.ring, Bucket(self.network.s3_settings()), state, self.site_killer.kills)

    def _hold(self) -> None:
        self.say(f"the network stays up: {self.plan.http_url}/ · Ctrl-C stops it")
        while not self.stop():
            self.network.supervisor.check()
            time.sleep(0.5)


def demo_chain(plan: DemoPlan) -> NetworkConfig:
    """The local network at this run's address, with epochs long enough that a busy machine draws every committee in
    time."""
    suite = LOCAL.suite.model_copy(update={"epoch_blocks": EPOCH_BLOCKS})
    return LOCAL.model_copy(update={"rpc_urls": (plan.rpc_url,), "suite": suite})
