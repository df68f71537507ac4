"""Which of the groups that others shared a member trains on: small pure functions that compose.

A filter drops offers; a weight says how much rather one is drawn than another. The draw is by hash under a seed that
only the receiver knows: a sharer who could predict it would grind its envelopes until they are always drawn.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from protocol.swarm.record import Records, TruthRecord


@dataclass(frozen=True)
class Offer:
    """A shared group that was found true. `rewards`: the receiver's own. `problem`: what tells problems apart, such as
    environment and seed."""

    sharer: str
    round: int
    slot: int
    problem: str
    rewards: tuple[float, ...]

    @property
    def name(self) -> str:
        """What no other group has: a member's slot of a round."""
        return f"{self.sharer}/{self.round}/{self.slot}"

    @property
    def mean(self) -> float:
        return math.fsum(self.rewards) / len(self.rewards)


Filter = Callable[[Sequence[Offer]], list[Offer]]
Weight = Callable[[Offer], float]


def with_advantage(offers: Sequence[Offer]) -> list[Offer]:
    """Those whose rewards differ: in the others no completion is better than another (the paper's filter)."""
    return [offer for offer in offers if len(set(offer.rewards)) > 1]


def by_reward(lowest: float, highest: float) -> Filter:
    """Those whose mean reward lies between: neither hopeless nor solved."""
    return lambda offers: [offer for offer in offers if lowest <= offer.mean <= highest]


def by_novelty(seen: Collection[str]) -> Filter:
    """Those about problems that are not among `seen`, and of several about one problem the first."""

    def keep(offers: Sequence[Offer]) -> list[Offer]:
        fresh: dict[str, Offer] = {}
        for offer in offers:
            if offer.problem not in seen:
                fresh.setdefault(offer.problem, offer)
        return list(fresh.values())

    return keep


def by_record(records: Records, least: float = 1.0) -> Filter:
    """Those of sharers with at least that trust; with 1.0, of those who were never found out."""
    unknown = TruthRecord()
    return lambda offers: [offer for offer in offers if records.get(offer.sharer, unknown).trust >= least]


def per_sharer(most: int) -> Filter:
    """The newest `most` of each sharer: who shares ten times as much is not drawn ten times as often."""

    def keep(offers: Sequence[Offer]) -> list[Offer]:
        taken: Counter[str] = Counter()
        kept = []
        for offer in sorted(offers, key=lambda one: (-one.round, one.slot, one.sharer)):
            taken[offer.sharer] += 1
            if taken[offer.sharer] <= most:
                kept.append(offer)
        return kept

    return keep


def by_trust(records: Records) -> Weight:
    """As much as the sharer is trusted."""
    unknown = TruthRecord()
    return lambda offer: records.get(offer.sharer, unknown).trust


def by_plausibility(records: Records) -> Weight:
    """The rarer, the more of the sharer's groups were doubted; never not at all, since a doubt proves nothing."""
    unknown = TruthRecord()
    return lambda offer: records.get(offer.sharer, unknown).plausibility


def evenly(offers: Sequence[Offer]) -> Weight:
    """Each sharer as often as every other, however many of `offers` are its: one that answers its problems itself has
    an advantage in every group, an honest one in few."""
    counts = Counter(offer.sharer for offer in offers)
    return lambda offer: 1 / max(1, counts[offer.sharer])


def product(*weights: Weight) -> Weight:
    """All of them at once."""
    return lambda offer: math.prod(weight(offer) for weight in weights)


def draw(
    offers: Sequence[Offer], count: int, seed: bytes, filters: Iterable[Filter] = (), weight: Weight | None = None
) -> list[Offer]:
    """At most `count` different offers that have an advantage and pass every filter, drawn without replacement with
    chances in proportion to their weights (Efraimidis and Spirakis, 2006; uniform without one). The order of the
    offers does not matter."""
    left = with_advantage(offers)
    for one in filters:
        left = one(left)
    ranked = sorted((_rank(offer, seed, 1.0 if weight is None else weight(offer)), offer.name, offer) for offer in left)
    return [offer for rank, _, offer in ranked[:count] if rank < math.inf]


def _rank(offer: Offer, seed: bytes, weight: float) -> float:
    """An exponential variable of that rate: of several the least is each one's with the chance that its weight has."""
    digest = hashlib.sha256(seed + offer.name.encode()).digest()
    uniform = (int.from_bytes(digest[:8], "big") + 0.5) / 2**64
    return -math.log(uniform) / weight if weight > 0 else math.inf
