"""How recent files and policy steps fared, which the scheduler relies on. Pure."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from chain.indexer.records import Pool, Status, Submission

MEMORY_SECONDS = 600.0
"""A node is measured by files of the last ten minutes: one that was too slow gets another try after that."""
RECENT_FILES, _PER_NODE, _STEPS = 256, 16, 9
_TRUST = 4

Grants = dict[tuple[str, int, int], float]
"""(node, counter, policy step) → when the lease was granted, Unix seconds."""


@dataclass(frozen=True)
class Pace:
    """How recent files fared. Medians in seconds; nodes without recent files are missing.

    making: node → from a lease to its file's submission; typical: the same over all nodes; step: between two policy
    steps, 0 while unknown; useful: node → the share of its files that was accepted.
    """

    making: Mapping[str, float] = field(default_factory=dict)
    typical: float = 0.0
    step: float = 0.0
    useful: Mapping[str, float] = field(default_factory=dict)

    def share(self, node: str) -> float:
        """What a file in the making counts for. Never less than half, so that many bad files cannot flood a pool."""
        return min(1.0, max(0.5, self.useful.get(node, 1.0)))


def measure(pool: Pool, files: Sequence[Submission], grants: Mapping[tuple[str, int, int], float]) -> Pace:
    """The pace of a pool by its newest files (in order of their sequence) and steps.

    A file's making starts by the service's clock and ends by the chain's. The clocks differ by the same amount for all
    nodes, and only differences between nodes are used.
    """
    making: dict[str, list[float]] = defaultdict(list)
    decided: dict[str, list[bool]] = defaultdict(list)
    for file in reversed(files[-RECENT_FILES:]):
        granted = grants.get((file.node, file.counter, file.step))
        # Garbage is made fast: counted, it would make honest nodes look too slow to serve.
        if granted is not None and file.status is Status.ACCEPTED and len(making[file.node]) < _PER_NODE:
            making[file.node].append(file.time - granted)
        if file.status is not Status.PENDING and len(decided[file.node]) < _PER_NODE:
            decided[file.node].append(file.status is Status.ACCEPTED)
    known = {node: seconds for node, seconds in making.items() if seconds}
    return Pace(
        making={node: median(seconds) for node, seconds in known.items()},
        typical=median([one for seconds in known.values() for one in seconds]) if known else 0.0,
        step=_step_seconds(pool),
        useful={node: (sum(good) + _TRUST) / (len(good) + _TRUST) for node, good in decided.items()},
    )


def _step_seconds(pool: Pool) -> float:
    gaps = [later.time - earlier.time for earlier, later in pairwise(pool.steps[-_STEPS:])]
    return float(median(gaps)) if gaps else 0.0
