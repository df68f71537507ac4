"""A swarm of real processes on one machine. Every member is killed once, and the bucket disappears for a while."""

import time

from localnet.base_model import base_model_process, wait_for_folder
from localnet.network import Processes, ProgressPrinter, Stop, resident
from localnet.onboarding import KeyRing
from localnet.plan import pool_config
from localnet.swarm.plan import FIRST, LAST, SwarmPhase, SwarmPlan, swarm_document, write_plan
from localnet.swarm.traces import (
    BucketContents,
    MemberTrace,
    Outage,
    RoundsMade,
    read_bucket,
    read_member,
    unsent_rounds,
)
from protocol.errors import MusterError
from protocol.files import write_atomic
from storage.s3 import Bucket
from swarm.exchange import BucketExchange

_POLL_SECONDS, _REPORT_SECONDS, _MEMORY_SECONDS = 0.25, 8.0, 2.0
_READY_SECONDS = 120.0


class SwarmRun:
    """One run of a plan; `run` leaves no process behind."""

    def __init__(self, plan: SwarmPlan) -> None:
        self.plan, self.ring = plan, KeyRing(plan.root / "keys")
        self.progress = ProgressPrinter()
        self.processes = Processes(plan, self.progress.notice, Stop())
        self.supervisor = self.processes.supervisor
        self.events: list[tuple[float, str]] = []
        self.phase, self._since, self._reported, self._measured_memory = SwarmPhase.BEFORE, 0.0, 0.0, 0.0
        self.outage_seconds, self.peak_memory = 0.0, 0.0
        self.made = dict.fromkeys(plan.members, RoundsMade())
        self._marks = dict.fromkeys(plan.members, 0)  # rounds made when the phase began, or at the kill in it
        self._outages = {name: Outage() for name in plan.members}
        self._killed: dict[str, list[SwarmPhase]] = {name: [] for name in plan.members}

    def run(self) -> tuple[list[MemberTrace], BucketContents]:
        """Run to the last member's last round; return what is left. Raise MusterError if a phase takes too long."""
        try:
            self._start_storage()
            plan, path = self.plan, self.plan.root / "pool.json"
            write_atomic(path, pool_config(plan.seed, plan.rounds).canonical())
            process = self.supervisor.start(base_model_process(path, plan.seed, plan.log("base-model")))
            write_plan(plan, wait_for_folder(process, self.processes.check, self.progress.say), self.ring)
            for name in plan.members:
                config = plan.home(name) / "member.json"
                self.processes.start(name, ["-m", "cli.main", "swarm", "run", "--config", str(config)])
            self.say(f"{len(plan.members)} members, {plan.rounds} rounds each")
            self._follow()
            return self._traces(), read_bucket(BucketExchange(Bucket(plan.storage)), swarm_document())
        finally:
            self.say("stopping everything")
            self.supervisor.stop()

    def say(self, text: str) -> None:
        self.events.append((round(self.progress.seconds, 1), text))
        self.progress.say(text)

    def _start_storage(self) -> None:
        self.processes.start_storage(self.plan.storage)
        self.processes.wait_ready("s3", _READY_SECONDS)

    # The story

    def _follow(self) -> None:
        """Until all have made their rounds, and were told to end. A phase that lasts too long is an error."""
        self._since = time.monotonic()
        while not self._look():
            self._kill()
            self._turn()
            self._report()
            if time.monotonic() - self._since > self.plan.limit:
                raise MusterError(
                    f"{self.plan.limit:.0f} s {self.phase}, and {self._standing()}", f"see {self.plan.root / 'logs'}"
                )
            time.sleep(_POLL_SECONDS)
        self.say(f"enough; {self._standing()}")
        members = [self.supervisor.children[name] for name in self.plan.members]
        for child in members:
            child.terminate()
        what = "the members to end their rounds"
        self.processes.wait(what, lambda: all(one.finished for one in members), members[0].name, _READY_SECONDS)

    def _look(self) -> bool:
        """Whether there is nothing more to see."""
        self.processes.check()
        self.made = {name: RoundsMade.of(self.plan.home(name)) for name in self.plan.members}
        if self.phase is not SwarmPhase.AFTER or not self._all_killed(SwarmPhase.AFTER):
            return False
        least = {name: max(self.plan.rounds, made + LAST) for name, made in self._marks.items()}
        return all(one.made >= least[name] for name, one in self.made.items())

    def _turn(self) -> None:
        """The bucket goes, and comes back after a while: once everybody has made a round without it."""
        since, made = time.monotonic() - self._since, self.made
        if not self._all_killed(self.phase):
            return
        if self.phase is SwarmPhase.BEFORE and all(one.made >= FIRST for one in made.values()):
            child = self.supervisor.children["s3"]
            child.finished = True  # nobody starts it again
            child.end(0)
            for name, outage in self._outages.items():
                outage.made_at_start = made[name].made
            self._enter(SwarmPhase.DURING, "✂ the bucket is gone")
            return
        alone = all(one.alone_since(self._marks[name]) for name, one in made.items())
        if self.phase is SwarmPhase.DURING and alone and since >= self.plan.outage:
            for name, outage in self._outages.items():
                outage.made_at_end, outage.waiting = made[name].made, unsent_rounds(self.plan.home(name))
            self.outage_seconds = since
            self._start_storage()
            self._enter(SwarmPhase.AFTER, "the bucket is back")

    def _enter(self, phase: SwarmPhase, text: str) -> None:
        self.phase, self._since = phase, time.monotonic()
        self._marks = {name: one.made for name, one in self.made.items()}
        self.say(f"{text}; {self._standing()}")

    def _all_killed(self, phase: SwarmPhase) -> bool:
        return all(self._killed[one.member] for one in self.plan.kills if one.phase is phase)

    def _kill(self) -> None:
        passed = time.monotonic() - self._since
        for one in self.plan.kills:
            child, made = self.supervisor.children[one.member], self.made[one.member].made
            due = one.phase is self.phase and passed >= one.seconds and made > 0
            if not due or self._killed[one.member] or child.pid is None:
                continue
            self.say(f"✂ kill -9 {one.member} after {made} rounds, {self.phase}")
            self.supervisor.kill(one.member)
            self._killed[one.member].append(self.phase)
            self._marks[one.member] = made

    def _report(self) -> None:
        now = time.monotonic()
        if now - self._measured_memory >= _MEMORY_SECONDS:
            self._measured_memory = now
            pids = [child.pid for child in self.supervisor.children.values() if child.pid is not None]
            self.peak_memory = max(self.peak_memory, sum(map(resident, pids)))
        if now - self._reported >= _REPORT_SECONDS:
            self._reported = now
            self.progress.say(self._standing())

    def _standing(self) -> str:
        return "rounds made: " + " ".join(str(one.made) for one in self.made.values())

    # What is left

    def _traces(self) -> list[MemberTrace]:
        children = self.supervisor.children
        return [
            read_member(
                name,
                self.ring[name].address,
                self.plan.home(name),
                outage=self._outages[name],
                killed=tuple(self._killed[name]),
                restarts=children[name].restarts,
            )
            for name in self.plan.members
        ]
