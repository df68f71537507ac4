"""Which of its peers' groups a member trains on: pure functions and small counters.

The draw is by hash under a seed that only the receiver knows; a peer that could predict it would adapt its envelopes
until it is drawn."""

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from swarm.envelope import SharedGroup


class Breach(StrEnum):
    """A false statement that a peer signed and that any other member can verify."""

    FALSE_REWARD = "false reward"
    OTHER_PROBLEM = "another problem"
    TWO_ENVELOPES = "two envelopes of one round"


@dataclass
class PeerRecord:
    """One receiver's record of a peer: `true` groups whose rewards were as claimed, `breaches` (false statements), and
    `unfit` true groups that this member cannot use, such as text that its tokenizer changes. Of the groups that were
    drawn, `trained` were trained on and `doubted` were not, because the receiver's own policy would not have said
    them."""

    true: int = 0
    breaches: int = 0
    unfit: int = 0
    trained: int = 0
    doubted: int = 0

    @property
    def plausibility(self) -> float:
        """1 for a peer that was never doubted, otherwise close to the share of its drawn groups that were not."""
        return (1 + self.trained) / (1 + self.trained + self.doubted)


@dataclass(frozen=True)
class InspectedGroup:
    """A shared group that was found true, with its problem and its texts. `rewards` are the receiver's own."""

    peer: str
    round: int
    slot: int
    rewards: tuple[float, ...]
    problem_seed: int
    group: SharedGroup

    @property
    def name(self) -> str:
        """A unique name: slot of a peer's round."""
        return f"{self.peer}/{self.round}/{self.slot}"

    @property
    def mean(self) -> float:
        return math.fsum(self.rewards) / len(self.rewards)


def drawable(offers: Iterable[InspectedGroup], records: Mapping[str, PeerRecord], most: int) -> list[InspectedGroup]:
    """Return the offers that may be drawn, newest first. Their rewards differ (SAPO's filter). Their peers never made a
    false statement: rewards are deterministic, so one breach is a lie or a broken machine. Of each peer the newest
    `most` are taken, so that sharing more does not help."""
    taken: Counter[str] = Counter()
    kept = []
    for offer in sorted(offers, key=lambda offer: (-offer.round, offer.slot, offer.peer)):
        breached = offer.peer in records and records[offer.peer].breaches > 0
        if len(set(offer.rewards)) > 1 and not breached and taken[offer.peer] < most:
            taken[offer.peer] += 1
            kept.append(offer)
    return kept


def draw_weights(offers: Sequence[InspectedGroup], records: Mapping[str, PeerRecord], even: bool) -> dict[str, float]:
    """Return the weight of each offer by its name: offers of often doubted peers are rarer, but never impossible. With
    `even`, each peer is equally likely, however many of the offers are its own. A poisoner answers as it likes, so all
    of its groups have an advantage; few of an honest peer's do."""
    counts, unknown = Counter(offer.peer for offer in offers), PeerRecord()
    return {
        offer.name: records.get(offer.peer, unknown).plausibility / (counts[offer.peer] if even else 1)
        for offer in offers
    }


def draw(
    offers: Iterable[InspectedGroup], count: int, seed: bytes, weight: Mapping[str, float]
) -> list[InspectedGroup]:
    """Draw at most `count` offers without replacement, with chances in proportion to their weights (Efraimidis and
    Spirakis, 2006). The order of `offers` does not matter."""

    def rank(offer: InspectedGroup) -> float:
        """An exponential variable: the smallest of several is each offer's in proportion to its weight."""
        digest = hashlib.sha256(seed + offer.name.encode()).digest()
        uniform = (int.from_bytes(digest[:8], "big") + 0.5) / 2**64
        return -math.log(uniform) / weight[offer.name] if weight[offer.name] > 0 else math.inf

    ranked = sorted((rank(offer), offer.name, offer) for offer in offers)
    return [offer for rank, _, offer in ranked[:count] if rank < math.inf]


# Per-peer cap


class RecentUse(NamedTuple):
    """How many of a peer's groups the receiver's newest rounds trained on, and how many they doubted."""

    trained: int = 0
    doubted: int = 0

    @property
    def weight(self) -> float:
        """How much the peer counts in the median: the share of its groups that was not doubted."""
        return self.trained / (self.trained + self.doubted) if self.trained else 0.0


def usual_use(recent: Mapping[str, RecentUse]) -> int | None:
    """Return how often the median peer was trained on, each peer weighted by `RecentUse.weight`; None without any. So
    keys whose texts no policy would say, however many there are, do not hold the others back."""
    ranked = sorted((use.trained, use.weight) for use in recent.values() if use.trained)
    half, below = sum(weight for _, weight in ranked) / 2, 0.0
    for trained, weight in ranked:
        below += weight
        if below > half:
            return trained
    return None


class PeerCap:
    """Hands out the `places` of a round for shared groups. With `even`, each of `peers` gets at most its equal part, at
    least one, and nothing while it was trained on more often than the median peer. Own groups fill the rest."""

    def __init__(self, slots: int, peers: int, recent: Mapping[str, RecentUse], even: bool = True) -> None:
        self.left, self._even, self._recent = slots, even, recent
        self._part, self._usual = max(1, slots // max(1, peers)), usual_use(recent)
        self._taken: Counter[str] = Counter()

    def allows(self, peer: str) -> bool:
        """Return whether the peer may have one more place."""
        if self.left <= 0 or not self._even:
            return self.left > 0
        over = self._usual is not None and self._recent.get(peer, RecentUse()).trained > self._usual
        return self._taken[peer] < self._part and not over

    def take(self, peer: str) -> None:
        self.left -= 1
        self._taken[peer] += 1
