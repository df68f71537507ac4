"""A node's evidence over its files: an e-process, a wealth that honest work multiplies on average by at most 1.

For each bet of each accumulator, wealth is a mixture over the file from which on the bet is made, so that a node that
begins to cheat late is found too: weight 1/(k(k+1)) starts at file k, the rest waits. With A the wealth at work after
n files and e what file n pays,

    A_n = (A_{n−1} + 1/(n(n+1)))·e_n,      M_n = A_n + 1/(n+1).

The case is the mean of M over accumulators and bets. It starts at 1 and is a supermartingale under every honest law,
so by Ville's inequality it ever reaches 1/δ with probability at most δ.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from protocol.evidence.law import BETS
from protocol.evidence.sums import ALL

FALSE_ACCUSATION = 1e-6
"""Of a whole life of a node: half for the bets' luck, half for the calibration's."""
LIMIT_NATS = math.log(2 / FALSE_ACCUSATION)
DELIVERIES = "deliveries"
"""The accumulator of drawn work that was not handed in; the chain alone says it."""
ALLOWED_UNDELIVERED = 0.1
"""The share of its drawn files that an honest node may fail to hand in, whatever came before."""
_STAKES = (0.5, 1.0, 2.0, 4.0, 8.0)
NAMES = (*ALL, DELIVERIES)


def delivery_nats(delivered: bool) -> tuple[float, ...]:
    """What one drawn file pays in the bets against refusing: 1 + η(x − allowed), x = 1 for one not handed in."""
    off = (0.0 if delivered else 1.0) - ALLOWED_UNDELIVERED
    return tuple(math.log1p(stake * off) for stake in _STAKES)


@dataclass
class NodeCase:
    """The case against one node. `wealth`: ln A of every bet of every accumulator; `files` that were added; `peak`: the
    largest ln of the case there ever was."""

    files: int = 0
    peak: float = 0.0
    wealth: dict[str, list[float]] = field(default_factory=lambda: {name: [-math.inf] * BETS for name in NAMES})

    def add(self, nats: Mapping[str, Sequence[float]]) -> None:
        """Settle one more file, in the chain's order. What accumulators are missing in `nats` pay 1."""
        self.files += 1
        start = -math.log(self.files * (self.files + 1))
        for name, own in self.wealth.items():
            paid = nats.get(name, (0.0,) * BETS)
            own[:] = [_plus(one, start) + more for one, more in zip(own, paid, strict=True)]
        self.peak = max(self.peak, self.total)

    def nats(self, name: str) -> float:
        """ln of an accumulator's wealth."""
        waiting = -math.log(self.files + 1)
        return _sum([_plus(one, waiting) for one in self.wealth[name]]) - math.log(BETS)

    @property
    def total(self) -> float:
        """ln of the case."""
        return _sum([self.nats(name) for name in self.wealth]) - math.log(len(self.wealth))

    @property
    def accused(self) -> bool:
        """Whether it ever was beyond what an honest node reaches, but with probability FALSE_ACCUSATION."""
        return self.peak >= LIMIT_NATS


def _plus(a: float, b: float) -> float:
    high, low = max(a, b), min(a, b)
    return high if low == -math.inf else high + math.log1p(math.exp(low - high))


def _sum(logs: Sequence[float]) -> float:
    high = max(logs)
    return high + math.log(math.fsum(math.exp(one - high) for one in logs))
