"""A demo run: bring the network up, follow it, settle its accounts, write its report, take it down."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from chain.deploy import deploy
from chain.deployment import Deployment
from chain.indexer.follower import Follower
from chain.indexer.projection import Projection
from chain.indexer.records import Status, Submission
from chain.indexer.state import State
from engines.torch_process import vllm_installed
from localnet.base_model import base_model_process, wait_for_folder
from localnet.diloco import DilocoKiller, diloco_summary, make_run
from localnet.network import LOCAL, Network, ProgressPrinter, Stop
from localnet.onboarding import KeyRing, Onboarding, names
from localnet.outcome import write_results
from localnet.plan import EPOCH_BLOCKS, POOL, DemoPlan
from orchestrator.dashboard.results import DilocoSummary
from protocol.config import PoolConfig
from protocol.encoding import show_tokens
from protocol.errors import MusterError
from protocol.verdict import Code
from runtime.supervisor import Supervisor
from storage.s3 import Bucket
from trainer.reports.records import read_records
from validator.decide import deciding_round

SILENCE_SECONDS = 6.0


@dataclass
class RunMonitor:
    """One line whenever something worth a line happens, and at least every few seconds how things stand."""

    projection: Projection
    steps: int
    home: Path
    say: Callable[[str], None]
    names: dict[str, str]
    printed: set[tuple[Any, ...]] = field(default_factory=set)
    last: float = 0.0
    problem: str = ""

    @property
    def state(self) -> State:
        return self.projection.state

    def look(self) -> None:
        """Refresh and print what is new. A chain that is down is reported, not raised."""
        try:
            self.projection.refresh()
            self.problem = ""
        except MusterError as error:
            self.problem = error.what
        self._report_steps()
        self._report_enforcement()
        if time.monotonic() - self.last > SILENCE_SECONDS:
            self._line(self.problem or self.standing())

    def refreshed(self) -> State:
        """Look, and return what the chain says now."""
        self.look()
        return self.state

    def metrics(self) -> list[dict[str, Any]]:
        """The trainer's records, one per step (the last one written counts), in its home folder."""
        records = [record for path in self.home.glob("*/metrics.jsonl") for record in read_records(path)]
        by_step = {record["step"]: record for record in records if "step" in record}
        return [by_step[step] for step in sorted(by_step)]

    def standing(self) -> str:
        files, canaries = self.state.submissions_of(POOL), self.state.canaries.keys()
        count = Counter(Status.CANARY if (POOL, file.sequence) in canaries else file.status for file in files)
        accepted, pending, known = count[Status.ACCEPTED], count[Status.PENDING], count[Status.CANARY]
        earned = sum(account.units_awarded for account in self.state.accounts.values() if account.pool == POOL)
        rate = self.state.pools[POOL].terms.rate if files else 0
        return (
            f"files: {accepted} accepted, {len(files) - accepted - pending - known} refused, {known} canaries, "
            f"{pending} being checked · {earned:,} tokens verified · {show_tokens(earned * rate)} MUS earned"
        )

    def _report_steps(self) -> None:
        for record in self.metrics():
            step = record["step"]
            if step and self._first("step", step):
                reward = record.get("reward_mean", record.get("reward"))
                shown = f"reward {reward:.3f}" if isinstance(reward, float) else "trained"
                self._line(f"step {step:>2}/{self.steps} · {shown} · {self.standing()}")

    def _report_enforcement(self) -> None:
        state = self.state
        for (pool, node), account in state.accounts.items():
            if pool != POOL:
                continue
            who = self.names.get(node, node)
            if account.frozen_at and self._first("frozen", node, account.frozen_at):
                self._line(f"⚖ {who}: a file was rejected, its stake is frozen until the challenge window ends")
            if account.ejected and self._first("ejected", node):
                took = f"SLASHED {show_tokens(account.slashed)} MUS and " if account.slashed else ""
                self._line(f"⚖ {who} {took}EJECTED: {account.eject_label}")
        for dispute in state.disputes.values():
            who = self.names.get(dispute.disputer, dispute.disputer)
            if self._first("dispute", dispute.sequence):
                self._line(f"⚖ {who} disputes the outcome of file {dispute.sequence}: a jury is drawn")
            if dispute.resolved and self._first("resolved", dispute.sequence):
                verb = "OVERTURNED" if dispute.overturned else "upheld"
                self._line(f"⚖ the jury {verb} file {dispute.sequence}: {Code(dispute.code).label}")
        for canary in state.canaries.values():
            if self._first("canary", canary.sequence):
                fell = f"seats {list(canary.accused)} accepted it" if canary.accused else "no seat accepted it"
                self._line(f"⚖ file {canary.sequence} was a canary: {fell}")
            if canary.slashed and self._first("canary paid", canary.sequence):
                lost = ", ".join(f"seat {seat} loses {show_tokens(g)} MUS" for seat, g in canary.slashed.items())
                self._line(f"⚖ canary {canary.sequence}: {lost}")

    def _first(self, *what: Any) -> bool:
        if what in self.printed:
            return False
        self.printed.add(what)
        return True

    def _line(self, text: str) -> None:
        self.say(text)
        self.last = time.monotonic()


