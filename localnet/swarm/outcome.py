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
        if found := checkpoints(self.home / "checkpoints"):
            state = json.loads((found[-1] / STATE).read_bytes())["state"]
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
        one = open_envelope(exchange.get(entry, swarm.envelope_bytes), swarm)
        envelopes[one.member, one.round] += 1
        groups |= {f"{one.member}/{one.round}/{group.slot}" for group in one.groups}
    return BucketContents(envelopes, frozenset(groups))


class Fact(NamedTuple):
    """One line of the outcome, and whether it is as it should be."""

    text: str
    good: bool


def facts(plan: SwarmPlan, members: Sequence[Member], contents: BucketContents) -> Iterator[Fact]:
    """Nobody stopped, nothing was trained twice, and what was shared arrived."""
    # Nobody stopped.
    broken = [one.name for one in members if [line["round"] for line in one.lines] != list(range(one.made))]
    short = [one.name for one in members if one.made < plan.rounds]
    made = sum(one.made for one in members)
    yield _all(f"every member made {plan.rounds} rounds or more, each once; {made} in all", [*short, *broken])
    planned = {one.member for one in plan.kills}
    alive = [one.name for one in members if one.name in planned and (len(one.killed) != 1 or one.restarts < 1)]
    times = Counter(phase for one in members for phase in one.killed)
    when = ", ".join(f"{times[phase]} {phase}" for phase in SwarmPhase if times[phase])
    yield _all(f"{len(planned)} members were killed once and came back ({when})", alive)
    stood = [one.name for one in members if one.made_at_end <= one.made_at_start]
    made = sum(one.made_at_end - one.made_at_start for one in members)
    yield _all(f"without the bucket every member went on, {made} rounds in all", stood)
    never = [one.name for one in members if not one.alone()]
    yield _all(f"{sum(one.alone() for one in members)} rounds were made alone, some by everybody", never)

    # Nothing twice.
    again = [one.name for one in members if one.steps != one.made]
    yield _all("each member's weights were trained in as many steps as it made rounds", again)
    twice = [f"{one.name} {name}" for one in members for name, times in Counter(one.shared).items() if times > 1]
    yield _all("no member trained on a group twice", twice)
    own = [one.name for one in members for name in one.shared if name.startswith(f"{one.address}/")]
    yield _all("no member took its own groups for others'", own)
    double = [f"round {number} of {member}" for (member, number), count in contents.envelopes.items() if count > 1]
    yield _all(f"{len(contents.envelopes)} envelopes, no two of one member and round", double)
    blaming = [one.name for one in members if one.breaches]
    yield _all("nobody found anybody out", blaming)

    # What was shared arrived.
    trained = Counter(name for one in members for name in one.shared)
    unknown = sorted(set(trained) - contents.groups)
    yield _all("every group of others that was trained on lies signed in the bucket", unknown)
    lonely = [one.name for one in members if not one.shared]
    yield _all(f"every member trained on others' groups, {trained.total()} times in all", lonely)
    takers = Counter(name.partition("/")[0] for name in trained)
    ignored = [one.name for one in members if not takers[one.address]]
    yield _all(f"every member's groups were taken by others, {len(trained)} of {len(contents.groups)} groups", ignored)
    waited = [(one, number) for one in members for number in one.waiting]
    lost = [f"{one.name} round {number}" for one, number in waited if not contents.envelopes[one.address, number]]
    left = [f"{one.name} round {number}" for one in members for number in one.unsent]
    yield _all(f"the {len(waited)} envelopes that waited for the bucket were sent", [*lost, *left], bool(waited))


def _all(text: str, exceptions: Sequence[str], good: bool = True) -> Fact:
    """True without exceptions, the first of which are named."""
    if not exceptions:
        return Fact(text, good)
    more = f" and {len(exceptions) - 4} more" if len(exceptions) > 4 else ""
    return Fact(f"{text}: not so for {', '.join(exceptions[:4])}{more}", False)


def table(members: Sequence[Member], contents: BucketContents) -> list[str]:
    """A line for each member."""
    taken = Counter(name.partition("/")[0] for one in members for name in one.shared)
    sent = Counter(member for member, _ in contents.envelopes)
    rows = [_COLUMNS]
    for one in members:
        rewards = " → ".join(f"{reward:.3f}" for _, reward in measured(one.lines)) or "not measured"
        numbers = (one.made, one.alone(), one.own, len(one.shared), sent[one.address])
        more = (len(one.waiting), taken[one.address])
        rows.append((one.name, *map(str, numbers), *map(str, more), rewards, ", ".join(one.killed)))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
