"""A swarm of real processes on one machine. Every member is killed once, and the bucket disappears for a while."""

import time

from localnet.base_model import base_model_process, wait_for_folder
from localnet.network import Processes, ProgressPrinter, Stop, resident
from localnet.onboarding import KeyRing
from localnet.plan import pool_config
from localnet.swarm.outcome import BucketContents, Member, read_bucket
from localnet.swarm.plan import FIRST, LAST, SwarmPhase, SwarmPlan, swarm_document, write_plan
from protocol.errors import MusterError
from protocol.files import write_atomic
from storage.s3 import Bucket
from swarm.exchange import BucketExchange

_POLL_SECONDS, _REPORT_SECONDS = 0.25, 8.0
_READY_SECONDS = 120.0


class SwarmRun:
    """One run of a plan; `run` leaves no process behind."""

    def __init__(self, plan: SwarmPlan) -> None:
        self.plan, self.ring = plan, KeyRing(plan.root / "keys")
        self.progress = ProgressPrinter()
        self.processes = Processes(plan, self.progress.notice, Stop())
        self.supervisor = self.processes.supervisor
        self.members = [Member(name, self.ring[name].address, plan.home(name)) for name in plan.members]
        self.events: list[tuple[float, str]] = []
        self.phase, self._since, self._reported = SwarmPhase.BEFORE, 0.0, 0.0
        self._marks = dict.fromkeys(plan.members, 0)  # rounds made when the phase began, or at the kill in it
        self.outage_seconds, self.peak_memory = 0.0, 0.0

    def run(self) -> tuple[list[Member], BucketContents]:
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
            for member in self.members:
                member.end(self.supervisor.children[member.name].restarts)
            return self.members, read_bucket(BucketExchange(Bucket(plan.storage)), swarm_document())
        finally:
            self.say("stopping everything")
            self.supervisor.stop()

    def say(self, text: str) -> None:
        self.events.append((round(self.progress.seconds, 1), text))
        self.progress.say(text)

    def _start_storage(self) -> None:
        self.processes.start_storage(self.plan.storage)
        self.processes.wait_ready("s3", _READY_SECONDS)

    def _follow(self) -> None:
        """Until all have made their rounds, and were told to end. A phase that lasts too long is an error."""
        self._since = time.monotonic()
        while not self._over():
            self._kill()
            self._turn()
            self._report()
            if time.monotonic() - self._since > self.plan.limit:
                what = f"{self.plan.limit:.0f} s {self.phase}, and {self._standing()}"
                raise MusterError(what, f"see {self.plan.root / 'logs'}")
            time.sleep(_POLL_SECONDS)
        self.say(f"enough; {self._standing()}")
        children = [self.supervisor.children[name] for name in self.plan.members]
        for child in children:
            child.terminate()
        what = "the members to end their rounds"
        self.processes.wait(what, lambda: all(child.finished for child in children), children[0].name, _READY_SECONDS)

    def _over(self) -> bool:
        """Look at the members; return whether there is nothing more to see."""
        self.processes.check()
        for member in self.members:
            member.look()
        enough = all(member.made >= max(self.plan.rounds, self._marks[member.name] + LAST) for member in self.members)
        return self.phase is SwarmPhase.AFTER and self._all_killed() and enough

    def _turn(self) -> None:
        """The bucket goes, and comes back after a while: once everybody has made a round without it."""
        if not self._all_killed():
            return
        if self.phase is SwarmPhase.BEFORE and all(member.made >= FIRST for member in self.members):
            child = self.supervisor.children["s3"]
            child.finished = True  # nobody starts it again
            child.end(0)
            for member in self.members:
                member.made_at_start = member.made
            self._enter(SwarmPhase.DURING, "✂ the bucket is gone")
            return
        passed, alone = (
            time.monotonic() - self._since,
            all(member.alone(self._marks[member.name]) for member in self.members),
        )
        if self.phase is SwarmPhase.DURING and alone and passed >= self.plan.outage:
            for member in self.members:
                member.made_at_end, member.waiting = member.made, member.outbox()
            self.outage_seconds = passed
            self._start_storage()
            self._enter(SwarmPhase.AFTER, "the bucket is back")

    def _enter(self, phase: SwarmPhase, text: str) -> None:
        self.phase, self._since = phase, time.monotonic()
        self._marks = {member.name: member.made for member in self.members}
        self.say(f"{text}; {self._standing()}")

    def _all_killed(self) -> bool:
        """Whether everybody was who is to be killed in this phase."""
        due = {kill.member for kill in self.plan.kills if kill.phase is self.phase}
        return all(member.killed for member in self.members if member.name in due)

    def _kill(self) -> None:
        passed = time.monotonic() - self._since
        due = {kill.member for kill in self.plan.kills if kill.phase is self.phase and passed >= kill.seconds}
        for member in self.members:
            if (
                member.name not in due
                or member.killed
                or not member.made
                or self.supervisor.children[member.name].pid is None
            ):
                continue
            self.say(f"✂ kill -9 {member.name} after {member.made} rounds, {self.phase}")
            self.supervisor.kill(member.name)
            member.killed, self._marks[member.name] = (self.phase,), member.made

    def _report(self) -> None:
        if time.monotonic() - self._reported >= _REPORT_SECONDS:
            self._reported = time.monotonic()
            pids = [child.pid for child in self.supervisor.children.values() if child.pid is not None]
            self.peak_memory = max(self.peak_memory, sum(map(resident, pids)))
            self.progress.say(self._standing())

    def _standing(self) -> str:
        return "rounds made: " + " ".join(str(member.made) for member in self.members)
