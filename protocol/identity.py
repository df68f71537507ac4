"""What identifies a piece of work everywhere: its pool, its node, the policy step, and which of the node's files it is.

Headers, submissions, orders and seeds are about the same work exactly when their `WorkId`s are equal.
"""

from dataclasses import asdict, dataclass
from typing import Any

from protocol import signing


@dataclass(frozen=True, slots=True)
class PoolId:
    """A pool: number `pool` of the Pools contract at `pools` (EIP-55) on chain `chain_id`."""

    chain_id: int
    pools: str
    pool: int

    def domain(self, name: str) -> signing.Domain:
        """Return the EIP-712 domain `name` of what is signed about pools of this contract."""
        return signing.Domain(name, "1", self.chain_id, self.pools)

    def __str__(self) -> str:
        return f"pool {self.pool} of {self.pools} on chain {self.chain_id}"


@dataclass(frozen=True, slots=True)
class WorkId:
    """One file of a pool: the `counter`-th of `node` (EIP-55) there, made from policy step `step`."""

    pool: PoolId
    node: str
    step: int
    counter: int

    def flat(self) -> dict[str, Any]:
        """Return all six values by the names that documents use."""
        return asdict(self.pool) | {"node": self.node, "step": self.step, "counter": self.counter}

    def differing(self, other: "WorkId") -> list[str]:
        """Return the names of the values, as in `flat`, in which two differ."""
        mine, theirs = self.flat(), other.flat()
        return [name for name in mine if mine[name] != theirs[name]]

    def __str__(self) -> str:
        return f"work {self.counter} of {self.node} for step {self.step} in {self.pool}"
