"""What a swarm's run leaves of its members and in the bucket, the facts that it must show, and its table."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from localnet.swarm.plan import SwarmPhase, SwarmPlan
from swarm.envelope import SwarmDocument, open_envelope
from swarm.exchange import Exchange
from swarm.state import JOURNAL, measured, read_journal

_COLUMNS: tuple[str, ...] = (
    "member", "rounds", "alone", "own", "shared", "sent", "waited", "taken", "held-out reward", "killed",
)  # fmt: skip


@dataclass
class Member:
    """A member, as far as it has come. `lines`: of its journal; `killed`: the phases in which it was.

    Rounds that it had made when the bucket went and when it came back, and those whose envelopes waited then. Once it
    has ended: the training steps of its weights, by its newest checkpoint; breaches of others, by its record; rounds
    whose envelopes are still in its outbox."""

    name: str
    address: str
    home: Path
    lines: list[dict[str, Any]] = field(default_factory=list)
    killed: tuple[SwarmPhase, ...] = ()
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
    planned = {kill.member for kill in plan.kills}
    alive = [
        member.name for member in members if member.name in planned and (len(member.killed) != 1 or member.restarts < 1)
    ]
    times = Counter(phase for member in members for phase in member.killed)
    when = ", ".join(f"{times[phase]} {phase}" for phase in SwarmPhase if times[phase])
    yield _all(f"{len(planned)} members were killed once and came back ({when})", alive)
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
        rows.append((member.name, *map(str, numbers), *map(str, more), rewards, ", ".join(member.killed)))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
