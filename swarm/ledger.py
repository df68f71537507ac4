"""Who contributed what to a swarm, from bucket and chain alone: every envelope is judged anew, nothing is believed.

What others took of it stands in no bucket: a member's journal is its own. Of the homes that are given it is added."""

import re
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from environments.texts import TextEnvironments
from protocol.errors import IntegrityError, MusterError, UnreachableError
from protocol.swarm.envelope import EnvelopeLimits, MalformedEnvelope, open_envelope
from protocol.swarm.record import Breach
from protocol.swarm.seeds import NO_START
from storage.keys import KEY_PATTERN, MissingObjectError
from swarm.exchange import Exchange
from swarm.inspection import Inspected, Inspector

_KEY = re.compile(KEY_PATTERN)
_AT_ONCE, _AT_ONCE_BYTES = 256, 32 << 20
"""Envelopes, and bytes of them, whose signers the chain is asked about together."""


@dataclass(frozen=True)
class MemberStanding:
    """Where a key stands. `start`: what its problems follow from, None of who never joined, or so lately that it is not
    fixed; `stake` in grains; `recorded`: the first round that no root of it on chain covers."""

    word: str
    start: bytes | None
    stake: int = 0
    recorded: int = 0


StandingsOf = Callable[[Sequence[str]], dict[str, MemberStanding]]
"""Asks about these addresses; who is left out is a stranger. Raises MusterError."""


@dataclass
class MemberContribution:
    """What one member shared. `rewards`: round → mean reward of the completions of its true groups. Of the members
    whose homes were given: how often they `trained` on its groups, found them `unfit` or `doubted` them; `made`: round
    → reward of its own groups, and `held_out`: (rounds trained, reward), where its own home is among these."""

    standing: MemberStanding
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
    """`members`: by address. `refused`: what is no envelope of a member; `unjudged`: what could not be looked at now.
    `whole`: whether everything that lies there was looked at."""

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


class LedgerReader:
    """Reads an exchange once. `texts` score on this machine."""

    def __init__(self, limits: EnvelopeLimits, texts: TextEnvironments, standings: StandingsOf) -> None:
        self._limits, self._ask = limits, standings
        self._standings: dict[str, MemberStanding] = {}
        self._inspector = Inspector(limits, texts, self._is_member, self._start_of)
        self._first: dict[tuple[str, int], str] = {}

    def read(self, exchange: Exchange, most: int, seconds: float) -> SwarmLedger:
        """Of at most so many envelopes, for about so long. Raises MusterError where exchange or chain is gone."""
        ledger, until = SwarmLedger(), time.monotonic() + seconds
        keys = filter(_KEY.fullmatch, exchange.keys())
        listed = list(islice(_before(until, keys), most + 1))
        ledger.whole = len(listed) <= most and time.monotonic() < until
        # In one order wherever a listing begins: of two envelopes of a round the same one counts.
        for part in self._parts(exchange, sorted(listed[:most]), ledger, until):
            fresh = {member for _, _, member in part} - self._standings.keys()
            self._standings |= self._ask(sorted(fresh)) if fresh else {}
            for key, data, _ in part:
                self._judge(key, data, ledger, until)
        return ledger

    def _parts(
        self, exchange: Exchange, keys: Sequence[str], ledger: SwarmLedger, until: float
    ) -> Iterator[list[tuple[str, bytes, str]]]:
        part: list[tuple[str, bytes, str]] = []
        for key in keys:
            if time.monotonic() >= until:
                ledger.whole = False
                break
            ledger.envelopes += 1
            try:
                data = exchange.get(key, self._limits.file_bytes)
                part.append((key, data, open_envelope(data, self._limits).member))
            except (MalformedEnvelope, IntegrityError, MissingObjectError):
                ledger.refused += 1
            except UnreachableError:
                raise
            except MusterError:
                # Of this one object: whoever may write there must not hide all others.
                ledger.unjudged += 1
            if len(part) == _AT_ONCE or sum(len(data) for _, data, _ in part) >= _AT_ONCE_BYTES:
                yield part
                part = []
        yield part

    def _judge(self, key: str, data: bytes, ledger: SwarmLedger, until: float) -> None:
        try:
            found = self._inspector.inspect(data, lambda _: max(0.0, until - time.monotonic()))
        except MalformedEnvelope:
            ledger.refused += 1
            return
        except MusterError:
            ledger.unjudged += 1
            return
        member = found.envelope.member
        one = ledger.members.setdefault(member, MemberContribution(self._standings[member]))
        if self._first.setdefault((member, found.envelope.round), key) != key:
            one.breaches[Breach.TWO_ENVELOPES.value] += 1
        elif found.breach is not None:
            one.breaches[found.breach.value] += 1
        else:
            _count(one, found, len(data))

    def _is_member(self, address: str) -> bool:
        return address in self._standings and self._standings[address].start is not None

    def _start_of(self, address: str) -> bytes:
        return self._standings[address].start or NO_START


def friends(members: Sequence[str]) -> StandingsOf:
    """Of a swarm that no chain knows; () is everybody."""
    return lambda asked: {one: MemberStanding("friend", NO_START) for one in asked if not members or one in members}


def _count(one: MemberContribution, found: Inspected, size: int) -> None:
    rewards = [reward for group in found.groups for reward in group.offer.rewards]
    one.groups += len(found.groups)
    one.completions += len(rewards)
    one.bytes += size
    one.rewards[found.envelope.round] = round(statistics.fmean(rewards), 6)


def _before(until: float, keys: Iterator[str]) -> Iterator[str]:
    for key in keys:
        if time.monotonic() >= until:
            return
        yield key
