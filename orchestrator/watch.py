"""What the chain looks like now: the projected state, shared between the indexer's thread and the requests'."""

import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from chain.events import Event
from chain.projection import EventSource
from chain.records import Account, Pool
from chain.reducers import apply
from chain.standing import Standing, standing_of
from chain.state import State
from protocol.verdict import Code


@dataclass
class Folded:
    """The state, and by the token's own transfers: what each address received from the pools contract, and all that
    the pools contract received."""

    pools_address: str
    state: State = field(default_factory=State)
    transferred: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    inflow: int = 0

    def fold(self, events: Iterable[Event], head: int) -> None:
        for event in events:
            apply(self.state, event)
            if event.key == ("MusterToken", "Transfer"):
                self._transfer(event.args["from"], event.args["to"], event.args["value"])
        self.state.head = head

    def _transfer(self, sender: str, to: str, amount: int) -> None:
        if sender == self.pools_address:
            self.transferred[to] += amount
        if to == self.pools_address:
            self.inflow += amount


class Watch:
    """One pool's view of the chain. Readers hold `reading()`: the records change in place. One thread refreshes."""

    def __init__(self, follower: EventSource, pool: int, confirmations: int, pools_address: str = "") -> None:
        self.pool_id = pool
        self.confirmations = confirmations
        self._pools_address = pools_address
        self._follower = follower
        self._lock = threading.RLock()
        self._folded = self._refold()
        self._torn = False
        self.version = 0
        """Grows with every change of the state."""
        self.error = ""
        """Why the chain could not be followed at the last try, or empty."""

    def refresh(self) -> bool:
        """Poll the chain once; whether the state changed. Requests are answered meanwhile."""
        batch = self._follower.poll()
        fresh = self._refold() if batch.rollback_to is not None or self._torn else None
        with self._lock:
            if fresh is not None:
                self._folded, self._torn = fresh, False
            else:
                # The follower does not hand events out twice: if folding fails half-way, only a refold mends the state.
                self._torn = True
                self._folded.fold(batch.events, batch.head)
                self._torn = False
            changed = fresh is not None or bool(batch.events)
            self.version += changed
            return changed

    def _refold(self) -> Folded:
        folded = Folded(self._pools_address)
        folded.fold(self._follower.history(), self._follower.head)
        return folded

    @contextmanager
    def reading(self) -> Iterator[State]:
        with self._lock:
            yield self._folded.state

    def flows(self) -> tuple[int, dict[str, int]]:
        """Grains that the pools contract received, and that each address received from it, by the token's transfers."""
        with self._lock:
            return self._folded.inflow, dict(self._folded.transferred)

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
    ejected = f"this node was ejected: {Code(account.eject_code).label} (submission {account.eject_sequence})"
    words = {
        Standing.EJECTED: ejected,
        Standing.REMOVED: "the pool's owner removed this node",
        Standing.LEFT: "this node has left the pool",
        Standing.FROZEN: "a file of this node was rejected and its stake is frozen",
    }
    return words.get(standing_of(account), "")
