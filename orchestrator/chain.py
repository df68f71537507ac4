"""One pool as the chain shows it: followed, and compared with the ledger."""

import logging
import time

from chain.indexer.projection import Projection
from chain.indexer.records import Account, Pool
from chain.indexer.state import Standing, State, standing_of
from chain.suite import Suite
from orchestrator.background import describe
from orchestrator.ledger import reconcile
from protocol.api.run import Reconciliation

log = logging.getLogger("muster.orchestrator")
RECONCILE_SECONDS = 5.0


class PoolView:
    """Pool `pool_id` of a projection, shared by the thread that follows the chain and those of requests. Steps are
    usable once their seed block has `confirmations` blocks on top. `error`: why the chain could not be followed at the
    last try, or else `unrelayed`: why files are not relayed; `heard`: when the chain last answered (Unix seconds),
    `moved`: with a new block."""

    def __init__(self, projection: Projection, pool: int, confirmations: int) -> None:
        self.projection, self.pool_id, self.confirmations = projection, pool, confirmations
        self.error = self.unrelayed = ""
        self.heard: float | None = None
        self.moved: float | None = None

    def refresh(self) -> bool:
        """Poll the chain once; return whether the state changed. Requests are answered meanwhile."""
        head = self.state.head
        changed = self.projection.refresh()
        self.heard = time.time()
        if self.moved is None or self.state.head != head:
            self.moved = self.heard
        return changed

    @property
    def state(self) -> State:
        """The newest state, which never changes again."""
        return self.projection.state

    def pool(self, state: State) -> Pool | None:
        return state.pools.get(self.pool_id)

    def usable_step(self, state: State) -> int | None:
        """Return the newest policy step whose seed block has its confirmations."""
        return state.usable_step(self.pool_id, self.confirmations)

    def account(self, state: State, node: str) -> Account | None:
        return state.accounts.get((self.pool_id, node))

    def knows(self, address: str) -> bool:
        """Return whether an address has a part in this pool: joined node, voter or owner of a seat, pool owner."""
        return self.state.has_part(self.pool_id, address)


def barred(account: Account | None, pool: int) -> str:
    """Return why a node may not work in the pool, or an empty string."""
    if account is None:
        return f"this node has not joined pool {pool}"
    reasons = {
        Standing.EJECTED: f"this node was ejected: {account.eject_reason}",
        Standing.REMOVED: "the pool's owner removed this node",
        Standing.LEFT: "this node has left the pool",
        Standing.FROZEN: "a file of this node was rejected and its stake is frozen",
    }
    return reasons.get(standing_of(account), "")


class ChainWatcher:
    """Follows the chain, and compares ledger and chain. `reconciliation` is the newest comparison."""

    def __init__(self, view: PoolView, suite: Suite) -> None:
        self._view, self._suite = view, suite
        self._reconciled_version, self._reconciled_time = -1, 0.0
        self._doubtful = False
        self.reconciliation: Reconciliation | None = None

    def work(self) -> None:
        """Poll once and, when it is time, compare."""
        try:
            self._view.refresh()
            self._view.error = self._view.unrelayed
            if not self.current and time.monotonic() - self._reconciled_time >= RECONCILE_SECONDS:
                self._compare(self._view.state)
        except Exception as error:
            self._view.error = describe(error)  # the page must not show an old state without saying so
            raise

    def _compare(self, state: State) -> None:
        result = reconcile(state, self._view.pool_id, self._suite)
        self._reconciled_time = time.monotonic()
        findings = result.findings if result else []
        # An endpoint may serve a block's state before its logs: only what differs twice is published.
        self._doubtful = bool(findings) and not self._doubtful
        if self._doubtful:
            return
        self.reconciliation, self._reconciled_version = result, state.version
        if findings:
            log.warning("the ledger differs from the chain: %s", "; ".join(findings))

    @property
    def current(self) -> bool:
        """Whether `reconciliation` is of the newest state."""
        return self._reconciled_version == self._view.state.version
