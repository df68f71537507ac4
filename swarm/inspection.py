"""Checking a peer's envelope: what can be recomputed is recomputed, nothing is believed."""

import math
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from environments.pool import TextEnvironments
from protocol.errors import ScoringUnavailable
from swarm.envelope import (
    Envelope,
    EnvelopeLimits,
    MalformedEnvelope,
    SharedGroup,
    open_envelope,
    question_digest,
    round_problem,
)
from swarm.sampling import Breach, Offer

Allow = Callable[[Envelope], float]
"""Returns how many seconds may be spent on an opened envelope, or raises to refuse it."""


@dataclass(frozen=True)
class InspectedGroup:
    """A shared group that is true: what sampling needs to know of it, its problem and its texts."""

    offer: Offer
    problem_seed: int
    group: SharedGroup


@dataclass(frozen=True)
class Inspected:
    """An inspected envelope: its groups, all true; or none, the breach that refused it, and `where` that was."""

    envelope: Envelope
    groups: tuple[InspectedGroup, ...]
    breach: Breach | None = None
    where: str = ""


class NotRead(MalformedEnvelope):
    """A well-formed `envelope` whose groups need not be inspected."""

    def __init__(self, envelope: Envelope, why: str) -> None:
        super().__init__(why)
        self.envelope = envelope


class Inspector:
    """Opens envelopes of one swarm; those of `members`, or with none named those of everybody."""

    def __init__(
        self, limits: EnvelopeLimits, environments: TextEnvironments, members: Collection[str] = frozenset()
    ) -> None:
        self.limits, self._environments, self._members = limits, environments, frozenset(members)
        self._document = bytes.fromhex(limits.document)

    def inspect(self, data: bytes, allow: Allow = lambda _: math.inf) -> Inspected:
        """Open an envelope and recompute its problems and rewards.

        Raise MalformedEnvelope for what blames nobody: bytes that are no envelope, or, as NotRead, an envelope of a
        stranger. Raise ScoringUnavailable if this machine cannot score now, or not within the allowed time."""
        envelope = open_envelope(data, self.limits)
        if self._members and envelope.member not in self._members:
            raise NotRead(envelope, f"{envelope.member} is no member of this swarm")
        seconds = allow(envelope)
        deadline = time.monotonic() + seconds
        inspected: list[InspectedGroup] = []

        def check_time() -> None:
            if time.monotonic() >= deadline:
                raise ScoringUnavailable(f"{len(inspected)} of {len(envelope.groups)} groups took {seconds:g} s")

        for group in envelope.groups:
            result = self._inspect_group(envelope, group, check_time)
            if not isinstance(result, InspectedGroup):
                return Inspected(envelope, (), *result)  # a member that lies about one group is not read further
            inspected.append(result)
        return Inspected(envelope, tuple(inspected))

    def _inspect_group(
        self, envelope: Envelope, group: SharedGroup, check_time: Callable[[], None]
    ) -> InspectedGroup | tuple[Breach, str]:
        seed = round_problem(self._document, envelope.member, envelope.round, group.slot)
        name = self._environments.name(seed)
        where = f"round {envelope.round}, slot {group.slot} ({name})"
        if group.question != question_digest(self._environments.problem(seed).question):
            return Breach.OTHER_PROBLEM, where
        rewards = []
        for index, completion in enumerate(group.completions):
            check_time()
            reward = self._environments.score(seed, completion.text)
            if reward != completion.reward:
                return Breach.FALSE_REWARD, f"{where}, completion {index}: {completion.reward}, it is {reward}"
            rewards.append(reward)
        return InspectedGroup(Offer(envelope.member, envelope.round, group.slot, name, tuple(rewards)), seed, group)
