"""A swarm of real processes on one machine. Every member is killed once, and the bucket disappears for a while."""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from engines.runtime import torch_environment
from localnet.base_model import base_model_process, wait_for_folder
from localnet.network import ProgressPrinter, Stop, resident
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
from protocol.waits import wait_for
from runtime.supervisor import Child, Supervisor
from storage.s3 import Bucket
from swarm.exchange import BucketExchange

_POLL_SECONDS, _REPORT_SECONDS, _MEMORY_SECONDS = 0.25, 8.0, 2.0
_READY_SECONDS = 120.0
_S3 = "s3"


class SwarmRun:
    """One run of a plan; `run` leaves no process behind."""

    def __init__(self, plan: SwarmPlan) -> None:
        self.plan, self.ring = plan, KeyRing(plan.root / "keys")
        self.stop, self.progress = Stop(), ProgressPrinter()
        self.supervisor = Supervisor(self.progress.notice)
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
            base = self._base_model()
            write_plan(self.plan, base, self.ring)
            for name in self.plan.members:
                self._start(
                    name, ["-m", "cli.main", "swarm", "run", "--config", str(self.plan.home(name) / "member.json")]
                )
            self.say(f"{len(self.plan.members)} members, {self.plan.rounds} rounds each")
            self._follow()
            return self._traces(), read_bucket(BucketExchange(Bucket(self.plan.s3_settings)), swarm_document())
        finally:
            self.say("stopping everything")
            self.supervisor.stop()

    def say(self, text: str) -> None:
        self.events.append((round(self.progress.seconds, 1), text))
        self.progress.say(text)

    # Processes

    def _start(self, name: str, argv: list[str]) -> Child:
        env = dict(os.environ) | torch_environment() | {"PYTHONUNBUFFERED": "1"}
        stage = 0 if name == _S3 else 1
        return self.supervisor.start(Child(name, [sys.executable, "-P", *argv], self.plan.log(name), env, stage=stage))

    def _start_storage(self) -> None:
        plan = self.plan
        argv = ["-m", "localnet.services.s3", "--data", str(plan.home(_S3)), "--port", str(plan.s3_port)]
        child = self._start(_S3, [*argv, "--bucket", plan.s3_settings.bucket, "--with-parent"])
        self._wait("the bucket", lambda: "READY" in child.said(), _READY_SECONDS)

    def _base_model(self) -> Path:
        plan = self.plan
        path = plan.root / "pool.json"
        write_atomic(path, pool_config(plan.seed, plan.rounds).canonical())
        process = self.supervisor.start(base_model_process(path, plan.seed, plan.log("base-model")))
        return wait_for_folder(process, self._check, self.progress.say)

    def _check(self) -> None:
        self.stop.check()
        self.supervisor.check()

    def _wait(self, what: str, ready: Callable[[], bool], seconds: float) -> None:
        def alive() -> bool:
            self._check()
            return ready()

        wait_for(what, alive, timeout=seconds, hint=f"see {self.plan.root / 'logs'}")

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
        self._wait("the members to end their rounds", lambda: all(one.finished for one in members), _READY_SECONDS)

    def _look(self) -> bool:
        """Whether there is nothing more to see."""
        self._check()
        self.made = {name: RoundsMade.of(self.plan.home(name)) for name in self.plan.members}
        if self.phase is not SwarmPhase.AFTER or not self._all_killed(SwarmPhase.AFTER):
            return False
        least = {name: max(self.plan.rounds, made + LAST) for name, made in self._marks.items()}
        return all(one.made >= least[name] for name, one in self.made.items())

    def _turn(self) -> None:
        """The bucket goes, and comes back after a while: once everybody has made a round without it."""
        since, made = time.monotonic() - self._since, self.made.items()
        if not self._all_killed(self.phase):
            return
        if self.phase is SwarmPhase.BEFORE and all(one.made >= FIRST for _, one in made):
            self._lose_bucket()
        alone = all(one.alone_since(self._marks[name]) for name, one in made)
        if self.phase is SwarmPhase.DURING and alone and since >= self.plan.outage:
            self._bring_bucket_back(since)

    def _lose_bucket(self) -> None:
        child = self.supervisor.children[_S3]
        child.finished = True  # nobody starts it again
        child.end(0)
        for name, outage in self._outages.items():
            outage.made_at_start = self.made[name].made
        self._enter(SwarmPhase.DURING, "✂ the bucket is gone")

    def _bring_bucket_back(self, seconds: float) -> None:
        for name, outage in self._outages.items():
            outage.made_at_end, outage.waiting = self.made[name].made, unsent_rounds(self.plan.home(name))
        self.outage_seconds = seconds
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
        return [
            read_member(
                name, self.ring[name].address, self.plan.home(name), self._outages[name], self._killed[name],
                self.supervisor.children[name].restarts,
            )
            for name in self.plan.members
        ]  # fmt: skip
