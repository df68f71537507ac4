"""Whose groups the places of a round go to: small pure functions over who was drawn how often.

A poisoner answers as it likes and has an advantage in every group, an honest member in few. So what is drawn evenly
among groups would be mostly a poisoner's, and even drawn evenly among sharers it would have the places that the others
leave. Here a sharer has its part of a round, and none while it was drawn more often than the median; own groups fill
the rest.
"""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple


class DrawnLately(NamedTuple):
    """Of a sharer's groups that a receiver looked at in its newest rounds: how many it trained on, and how many it
    left out as nothing that its own policy would say."""

    trained: int = 0
    doubted: int = 0

    @property
    def weight(self) -> float:
        """How much it says about how often a sharer may be drawn: the share that was not doubted."""
        return self.trained / (self.trained + self.doubted) if self.trained else 0.0


def part_of(places: int, sharers: int) -> int:
    """How many of a round's places one of so many sharers may have: no more than all alike, and one at least."""
    return max(1, places // max(1, sharers))


def usual_part(lately: Mapping[str, DrawnLately]) -> int | None:
    """How often the median sharer was trained on, each counted by its weight; None where nobody was.

    Whoever is doubted counts as little as if it were not there, and whose groups were not looked at says nothing. So
    keys whose texts no policy would say, however many there are, do not make the others wait for them; one that is to
    count must share what is trained on."""
    ranked = sorted((one.trained, one.weight) for one in lately.values() if one.trained)
    half = sum(weight for _, weight in ranked) / 2
    below = 0.0
    for trained, weight in ranked:
        below += weight
        if below > half:
            return trained
    return None


class RoundPlaces:
    """The `places` of a round for others' groups, to be dealt among `sharers` of whom some were drawn `lately`. Not
    `even`: to whoever comes first."""

    def __init__(self, places: int, sharers: int, lately: Mapping[str, DrawnLately], even: bool = True) -> None:
        self._left, self._even, self._lately = places, even, lately
        self._part, self._usual = part_of(places, sharers), usual_part(lately)
        self._taken: Counter[str] = Counter()

    @property
    def left(self) -> int:
        return self._left

    def open_to(self, sharer: str) -> bool:
        """Whether it may have one more."""
        if not self._even:
            return self._left > 0
        return self._left > 0 and self._taken[sharer] < self._part and not self._had_its_part(sharer)

    def take(self, sharer: str) -> None:
        self._left -= 1
        self._taken[sharer] += 1

    def _had_its_part(self, sharer: str) -> bool:
        lately = self._lately.get(sharer, DrawnLately())
        return self._usual is not None and lately.trained > self._usual