def unsettled(state: State, now: int) -> str:
    """What still has to happen on chain, in words; empty when the books can be closed."""
    files = state.submissions_of(POOL)
    pending = sum(f.status is Status.PENDING for f in files)
    members = [account for account in state.accounts.values() if account.pool == POOL and not account.ejected]
    settled = [panel for lane in state.lanes_of(POOL) for panel in lane.rounds if panel.settled]
    parts = {
        "files being checked": pending,
        "outcomes inside their challenge window": sum(not f.is_final(now) for f in files) - pending,
        "nodes with unclaimed pay": sum(member.units_awarded > member.units_spent for member in members),
        "committees without their fees": sum(len(panel.closed) < len(panel.seats) for panel in settled),
    }
    return ", ".join(f"{count} {what}" for what, count in parts.items() if count)


MARGIN_SECONDS = 3
Wronged = Callable[[Onboarding, State, Submission], tuple[str, str]]


class Challenger:
    """Disputes each rejected file that `wronged` names, once and before its challenge window ends. A dispute that the
    chain does not take is tried again: otherwise a moment's fault would decide how the run ends. `wronged`: whose key
    disputes a file, empty for nobody, and why."""

    def __init__(self, onboarding: Onboarding, say: Callable[[str], None], wronged: Wronged) -> None:
        self.onboarding, self.say, self.wronged = onboarding, say, wronged
        self._decided: set[int] = set()

    def look(self, state: State) -> None:
        for file in state.submissions_of(POOL):
            if file.status is Status.REJECTED and not file.disputed and file.sequence not in self._decided:
                name, why = self.wronged(self.onboarding, state, file)
                if not name or self._dispute(file, name, why):
                    self._decided.add(file.sequence)

    def _dispute(self, file: Submission, name: str, why: str) -> bool:
        """Dispute the file. Returns whether that is done, or too late."""
        suite = self.onboarding.suite(name)
        try:
            if suite.client.now() + MARGIN_SECONDS < file.final_time:
                trial = suite.appeals.dispute(file).send()
                self.say(f"⚖ {name} disputes file {file.sequence} (trial {trial}): {why}")
        except MusterError as error:
            self.say(f"⚖ {name} could not dispute file {file.sequence} and tries again: {error}")
            return False
        return True


def honest_work(onboarding: Onboarding, state: State, file: Submission) -> tuple[str, str]:
    """The demo's honest nodes know that they did not cheat: a watcher pays, as nodes hold no tokens."""
    ring, honest = onboarding.ring, [node.name for node in onboarding.plan.nodes if not node.attack]
    who = next((name for name in honest if ring[f"node-{name}"].address == file.node), "")
    return ("watcher" if who else ""), f"honest work of {who} was rejected"


def dodged_canary(onboarding: Onboarding, state: State, file: Submission) -> tuple[str, str]:
    """The owner of the seat that never looks: whenever it was outvoted on a file that it accepted, which may be a
    canary, it disputes the file at once, for a jury instead of an opening."""
    name = next(f"validator-{v.name}" for v in onboarding.plan.validators if v.attack == "lazy")
    owner, decided = onboarding.ring[name].address, deciding_round(state, file)
    ours = [member for member, seat in enumerate(decided.seats) if state.seats[seat].owner == owner]
    accepted = any(decided.code_at(file.place, member).is_accept for member in ours)
    return (name if accepted else ""), "its seat accepted the file without a look"


