"""What a swarm's run leaves on disk and in the bucket: journals, checkpoints, envelopes."""

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from localnet.swarm.plan import SwarmPhase
from swarm.envelope import SwarmDocument, open_envelope
from swarm.exchange import Exchange
from swarm.state import JOURNAL, measured, read_journal


@dataclass
class Outage:
    """Rounds that a member had made when the bucket went and when it came back, and rounds whose envelopes
    waited then."""

    made_at_start: int = 0
    made_at_end: int = 0
    waiting: tuple[int, ...] = ()


@dataclass(frozen=True)
class MemberTrace:
    """`lines`: of its journal. `steps`: training steps that its weights were trained in, by its newest checkpoint.
    `unsent`: rounds in its outbox. `breaches`: of others, by its record. `killed`: the phases in which it was."""

    name: str
    address: str
    lines: list[dict[str, Any]]
    steps: int
    unsent: tuple[int, ...] = ()
    breaches: int = 0
    outage: Outage = field(default_factory=Outage)
    killed: tuple[SwarmPhase, ...] = ()
    restarts: int = 0

    @property
    def shared(self) -> list[str]:
        """Names of the others' groups that it trained on, as often as it did."""
        return [name for line in self.lines for name in line["shared"]]

    @property
    def own(self) -> int:
        return sum(line["own"] for line in self.lines)

    @property
    def alone(self) -> int:
        return sum(line["alone"] for line in self.lines)

    @property
    def held_out(self) -> list[tuple[int, float]]:
        return measured(self.lines)

    def report(self) -> dict[str, Any]:
        return {
            "name": self.name, "address": self.address, "rounds": len(self.lines), "training_steps": self.steps,
            "alone": self.alone, "own_groups": self.own, "shared_groups": len(self.shared),
            "rounds_without_bucket": self.outage.made_at_end - self.outage.made_at_start,
            "envelopes_that_waited": self.outage.waiting, "killed": self.killed, "restarts": self.restarts,
            "held_out": self.held_out,
        }  # fmt: skip


@dataclass(frozen=True)
class BucketContents:
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


def read_member(name: str, address: str, home: Path, **seen: Any) -> MemberTrace:
    """A member that has ended, with what was `seen` of it while it ran."""
    from trainer.checkpoint import STATE, checkpoints  # brings torch, which nothing before the end needs

    steps = breaches = 0
    found = checkpoints(home / "checkpoints")
    if found:
        state = json.loads((found[-1] / STATE).read_bytes())["state"]
        steps = state["step"]
        breaches = sum(record["breaches"] for record in state["extra"]["inbox"]["records"].values())
    lines = read_journal(home / JOURNAL)
    return MemberTrace(name, address, lines, steps, unsent_rounds(home), breaches, **seen)


def unsent_rounds(home: Path) -> tuple[int, ...]:
    """Rounds whose envelopes wait in the outbox."""
    return tuple(sorted(int(path.stem) for path in (home / "outbox").glob("[0-9]*.json")))


@dataclass(frozen=True)
class RoundsMade:
    """How many rounds a member has made, and the numbers of those in which it reached nobody."""

    made: int = 0
    alone: tuple[int, ...] = ()

    @classmethod
    def of(cls, home: Path) -> "RoundsMade":
        lines = read_journal(home / JOURNAL)
        return cls(len(lines), tuple(line["round"] for line in lines if line["alone"]))

    def alone_since(self, made: int) -> bool:
        """Whether it has made a round alone after its first `made`."""
        return any(number >= made for number in self.alone)
