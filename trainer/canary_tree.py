"""Planted files: sixteen salted leaves a step, published before its seed, opened after the votes (docs/contracts.md).

Every file that a carrier node submits is a canary: leaves cover its next sixteen counters. All salts follow from one
secret of the pool owner, so that nothing but that secret must be kept; unused leaves look like used ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from chain.contracts.appeals import Canaries, Planted
from protocol.encoding import tagged_hash
from protocol.rollouts import merkle

LEAVES = 16


@dataclass(frozen=True)
class StepCanaries:
    """The tree of one step. `secret` 32 bytes; `planted`: up to sixteen (node, counter)."""

    secret: bytes
    pool: int
    step: int
    planted: tuple[tuple[str, int], ...]

    def __post_init__(self) -> None:
        if len(self.planted) > LEAVES or len(set(self.planted)) < len(self.planted):
            raise ValueError(f"a step has at most {LEAVES} different canaries")

    @property
    def root(self) -> bytes:
        return merkle.root(self._leaves())

    def opening(self, node: str, counter: int) -> Planted | None:
        """What `Canaries.open` needs for a file; None if it was not planted in this step."""
        if (node, counter) not in self.planted:
            return None
        place = self.planted.index((node, counter))
        return Planted(self._salt(place), merkle.proof(self._leaves(), place))

    def _leaves(self) -> list[bytes]:
        leaves = [
            Canaries.leaf(self._salt(place), self.pool, self.step, node, counter)
            for place, (node, counter) in enumerate(self.planted)
        ]
        padding = range(len(leaves), LEAVES)
        return leaves + [tagged_hash("muster/canary-padding/1", self.secret, self.pool, self.step, i) for i in padding]

    def _salt(self, place: int) -> bytes:
        return tagged_hash("muster/canary-salt/1", self.secret, self.pool, self.step, place)


def next_counters(carriers: Sequence[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    """(node, counter) pairs to plant, for carriers and the counters of their next files: the leaves shared evenly."""
    if not carriers:
        return ()
    each = LEAVES // len(carriers)
    return tuple((node, counter + i) for node, counter in carriers for i in range(each))
