"""One pool, as the chain shows it now, shared between the indexer's thread and the requests'."""

import time

from chain.indexer.projection import Projection
from chain.indexer.records import Account, Pool
from chain.indexer.state import Standing, State, ejected_by, standing_of
from protocol.verdict import Code


class PoolView:
    """Pool `pool_id` of a projection; steps are usable once their seed block has `confirmations` blocks on top."""

    def __init__(self, projection: Projection, pool: int, confirmations: int) -> None:
        self.projection = projection
        self.pool_id = pool
        self.confirmations = confirmations
        self.error = ""
        """Why the chain could not be followed at the last try, or uploads not attested, or empty."""
        self.heard: float | None = None
        self.moved: float | None = None
        """When the chain last answered, and when it last answered with a new block; Unix seconds."""

    def refresh(self) -> bool:
        """Poll the chain once; whether the state changed. Requests are answered meanwhile."""
        head = self.state.head
        changed = self.projection.refresh()
        self.heard = time.time()
        if self.moved is None or self.state.head != head:
            self.moved = self.heard
        return changed

    @property
    def state(self) -> State:
        """The newest state; it never changes again."""
        return self.projection.state

    def pool(self, state: State) -> Pool | None:
        return state.pools.get(self.pool_id)

    def usable_step(self, state: State) -> int | None:
        """Newest policy step whose seed block has its confirmations."""
        return state.usable_step(self.pool_id, self.confirmations)

    def account(self, state: State, node: str) -> Account | None:
        return state.accounts.get((self.pool_id, node))

    def knows(self, address: str) -> bool:
        """Whether an address has a part in this pool: joined node, voter or owner of a seat, pool owner."""
        return self.state.has_part(self.pool_id, address)


def barred(account: Account | None, pool: int) -> str:
    """Why a node may not work in the pool, or empty."""
    if account is None:
        return f"this node has not joined pool {pool}"
    ejected = f"this node was ejected: {Code(account.eject_code).label} ({ejected_by(account)})"
    words = {
        Standing.EJECTED: ejected,
        Standing.REMOVED: "the pool's owner removed this node",
        Standing.LEFT: "this node has left the pool",
        Standing.FROZEN: "a file of this node was rejected and its stake is frozen",
    }
    return words.get(standing_of(account), "")
