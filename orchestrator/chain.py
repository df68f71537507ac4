"""One pool as the chain shows it: followed, attested and compared with the ledger."""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from chain.contracts import Court
from chain.errors import ContractError
from chain.indexer.projection import Projection
from chain.indexer.records import Account, Lane, Pool, Submission
from chain.indexer.state import Standing, State, standing_of
from chain.suite import Suite
from orchestrator.background import describe
from orchestrator.ledger import reconcile
from protocol.api.run import Reconciliation
from protocol.waits import WAITS

log = logging.getLogger("muster.orchestrator")
RECONCILE_SECONDS = 5.0
# Lanes being attested at a time: with many nodes, lanes end together.
ATTESTED_AT_ONCE = 8
# Refusals when somebody presented receipts meanwhile, or the last transaction was mined unseen.
_DONE = frozenset({"NothingNew", "AlreadyDrawn", "AlreadySettled"})
IsStored = Callable[[Submission], bool]


class PoolView:
    """Pool `pool_id` of a projection, shared by the thread that follows the chain and those of requests. Steps are
    usable once their seed block has `confirmations` blocks on top. `error`: why the chain could not be followed at the
    last try, or uploads not attested; `heard`: when the chain last answered (Unix seconds), `moved`: with a new
    block."""

    def __init__(self, projection: Projection, pool: int, confirmations: int) -> None:
        self.projection, self.pool_id, self.confirmations = projection, pool, confirmations
        self.error = ""
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


class Attestor:
    """Attests on chain which files of a full lane have their bytes in the bucket, and only those.

    Bytes come before randomness: the contract fixes the block that draws a lane's committee when the lane is attested.
    A file that is not attested in time is late, unpaid and fined. So no file or lane waits for another, and nothing is
    kept that a restart would need: chain, bucket and receipts say what to do.

    `court` sends as the service's key. `checks`: ways to learn that a file is stored, the quickest first.
    """

    def __init__(self, court: Court, pool: int, checks: Sequence[IsStored]) -> None:
        self._court, self._pool, self._checks = court, pool, checks
        self._lock = threading.Lock()
        # Lane → the block up to which it was attested, None while its thread runs.
        self._attested_up_to: dict[int, int | None] = {}
        self._problems: dict[int, str] = {}

    def problem(self, state: State) -> str:
        """Return why uploads are not attested as they should be, or an empty string."""
        pool, key = state.pools.get(self._pool), self._court.client.address
        if pool is not None and key != pool.service:
            cure = "start it with that key, or name its own: muster pool set-service"
            return f"this service has the key {key}, and the pool's owner named {pool.service or 'none'}; {cure}"
        with self._lock:
            return next(iter(self._problems.values()), "")

    def advance(self, state: State) -> None:
        """Start a thread for every lane that is due and has none. What fails is due again in the next block."""
        lanes = {lane.lane: lane for lane in due(state, self._pool)}
        with self._lock:
            self._problems = {number: why for number, why in self._problems.items() if number in lanes}
            self._attested_up_to = {
                number: block for number, block in self._attested_up_to.items() if block is None or block >= state.head
            }
            running = list(self._attested_up_to.values()).count(None)
            for number in sorted(lanes.keys() - self._attested_up_to.keys())[: max(ATTESTED_AT_ONCE - running, 0)]:
                self._attested_up_to[number] = None
                args = lanes[number], state.files_of(lanes[number]), state.head
                threading.Thread(target=self._attest_lane, args=args, name=f"lane {number}", daemon=True).start()

    def _attest_lane(self, lane: Lane, files: list[Submission], head: int) -> None:
        problem = ""
        try:
            with WAITS.on(f"the attestation of lane {lane.lane}"):
                head = max(head, self._attest(lane, files) - 1)
        except BaseException as error:  # a thread that ended silently would leave the lane unattested
            if not (isinstance(error, ContractError) and error.name in _DONE):
                problem = f"lane {lane.lane} is not attested: {describe(error)}"
        with self._lock:
            self._attested_up_to[lane.lane] = head
            before = self._problems.pop(lane.lane, "")
            if problem:
                self._problems[lane.lane] = problem
        if problem not in ("", before):
            log.warning("%s", problem)

    def _attest(self, lane: Lane, files: list[Submission]) -> int:
        """Return the last block with an attestation of the lane, or 0. A dead bucket delays no file that has a
        receipt."""
        missing, block = lane.missing, 0
        for is_stored in self._checks:
            places = sum(1 << file.place for file in files if missing >> file.place & 1 and is_stored(file))
            if places:
                block = self._court.attest(self._pool, lane.lane, places).send().block
                missing &= ~places
        return block


def due(state: State, pool_id: int) -> Iterator[Lane]:
    """Yield the lanes of which something can be attested in the next block."""
    pool = state.pools.get(pool_id)
    if pool is None:
        return
    window = pool.terms.attestBlocks
    for lane in state.recent_lanes(pool_id, state.head - pool.terms.laneBlocks - window):
        if lane.missing and lane.ended(state.head) and state.head < lane.last_block + window:
            yield lane


class ChainWatcher:
    """Follows the chain, has uploads attested while its replica `leads`, and compares ledger and chain.
    `reconciliation` is the newest comparison."""

    def __init__(
        self, view: PoolView, suite: Suite, attestor: Attestor, leads: Callable[[], bool] = lambda: True
    ) -> None:
        self._view, self._suite, self._attestor, self._leads = view, suite, attestor, leads
        self._reconciled_version, self._reconciled_time = -1, 0.0
        self._doubtful = False
        self.reconciliation: Reconciliation | None = None

    def work(self) -> None:
        """Poll once and, when it is time, compare."""
        try:
            self.poll()
        except BaseException as error:
            self._view.error = describe(error)  # the page must not show an old state without saying so
            raise

    def poll(self) -> None:
        self._view.refresh()
        state = self._view.state
        if self._leads():
            self._attestor.advance(state)
        self._view.error = self._attestor.problem(state)
        if self.current or time.monotonic() - self._reconciled_time < RECONCILE_SECONDS:
            return
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
