"""Who contributed what to a swarm, from bucket and chain alone (`swarm/ledger_reader.py` reads them).

What others took of it stands in no bucket: a member's journal is its own. Of the homes that are given it is added."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from swarm.standings import MemberStanding


@dataclass
class MemberContribution:
    """What one member shared. `rewards`: round → mean reward of the completions of its true groups; `left_out`: signed
    envelopes of it that were not judged, being older than its share of those that are. Of the members whose homes were
    given: how often they `trained` on its groups, found them `unfit` or `doubted` them; `made`: round → reward of its
    own groups, and `held_out`: (rounds trained, reward), where its own home is among these."""

    standing: MemberStanding
    left_out: int = 0
    groups: int = 0
    completions: int = 0
    bytes: int = 0
    breaches: Counter[str] = field(default_factory=Counter)
    rewards: dict[int, float] = field(default_factory=dict)
    trained: int = 0
    unfit: int = 0
    doubted: int = 0
    took: int = 0
    made: dict[int, float] = field(default_factory=dict)
    held_out: list[tuple[int, float]] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        standing = {"standing": self.standing.word, "stake": self.standing.stake, "recorded": self.standing.recorded}
        kept = {name: value for name, value in vars(self).items() if name != "standing"}
        return {**standing, **kept, "breaches": dict(self.breaches), "rounds": len(self.rewards)}


@dataclass
class SwarmLedger:
    """`members`: by address. `envelopes`: how many were read; `refused`: what is no envelope of a member; `unjudged`:
    what could not be looked at now. `whole`: whether everything that lies there was judged."""

    members: dict[str, MemberContribution] = field(default_factory=dict)
    envelopes: int = 0
    refused: int = 0
    unjudged: int = 0
    whole: bool = True

    def document(self) -> dict[str, Any]:
        counts = {"envelopes": self.envelopes, "refused": self.refused, "unjudged": self.unjudged, "whole": self.whole}
        return {**counts, "members": {address: one.document() for address, one in sorted(self.members.items())}}

    def add_home(self, address: str, journal: Sequence[dict[str, Any]], status: dict[str, Any]) -> None:
        """What a member wrote down of itself, and of the groups that it took."""
        names = [name for line in journal for name in line["shared"]]
        for sharer, count in Counter(name.split("/")[0] for name in names).items():
            if sharer in self.members:
                self.members[sharer].trained += count
        for sharer, record in status.get("sharers", {}).items():
            if sharer in self.members:
                self.members[sharer].unfit += record["unfit"]
                self.members[sharer].doubted += record["doubted"]
        own = self.members.setdefault(address, MemberContribution(MemberStanding("shared nothing", None)))
        own.took += len(names)
        own.made = {line["round"]: line["reward"] for line in journal}
        own.held_out = [(trained, reward) for line in journal for trained, reward in line.get("held_out", ())]
