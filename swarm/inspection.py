"""Checking a peer's envelope: what can be recomputed is recomputed, nothing is believed."""

import math
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from environments.pool import TextEnvironments
from protocol.errors import ScoringUnavailable
from swarm.envelope import (
    Envelope,
    MalformedEnvelope,
    SharedGroup,
    SwarmDocument,
    open_envelope,
    question_digest,
    round_problem,
)
from swarm.sampling import Breach, Offer

Allow = Callable[[Envelope], float]  # returns the seconds that an opened envelope may take, or raises to refuse it


@dataclass(frozen=True)
class InspectedGroup(Offer):
    """A shared group that is true, with its problem and its texts."""

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
        self, swarm: SwarmDocument, environments: TextEnvironments, members: Collection[str] = frozenset()
    ) -> None:
        self.swarm, self._environments, self._members = swarm, environments, frozenset(members)

    def inspect(self, data: bytes, allow: Allow = lambda _: math.inf) -> Inspected:
        """Open an envelope and recompute its problems and rewards.

        Raise MalformedEnvelope for what blames nobody: bytes that are no envelope, or, as NotRead, an envelope of a
        stranger. Raise ScoringUnavailable if this machine cannot score now, or not within the allowed time."""
        envelope = open_envelope(data, self.swarm)
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
        seed = round_problem(self.swarm.digest, envelope.member, envelope.round, group.slot)
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
        return InspectedGroup(envelope.member, envelope.round, group.slot, tuple(rewards), seed, group)
