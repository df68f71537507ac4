"""Whose envelopes are looked through when: how fast a sharer's rounds go by, and how much of a round's time is its."""

import time

from protocol.errors import MusterError
from protocol.swarm.envelope import Envelope
from protocol.swarm.pace import Met, allowed_until
from swarm.config import MixConfig

PART = 0.25
"""Of a round's time for inspection, the most that one sharer's envelopes take."""


class Postponed(MusterError):
    """An envelope that is looked at in another round. Nobody is blamed."""


class SharersTurns:
    """In this process alone: one that was away for long has a new start with everybody."""

    def __init__(self, mix: MixConfig) -> None:
        self._mix = mix
        self._met: dict[str, Met] = {}
        self._spent: dict[str, float] = {}
        self._looking: tuple[str, float] | None = None

    def next_round(self) -> None:
        """Time is everybody's anew."""
        self._spent.clear()

    def begin(self, envelope: Envelope, number: int) -> float:
        """An envelope was opened in the receiver's round `number`: the seconds that scoring it may take. Raises
        Postponed for a sharer that has skipped more rounds than it may yet, since who skips picks its problems, and for
        one that had its time."""
        sharer = envelope.member
        met = self._met.get(sharer)
        if met is not None and envelope.round > allowed_until(met, number, self._mix.ahead):
            raise Postponed(f"round {envelope.round} of {sharer} comes too early: it was at {met.round}")
        left = PART * self._mix.seconds - self._spent.get(sharer, 0.0)
        if left <= 0:
            raise Postponed(f"{sharer} had its part of this round's time")
        self._looking = sharer, time.monotonic()
        return left

    def end(self) -> None:
        """Whatever it came to; without effect where nothing was begun."""
        if self._looking is not None:
            sharer, since = self._looking
            self._spent[sharer] = self._spent.get(sharer, 0.0) + time.monotonic() - since
            self._looking = None

    def took(self, envelope: Envelope, number: int) -> None:
        """It was taken: from where it stands its sharer may go on."""
        self._met.setdefault(envelope.member, Met(envelope.round, number))
