"""Which of its peers' groups a member trains on: pure functions and small counters.

Filters drop offers, weights make an offer more or less likely, and `draw` takes some without replacement. The draw is
by hash under a seed that only the receiver knows; a peer that could predict it would adapt its envelopes until it is
drawn.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple


class Breach(StrEnum):
    """A false statement that a peer signed and that any other member can verify."""

    FALSE_REWARD = "false reward"
    OTHER_PROBLEM = "another problem"
    TWO_ENVELOPES = "two envelopes of one round"


@dataclass(frozen=True)
class PeerRecord:
    """One receiver's record of a peer.

    `true` counts groups whose rewards were as claimed, `breaches` false statements, and `unfit` true groups that this
    member cannot use, such as text that its tokenizer changes. Of the groups that were drawn, `trained` were trained on
    and `doubted` were not, because the receiver's own policy would not have said them. A doubt is no proof: a better
    policy surprises too."""

    true: int = 0
    breaches: int = 0
    unfit: int = 0
    trained: int = 0
    doubted: int = 0

    @property
    def plausibility(self) -> float:
        """1 for a peer that was never doubted, otherwise close to the share of its drawn groups that were not."""
        return (1 + self.trained) / (1 + self.trained + self.doubted)

    def plus(self, **counts: int) -> "PeerRecord":
        """Return the record with each named count increased."""
        return replace(self, **{name: getattr(self, name) + count for name, count in counts.items()})


Records = Mapping[str, PeerRecord]
"""By peer address."""


@dataclass(frozen=True)
class Offer:
    """A shared group that was found true. `rewards` are the receiver's own; `problem` names environment and seed."""

    peer: str
    round: int
    slot: int
    problem: str
    rewards: tuple[float, ...]

    @property
    def name(self) -> str:
        """A unique name: slot of a peer's round."""
        return f"{self.peer}/{self.round}/{self.slot}"

    @property
    def mean(self) -> float:
        return math.fsum(self.rewards) / len(self.rewards)


Filter = Callable[[Sequence[Offer]], list[Offer]]
Weight = Callable[[Offer], float]


def with_advantage(offers: Sequence[Offer]) -> list[Offer]:
    """Keep offers whose rewards differ (SAPO's filter): equal rewards give no advantage."""
    return [offer for offer in offers if len(set(offer.rewards)) > 1]


def without_breach(records: Records) -> Filter:
    """Keep offers of peers that never made a false statement. Rewards are deterministic, so one breach is a lie or a
    broken machine, and true groups do not make up for it."""
    return lambda offers: [offer for offer in offers if offer.peer not in records or not records[offer.peer].breaches]


def per_peer(most: int) -> Filter:
    """Keep the newest `most` offers of each peer, so that sharing ten times as much does not help."""

    def keep(offers: Sequence[Offer]) -> list[Offer]:
        taken: Counter[str] = Counter()
        kept = []
        for offer in sorted(offers, key=lambda offer: (-offer.round, offer.slot, offer.peer)):
            taken[offer.peer] += 1
            if taken[offer.peer] <= most:
                kept.append(offer)
        return kept

    return keep


def by_plausibility(records: Records) -> Weight:
    """Make offers of often doubted peers rarer, but never impossible."""
    unknown = PeerRecord()
    return lambda offer: records.get(offer.peer, unknown).plausibility


def evenly(offers: Sequence[Offer]) -> Weight:
    """Make each peer equally likely, however many of `offers` are its own. A poisoner answers as it likes, so all of
    its groups have an advantage; few of an honest peer's do."""
    counts = Counter(offer.peer for offer in offers)
    return lambda offer: 1 / max(1, counts[offer.peer])


def product(*weights: Weight) -> Weight:
    return lambda offer: math.prod(weight(offer) for weight in weights)


def draw(offers: Sequence[Offer], count: int, seed: bytes, weight: Weight = lambda _: 1.0) -> list[Offer]:
    """Draw at most `count` offers with an advantage, without replacement, with chances in proportion to their weights
    (Efraimidis and Spirakis, 2006). The order of `offers` does not matter."""
    ranked = sorted((_rank(offer, seed, weight(offer)), offer.name, offer) for offer in with_advantage(offers))
    return [offer for rank, _, offer in ranked[:count] if rank < math.inf]


def _rank(offer: Offer, seed: bytes, weight: float) -> float:
    """An exponential variable of rate `weight`: the smallest of several is each offer's in proportion to its weight."""
    digest = hashlib.sha256(seed + offer.name.encode()).digest()
    uniform = (int.from_bytes(digest[:8], "big") + 0.5) / 2**64
    return -math.log(uniform) / weight if weight > 0 else math.inf


# ---- Per-peer cap


class RecentUse(NamedTuple):
    """How many of a peer's groups the receiver's newest rounds trained on, and how many they doubted."""

    trained: int = 0
    doubted: int = 0

    @property
    def weight(self) -> float:
        """How much the peer counts in the median: the share of its groups that was not doubted."""
        return self.trained / (self.trained + self.doubted) if self.trained else 0.0


def usual_use(recent: Mapping[str, RecentUse]) -> int | None:
    """Return how often the median peer was trained on, each peer weighted by `RecentUse.weight`; None without any.

    Peers that are doubted hardly count. So keys whose texts no policy would say, however many there are, do not hold
    the others back; a key that is to count must share what is trained on."""
    ranked = sorted((use.trained, use.weight) for use in recent.values() if use.trained)
    half = sum(weight for _, weight in ranked) / 2
    below = 0.0
    for trained, weight in ranked:
        below += weight
        if below > half:
            return trained
    return None


class PeerCap:
    """Hands out the `places` of a round for shared groups. With `even`, each of `peers` gets at most its equal part, at
    least one, and nothing while it was trained on more often than the median peer. Own groups fill the rest."""

    def __init__(self, places: int, peers: int, recent: Mapping[str, RecentUse], even: bool = True) -> None:
        self.left, self._even, self._recent = places, even, recent
        self._part, self._usual = max(1, places // max(1, peers)), usual_use(recent)
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
