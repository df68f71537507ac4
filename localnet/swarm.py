"""A swarm of eight on this machine: `python -m localnet.swarm`, or `make swarm`.

Real members with the demo's model and a local bucket that checks signatures. Each is killed once (`kill -9`), and the
bucket is gone for a minute. Says whether nobody stopped and nothing was trained twice; exits with 1 if not. The run's
folder has the numbers in `report.json`.
"""

import argparse
import json
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import cycle
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from localnet.base_model import base_model_process, wait_for_folder
from localnet.network import Processes, ProgressPrinter, Stop, resident
from localnet.onboarding import KeyRing
from localnet.plan import DEMO_ENVIRONMENT, RunFolder, new_run_folder, pool_config
from localnet.ports import claim_port
from protocol.config import AdamWConfig, EnvironmentConfig, OptimizerConfig, ScheduleConfig, TrainConfig
from protocol.errors import MusterError
from protocol.files import write_atomic
from runtime.entry import run_main
from storage.s3 import Bucket, S3Settings
from swarm.config import MeasuringConfig, MixConfig, SwarmMemberConfig
from swarm.envelope import SwarmDocument, open_envelope
from swarm.exchange import BucketExchange, Exchange
from swarm.state import JOURNAL, measured, read_journal
from trainer.model.tiny_model import END_OF_THOUGHT, tiny_model_config

_FIRST, _LAST = 2, 2  # rounds that everybody makes before the bucket goes, and after it is back
_POLL_SECONDS, _REPORT_SECONDS = 0.25, 8.0
_READY_SECONDS = 120.0
_COLUMNS: tuple[str, ...] = (
    "member", "rounds", "alone", "own", "shared", "sent", "waited", "taken", "held-out reward", "killed",
)  # fmt: skip


# What the run consists of


class SwarmPhase(StrEnum):
    """Of the run, as the bucket is there or not."""

    BEFORE = "before the outage"
    DURING = "in the outage"
    AFTER = "after the outage"


class Kill(NamedTuple):
    """A member is killed so many `seconds` after the beginning of a phase, or later: once it has made a round."""

    phase: SwarmPhase
    seconds: float


@dataclass(frozen=True)
class SwarmPlan(RunFolder):
    """At least `rounds` of each of `members`, `pace` seconds apart or more, with the bucket gone for `outage` seconds
    and until everybody has made a round without it. Each phase must be over within `limit` seconds."""

    seed: int
    s3_port: int
    members: tuple[str, ...]
    rounds: int = 10
    pace: float = 12.0
    outage: float = 60.0
    limit: float = 600.0
    problems: int = 128  # on which each member is measured before its first round and after every few

    @property
    def storage(self) -> S3Settings:
        return self.s3_settings(self.s3_port, "swarm")

    @property
    def kills(self) -> dict[str, Kill]:
        """Every member once, a third of them in each phase, at moments that follow from the seed."""
        random = Random(self.seed)
        longest = {SwarmPhase.BEFORE: self.pace, SwarmPhase.DURING: self.outage / 2, SwarmPhase.AFTER: self.pace}
        turns = zip(self.members, cycle(longest), strict=False)
        return {name: Kill(phase, round(random.uniform(0, longest[phase]), 1)) for name, phase in turns}


def swarm_document() -> SwarmDocument:
    """Three kinds of sums: the demo's, on which its model was warmed up, shorter ones, and such of either sign."""
    few = {"min_digits": 1, "max_digits": 1, "score_threshold": 1.0}
    kinds = {
        "two": {"min_terms": 2, "max_terms": 2},
        "signed": {"min_terms": 3, "max_terms": 3, "allow_negation": True},
    }
    others = [
        EnvironmentConfig(name=DEMO_ENVIRONMENT.name, label=label, params=params | few)
        for label, params in kinds.items()
    ]
    return SwarmDocument(
        name="demo swarm", environments=(DEMO_ENVIRONMENT, *others), answer_after=END_OF_THOUGHT, groups=12, samples=12,
        text_bytes=512,
    )  # fmt: skip


