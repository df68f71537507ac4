"""Looking through what another member shared: what can be computed is computed again, nothing is believed."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from environments.pool import TextEnvironments
from protocol.errors import ScoringUnavailable
from protocol.swarm.envelope import (
    Envelope,
    EnvelopeLimits,
    MalformedEnvelope,
    SharedGroup,
    open_envelope,
    question_digest,
)
from protocol.swarm.record import Breach
from protocol.swarm.sampling import Offer
from protocol.swarm.seeds import round_problem

IsMember = Callable[[str], bool]
"""Whether an address takes part, so that its breaches cost it something."""
Allow = Callable[[Envelope], float]
"""How many seconds may be spent on an envelope that was opened."""


@dataclass(frozen=True)
class FoundGroup:
    """A shared group that is true: its problem, its texts, and what a policy of sampling needs to know."""

    offer: Offer
    problem_seed: int
    group: SharedGroup


@dataclass(frozen=True)
class Inspected:
    """What an envelope came to: its true groups, or none and the breach that refused all of it, with where it was."""

    envelope: Envelope
    groups: tuple[FoundGroup, ...]
    breach: Breach | None = None
    where: str = ""


class NotRead(MalformedEnvelope):
    """A whole envelope, `envelope`, whose groups nobody needs to look at."""

    def __init__(self, envelope: Envelope, why: str) -> None:
        super().__init__(why)
        self.envelope = envelope


class Inspector:
    """Opens envelopes of one swarm."""

    def __init__(
        self,
        limits: EnvelopeLimits,
        environments: TextEnvironments,
        is_member: IsMember,
    ) -> None:
        self.limits, self._environments = limits, environments
        self._is_member = is_member
        self._document = bytes.fromhex(limits.document)

    def inspect(self, data: bytes, allow: Allow = lambda _: math.inf) -> Inspected:
        """`allow` says how many seconds scoring may take, and may refuse an envelope by raising, before its groups are
        looked at. Raises MalformedEnvelope for what nobody answers for: what is no envelope, or, as NotRead, that of a
        stranger to the swarm or of one who left. Raises ScoringUnavailable where this machine cannot say now, or not in
        so many seconds; that is nobody's breach."""
        envelope = open_envelope(data, self.limits)
        if not self._is_member(envelope.member):
            raise NotRead(envelope, f"{envelope.member} is no member of this swarm")
        seconds = allow(envelope)
        deadline = time.monotonic() + seconds
        found: list[FoundGroup] = []

        def check() -> None:
            if time.monotonic() >= deadline:
                raise ScoringUnavailable(f"{len(found)} of {len(envelope.groups)} groups took {seconds:g} s")

        for group in envelope.groups:
            breach, where, one = self._group(envelope, group, check)
            if one is None:
                # Whoever lies about one group is not read further.
                return Inspected(envelope, (), breach, where)
            found.append(one)
        return Inspected(envelope, tuple(found))

    def _group(
        self, envelope: Envelope, group: SharedGroup, check: Callable[[], None]
    ) -> tuple[Breach | None, str, FoundGroup | None]:
        seed = round_problem(self._document, envelope.member, envelope.round, group.slot)
        name = self._environments.name(seed)
        where = f"round {envelope.round}, slot {group.slot} ({name})"
        if group.question != question_digest(self._environments.problem(seed).question):
            return Breach.OTHER_PROBLEM, where, None
        rewards = []
        for place, one in enumerate(group.completions):
            check()
            own = self._environments.score(seed, one.text)
            if own != one.reward:
                return Breach.FALSE_REWARD, f"{where}, completion {place}: {one.reward}, it is {own}", None
            rewards.append(own)
        offer = Offer(envelope.member, envelope.round, group.slot, name, tuple(rewards))
        return None, "", FoundGroup(offer, seed, group)