@dataclass
class Chaos:
    """Kills one process every `interval` seconds until each was hit once; then leaves the run alone."""

    supervisor: Supervisor
    interval: float
    say: Callable[[str], None]
    random: Random
    clock: Callable[[], float] = time.monotonic
    killed: list[str] = field(default_factory=list)
    _next: float = 0.0

    def tick(self) -> None:
        now = self.clock()
        if not self._next:
            self._next = now + self.interval
        if now < self._next:
            return
        alive = [n for n, c in self.supervisor.children.items() if c.pid is not None and n not in self.killed]
        if not alive:
            return
        name = self.random.choice(alive)
        self.say(f"✂ kill -9 {name}")
        self.supervisor.kill(name)
        self.killed.append(name)
        self._next = now + self.interval * self.random.uniform(0.7, 1.3)


STALL_SECONDS, SETTLE_SECONDS = 300.0, 180.0
Onlooker = Callable[[State], None]
"""Does something about the chain's newest state, again and again."""


class Demo:
    """One run. `keep`: leave the network up afterwards; `chaos`: seconds between kills on purpose, 0 for none; `base`:
    the model folder to train, if it is there already."""

    def __init__(
        self, plan: DemoPlan, config: PoolConfig, keep: bool = False, chaos: float = 0.0, base: Path | None = None
    ) -> None:
        self.plan, self.config, self.keep, self.chaos, self.base = plan, config, keep, chaos, base
        self.stop, self.progress = Stop(), ProgressPrinter()
        self.say = self.progress.say
        if not vllm_installed() and all(node.engine != "vllm" for node in self.plan.nodes):
            self.say("vLLM is not installed here: workers and validators use transformers")
        self.ring = KeyRing(self.plan.root / "keys")
        self.network = Network(self.plan, self.ring, self.progress.notice, self.stop)
        self.onboarding = Onboarding(self.plan, self.ring)
        self.diloco_killer = DilocoKiller(self.plan, self.network.supervisor.kill, self.say)

    def run(self) -> bool:
        """The whole story; returns whether it was good. Leaves the network up afterwards only with `keep`."""
        try:
            self.bring_up()
            monitor = self.follow()
            self.settle(monitor)
            client = self.onboarding.client("deployer")
            good = write_results(self.plan, self.ring, self.progress, client, monitor.refreshed, self._diloco_summary)
            if self.keep:
                self.say(f"the network stays up: {self.plan.http_url}/ · Ctrl-C stops it")
                while not self.stop():
                    self.network.supervisor.check()
                    time.sleep(0.5)
            return good
        finally:
            self.say("stopping everything")
            self.network.supervisor.stop()

    def bring_up(self) -> None:
        """Services, contracts, participants, and every role. The trainer comes last: who joined before step 0
        works from it on."""
        self.say(f"run {self.plan.root} · seed {self.plan.seed} · {self.plan.steps} policy steps")
        self.start_services()
        making = base_model_process(self.network.config_path, self.plan.seed, self.plan.log("base-model"))
        if not self.base:
            self.network.supervisor.start(making)
        self.open_pool()
        folder = self.base or wait_for_folder(making, self.network.check, self.say)
        if self.plan.diloco_workers:
            pools = Deployment.load(self.plan.deployment).address("Pools")
            run = make_run(self.plan, self.ring, pools, self.config)
            self.plan.diloco_run.write_text(run.model_dump_json(indent=2))
            self.say(f"{self.plan.diloco} DiLoCo workers train, the trainer coordinates them")
        self.network.start_trainer(POOL, folder)
        self.network.start_diloco_workers(folder)

    def start_services(self) -> None:
        """Chain and object storage, which are up some seconds later."""
        self.network.start_services()
        self.network.config_path.write_bytes(self.config.canonical())

    def open_pool(self) -> None:
        """On a fresh chain: contracts, participants, the pool, and every role but the trainer."""
        plan, keys = self.plan, [self.ring[name] for name in names(self.plan)]
        self.network.wait_services()
        self.say(f"chain at {plan.rpc_url} · S3 at {plan.s3_url} · {len(keys)} encrypted keystores")
        self.onboarding.give_gas()
        suite = LOCAL.suite.model_copy(update={"epoch_blocks": EPOCH_BLOCKS})
        network = LOCAL.model_copy(update={"rpc_urls": (plan.rpc_url,), "suite": suite})
        deployment = deploy(self.onboarding.client("deployer"), network, plan.deployment.parent)
        self.say(f"{len(deployment.contracts)} contracts deployed, Pools at {deployment.address('Pools')}")
        self.network.publish_config(self.config)
        self.start_nodes()
        self.onboarding.give_tokens()
        pool = self.onboarding.create_pool(self.config)
        if pool != POOL:
            raise MusterError(f"the pool got number {pool} on a fresh chain", "start again")
        self.say(f"pool {pool} escrowed its budget and named its service's key")
        self.onboarding.bond()
        seats = sum(v.seats for v in plan.validators)
        self.say(f"{seats} seats bonded and opted into pool {POOL}")
        self.say("waiting for the epoch in which the seats can be drawn")
        self.onboarding.open_pool(POOL)
        self.say(f"pool {POOL} is open")
        self.network.start_orchestrator(POOL)
        self.onboarding.join(plan.http_url)
        self.say(f"{len(plan.members)} nodes joined through the service, without ether or tokens")
        self.say(f"dashboard: {plan.http_url}/")

    def start_nodes(self) -> None:
        """Validators and workers. They load their engines while the pool is being made, and wait for it."""
        for validator in self.plan.validators:
            self.network.start_validator(POOL, validator)
        for node in self.plan.nodes:
            self.network.start_worker(POOL, node)

    def follow(self) -> RunMonitor:
        """Until the trainer has made its last step; raises MusterError when nothing moves for minutes."""
        monitor, onlookers, supervisor = self._new_monitor(), self.onlookers(), self.network.supervisor
        if self.chaos:
            chaos = Chaos(supervisor, self.chaos, self.say, Random(self.plan.seed))
            onlookers.append(lambda _: chaos.tick())
        moved, seen = time.monotonic(), (0, 0)
        while not supervisor.children["trainer"].finished:
            self.network.check()
            monitor.look()
            for look in onlookers:
                look(monitor.state)
            now_seen = (len(monitor.metrics()), sum(len(pool.sequences) for pool in monitor.state.pools.values()))
            if now_seen != seen:
                moved, seen = time.monotonic(), now_seen
            still = time.monotonic() - moved
            if still > STALL_SECONDS * self.plan.patience:
                raise MusterError(f"nothing moved for {still:.0f} s", f"see {self.plan.root / 'logs'}")
            time.sleep(0.5)
        self.say("training is over")
        return monitor

    def settle(self, monitor: RunMonitor) -> None:
        """Wait until nothing of the pool is unsettled. Raises MusterError if nothing is settled for minutes."""
        self.say("waiting for the last verdicts, challenge windows and claims")
        now = self.onboarding.client("deployer").now
        last, moved, longest = "", time.monotonic(), SETTLE_SECONDS * self.plan.patience
        monitor.look()
        while left := unsettled(monitor.state, now()):
            if left != last:
                self.say(f"left: {left}")
                last, moved = left, time.monotonic()
            if time.monotonic() - moved > longest:
                raise MusterError(f"nothing was settled for {longest:.0f} s: {left}", "see the logs of the validators")
            self.network.check()
            time.sleep(1.0)
            monitor.look()

    def onlookers(self) -> list[Onlooker]:
        """Who looks at every new state of the chain, and acts."""
        onlookers: list[Onlooker] = [self.disputes(wronged) for wronged in (honest_work, dodged_canary)]
        return [*onlookers, self.diloco_killer.look] if self.plan.diloco_workers else onlookers

    def disputes(self, wronged: Wronged) -> Onlooker:
        return Challenger(self.onboarding, self.say, wronged).look

    def _new_monitor(self) -> RunMonitor:
        deployment = Deployment.load(self.plan.deployment)
        folder = self.plan.home("demo")
        folder.mkdir(parents=True, exist_ok=True)
        follower = Follower(self.onboarding.client("deployer"), deployment, folder / "events.sqlite")
        known = {self.ring[name].address: name.removeprefix("node-") for name in names(self.plan)}
        return RunMonitor(Projection(follower), self.plan.steps, self.plan.home("trainer"), self.say, known)

    def _diloco_summary(self, state: State) -> DilocoSummary | None:
        if not self.plan.diloco_workers:
            return None
        bucket = Bucket(self.network.s3_settings())
        return diloco_summary(self.plan, self.ring, bucket, state, self.diloco_killer.kills)
