"""What the chain looks like now: the projected state, shared between the indexer's thread and the requests'."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from protocol.chain.records import Account, Pool
from protocol.chain.state import EventSource, Projection, State
from protocol.verdict import Code


class Watch:
    """One pool's view of the projection. Readers hold `reading()`: the records change in place."""

    def __init__(self, follower: EventSource, pool: int, confirmations: int) -> None:
        self.pool_id = pool
        self.confirmations = confirmations
        self._lock = threading.RLock()
        self._projection = Projection(follower)
        self.version = 0
        """Grows with every change of the state."""
        self.error = ""
        """Why the chain could not be followed at the last try, or empty."""

    def refresh(self) -> bool:
        """Poll the chain once; whether the state changed."""
        with self._lock:
            changed = self._projection.refresh()
            self.version += changed
            return changed

    @contextmanager
    def reading(self) -> Iterator[State]:
        with self._lock:
            yield self._projection.state

    def pool(self, state: State) -> Pool | None:
        return state.pools.get(self.pool_id)

    def usable_step(self, state: State) -> int | None:
        """Newest policy step whose seed block has its confirmations."""
        pool = self.pool(state)
        for step in reversed(pool.steps if pool else []):
            if step.seed_block + self.confirmations <= state.head:
                return step.step
        return None

    def account(self, state: State, node: str) -> Account | None:
        return state.accounts.get((self.pool_id, node))

    def knows(self, address: str) -> bool:
        """Whether an address has a part in this pool: joined node, voter or owner of a seat, pool owner."""
        with self.reading() as state:
            pool = self.pool(state)
            if pool is not None and pool.owner == address:
                return True
            if self.account(state, address) is not None:
                return True
            return any(address in (seat.voter, seat.owner) and not seat.closed for seat in state.seats.values())


def barred(account: Account | None, pool: int) -> str:
    """Why a node may not work in the pool, or empty."""
    if account is None:
        return f"this node has not joined pool {pool}"
    if account.ejected:
        return f"this node was ejected: {Code(account.eject_code).label} (submission {account.eject_sequence})"
    if account.removed:
        return "the pool's owner removed this node"
    if not account.member:
        return "this node has left the pool"
    if account.frozen_at:
        return "a file of this node was rejected and its stake is frozen"
    return ""