def write_plan(plan: SwarmPlan, base: Path, ring: KeyRing) -> None:
    """Write the document, and the configuration of every member, who trains the weights in `base`, into its home."""
    document = plan.root / "swarm.json"
    document.write_text(swarm_document().model_dump_json(indent=1))
    schedule = ScheduleConfig(warmup_updates=0)
    optimizer = OptimizerConfig(method=AdamWConfig(learning_rate=1.5e-4), schedule=schedule)
    for name in plan.members:
        values = {
            "home": plan.home(name),
            "document": document,
            "model": tiny_model_config().model_copy(update={"source": str(base)}),
            "key": ring[name].reference(),
            "s3": plan.storage,
            "members": [ring[other].address for other in plan.members],
            "mix": MixConfig(own=6, shared=6),
            "max_prompt_tokens": 96,
            "train": TrainConfig(steps=1000, files_per_step=1, minibatches=2, optimizer=optimizer),
            "evaluation": MeasuringConfig(every=max(1, plan.rounds // 2), problems=plan.problems),
            "round_seconds": plan.pace,
        }
        config = SwarmMemberConfig.model_validate(values)
        config.home.mkdir(parents=True, exist_ok=True)
        write_atomic(config.home / "member.json", config.model_dump_json(indent=1).encode() + b"\n", 0o600)


# What it leaves


@dataclass
class Member:
    """A member, as far as it has come. `lines`: of its journal; `killed`: the phase in which it was.

    Rounds that it had made when the bucket went and when it came back, and those whose envelopes waited then. Once it
    has ended: the training steps of its weights, by its newest checkpoint; breaches of others, by its record; rounds
    whose envelopes are still in its outbox."""

    name: str
    address: str
    home: Path
    lines: list[dict[str, Any]] = field(default_factory=list)
    killed: SwarmPhase | None = None
    made_at_start: int = 0
    made_at_end: int = 0
    waiting: tuple[int, ...] = ()
    steps: int = 0
    breaches: int = 0
    unsent: tuple[int, ...] = ()
    restarts: int = 0

    def look(self) -> None:
        """Read its journal."""
        self.lines = read_journal(self.home / JOURNAL)

    def outbox(self) -> tuple[int, ...]:
        """Return the rounds whose envelopes wait."""
        return tuple(sorted(int(path.stem) for path in (self.home / "outbox").glob("[0-9]*.json")))

    def end(self, restarts: int) -> None:
        """Read what it left."""
        from trainer.checkpoint import STATE, checkpoints  # brings torch, which nothing before the end needs

        self.look()
        self.unsent, self.restarts = self.outbox(), restarts
        if saved := checkpoints(self.home / "checkpoints"):
            state = json.loads((saved[-1] / STATE).read_bytes())["state"]
            self.steps = state["step"]
            self.breaches = sum(record["breaches"] for record in state["extra"]["inbox"]["records"].values())

    @property
    def made(self) -> int:
        return len(self.lines)

    def alone(self, since: int = 0) -> int:
        """Return in how many rounds it reached nobody, not counting its first `since`."""
        return sum(line["alone"] for line in self.lines if line["round"] >= since)

    @property
    def shared(self) -> list[str]:
        """Names of the others' groups that it trained on, as often as it did."""
        return [name for line in self.lines for name in line["shared"]]

    @property
    def own(self) -> int:
        return sum(line["own"] for line in self.lines)

    def report(self) -> dict[str, Any]:
        return {
            "name": self.name, "address": self.address, "rounds": self.made, "training_steps": self.steps,
            "alone": self.alone(), "own_groups": self.own, "shared_groups": len(self.shared),
            "rounds_without_bucket": self.made_at_end - self.made_at_start, "envelopes_that_waited": self.waiting,
            "killed": self.killed, "restarts": self.restarts, "held_out": measured(self.lines),
        }  # fmt: skip


class BucketContents(NamedTuple):
    """What lies in the bucket. `envelopes`: (member, round) → how many; `groups`: names of the groups in them."""

    envelopes: Counter[tuple[str, int]]
    groups: frozenset[str]


def read_bucket(exchange: Exchange, swarm: SwarmDocument) -> BucketContents:
    """Raises MalformedEnvelope for what is none of this swarm, UnreachableError where the bucket is gone."""
    envelopes: Counter[tuple[str, int]] = Counter()
    groups: set[str] = set()
    for entry in list(exchange.listed()):
        envelope = open_envelope(exchange.get(entry, swarm.envelope_bytes), swarm)
        envelopes[envelope.member, envelope.round] += 1
        groups |= {f"{envelope.member}/{envelope.round}/{group.slot}" for group in envelope.groups}
    return BucketContents(envelopes, frozenset(groups))


class Fact(NamedTuple):
    """One line of the outcome, and whether it is as it should be."""

    text: str
    good: bool


def facts(plan: SwarmPlan, members: Sequence[Member], contents: BucketContents) -> Iterator[Fact]:
    """Nobody stopped, nothing was trained twice, and what was shared arrived."""
    # Nobody stopped.
    broken = [member.name for member in members if [line["round"] for line in member.lines] != list(range(member.made))]
    short = [member.name for member in members if member.made < plan.rounds]
    rounds_made = sum(member.made for member in members)
    yield _all(f"every member made {plan.rounds} rounds or more, each once; {rounds_made} in all", [*short, *broken])
    alive = [member.name for member in members if member.killed is None or member.restarts < 1]
    times = Counter(member.killed for member in members)
    when = ", ".join(f"{times[phase]} {phase}" for phase in SwarmPhase if times[phase])
    yield _all(f"{len(members)} members were killed once and came back ({when})", alive)
    stood = [member.name for member in members if member.made_at_end <= member.made_at_start]
    rounds_made = sum(member.made_at_end - member.made_at_start for member in members)
    yield _all(f"without the bucket every member went on, {rounds_made} rounds in all", stood)
    never = [member.name for member in members if not member.alone()]
    yield _all(f"{sum(member.alone() for member in members)} rounds were made alone, some by everybody", never)

    # Nothing twice.
    again = [member.name for member in members if member.steps != member.made]
    yield _all("each member's weights were trained in as many steps as it made rounds", again)
    twice = [
        f"{member.name} {name}" for member in members for name, times in Counter(member.shared).items() if times > 1
    ]
    yield _all("no member trained on a group twice", twice)
    own = [member.name for member in members for name in member.shared if name.startswith(f"{member.address}/")]
    yield _all("no member took its own groups for others'", own)
    double = [f"round {number} of {member}" for (member, number), count in contents.envelopes.items() if count > 1]
    yield _all(f"{len(contents.envelopes)} envelopes, no two of one member and round", double)
    blaming = [member.name for member in members if member.breaches]
    yield _all("nobody found anybody out", blaming)

    # What was shared arrived.
    trained = Counter(name for member in members for name in member.shared)
    unknown = sorted(set(trained) - contents.groups)
    yield _all("every group of others that was trained on lies signed in the bucket", unknown)
    lonely = [member.name for member in members if not member.shared]
    yield _all(f"every member trained on others' groups, {trained.total()} times in all", lonely)
    takers = Counter(name.partition("/")[0] for name in trained)
    ignored = [member.name for member in members if not takers[member.address]]
    yield _all(f"every member's groups were taken by others, {len(trained)} of {len(contents.groups)} groups", ignored)
    waited = [(member, number) for member in members for number in member.waiting]
    lost = [
        f"{member.name} round {number}" for member, number in waited if not contents.envelopes[member.address, number]
    ]
    left = [f"{member.name} round {number}" for member in members for number in member.unsent]
    yield _all(f"the {len(waited)} envelopes that waited for the bucket were sent", [*lost, *left], bool(waited))


def _all(text: str, exceptions: Sequence[str], good: bool = True) -> Fact:
    """True without exceptions, the first of which are named."""
    if not exceptions:
        return Fact(text, good)
    more = f" and {len(exceptions) - 4} more" if len(exceptions) > 4 else ""
    return Fact(f"{text}: not so for {', '.join(exceptions[:4])}{more}", False)


def table(members: Sequence[Member], contents: BucketContents) -> list[str]:
    """A line for each member."""
    taken = Counter(name.partition("/")[0] for member in members for name in member.shared)
    sent = Counter(member for member, _ in contents.envelopes)
    rows = [_COLUMNS]
    for member in members:
        rewards = " → ".join(f"{reward:.3f}" for _, reward in measured(member.lines)) or "not measured"
        numbers = (member.made, member.alone(), member.own, len(member.shared), sent[member.address])
        more = (len(member.waiting), taken[member.address])
        rows.append((member.name, *map(str, numbers), *map(str, more), rewards, member.killed or ""))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


# The run


class SwarmRun:
    """One run of a plan; `run` leaves no process behind."""

    def __init__(self, plan: SwarmPlan) -> None:
        self.plan, self.ring = plan, KeyRing(plan.root / "keys")
        self.progress = ProgressPrinter()
        self.say = self.progress.say
        self.processes = Processes(plan, self.progress.notice, Stop())
        self.supervisor = self.processes.supervisor
        self.members = [Member(name, self.ring[name].address, plan.home(name)) for name in plan.members]
        self.phase, self._since, self._reported = SwarmPhase.BEFORE, 0.0, 0.0
        self._marks = dict.fromkeys(plan.members, 0)  # rounds made when the phase began, or at the kill in it
        self.outage_seconds, self.peak_memory = 0.0, 0.0

    def run(self) -> BucketContents:
        """Run to the last member's last round; return what is left. Raise MusterError if a phase takes too long."""
        try:
            self._start_storage()
            plan, path = self.plan, self.plan.root / "pool.json"
            write_atomic(path, pool_config(plan.seed, plan.rounds).canonical())
            process = self.supervisor.start(base_model_process(path, plan.seed, plan.log("base-model")))
            write_plan(plan, wait_for_folder(process, self.processes.check, self.say), self.ring)
            for name in plan.members:
                config = plan.home(name) / "member.json"
                self.processes.start(name, ["-m", "cli.main", "swarm", "run", "--config", str(config)])
            self.say(f"{len(plan.members)} members, {plan.rounds} rounds each")
            self._follow()
            for member in self.members:
                member.end(self.supervisor.children[member.name].restarts)
            return read_bucket(BucketExchange(Bucket(plan.storage)), swarm_document())
        finally:
            self.say("stopping everything")
            self.supervisor.stop()

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
        enough = all(member.made >= max(self.plan.rounds, self._marks[member.name] + _LAST) for member in self.members)
        return self.phase is SwarmPhase.AFTER and self._all_killed() and enough

    def _turn(self) -> None:
        """The bucket goes, and comes back after a while: once everybody has made a round without it."""
        if not self._all_killed():
            return
        if self.phase is SwarmPhase.BEFORE and all(member.made >= _FIRST for member in self.members):
            child = self.supervisor.children["s3"]
            child.finished = True  # nobody starts it again
            child.end(0)
            for member in self.members:
                member.made_at_start = member.made
            self._enter(SwarmPhase.DURING, "✂ the bucket is gone")
            return
        passed = time.monotonic() - self._since
        alone = all(member.alone(self._marks[member.name]) for member in self.members)
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
        kills = self.plan.kills
        return all(member.killed for member in self.members if kills[member.name].phase is self.phase)

    def _kill(self) -> None:
        passed, kills = time.monotonic() - self._since, self.plan.kills
        for member in self.members:
            phase, seconds = kills[member.name]
            due = phase is self.phase and passed >= seconds and member.made and not member.killed
            if due and self.supervisor.children[member.name].pid is not None:
                self.say(f"✂ kill -9 {member.name} after {member.made} rounds, {self.phase}")
                self.supervisor.kill(member.name)
                member.killed, self._marks[member.name] = self.phase, member.made

    def _report(self) -> None:
        if time.monotonic() - self._reported >= _REPORT_SECONDS:
            self._reported = time.monotonic()
            pids = [child.pid for child in self.supervisor.children.values() if child.pid is not None]
            self.peak_memory = max(self.peak_memory, sum(map(resident, pids)))
            self.say(self._standing())

    def _standing(self) -> str:
        return "rounds made: " + " ".join(str(member.made) for member in self.members)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m localnet.swarm", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--runs", type=Path, default=Path("build/swarm"), help="where runs are kept")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--members", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=SwarmPlan.rounds)
    parser.add_argument("--pace", type=float, default=SwarmPlan.pace, help="least seconds of a round")
    parser.add_argument("--outage", type=float, default=SwarmPlan.outage, help="seconds without the bucket")
    parser.add_argument("--problems", type=int, default=SwarmPlan.problems, help="held-out ones")
    options = parser.parse_args()
    plan = SwarmPlan(
        new_run_folder(options.runs.resolve(), options.seed), options.seed, claim_port(),
        tuple(f"member-{number}" for number in range(1, options.members + 1)),
        options.rounds, options.pace, options.outage, problems=options.problems,
    )  # fmt: skip
    run = SwarmRun(plan)
    contents = run.run()
    facts_found, times = list(facts(plan, run.members, contents)), os.times()
    good = all(fact.good for fact in facts_found)
    numbers = {
        "seconds": round(run.progress.seconds, 1),
        "cpu_seconds": round(times.children_user + times.children_system + times.user + times.system, 1),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "peak_memory_mib": round(run.peak_memory),
        "outage_seconds": round(run.outage_seconds, 1),
    }
    report = {
        "seed": plan.seed, "rounds": plan.rounds, "pace": plan.pace, **numbers, "good": good,
        "facts": [fact._asdict() for fact in facts_found], "members": [member.report() for member in run.members],
    }  # fmt: skip
    path = plan.root / "report.json"
    write_atomic(path, json.dumps(report, indent=1).encode() + b"\n")
    spent = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in numbers.items())
    lines = [f"{'yes' if fact.good else 'NO '} {fact.text}" for fact in facts_found]
    print("\n".join([*table(run.members, contents), *lines, spent, f"numbers: {path}"]))
    return 0 if good else 1


if __name__ == "__main__":
    run_main(main)
