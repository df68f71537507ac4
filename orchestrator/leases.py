"""The shell around the scheduler: leases from the database, the rest from the chain and the trainer's reports."""

import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from chain.state import State
from orchestrator.db import Database
from orchestrator.lease_store import Granting, LeaseStore
from orchestrator.ledger import escrow
from orchestrator.pace import MEMORY_SECONDS, RECENT_FILES, Pace, measure
from orchestrator.scheduler import Decision, Grant, Keep, Requester, Wait, decide, renew
from orchestrator.supply import Lease, QueuedFile, Rule, Supply, in_flight
from orchestrator.tally import FileTally
from orchestrator.trained import Trained, load, reported
from orchestrator.watch import Watch, barred
from protocol.api.run import InFlightEntry


@dataclass(frozen=True)
class PoolFacts:
    """What follows from one version of the chain's state and from the reports; `files`: without accepted ones that were
    trained on; `affordable`: further files that the free budget covers."""

    version: int = -1
    trained: Trained = field(default_factory=Trained)
    files: list[QueuedFile] = field(default_factory=list)
    accepted: int = 0
    consumed: set[int] = field(default_factory=set)
    affordable: int = 0
    pace: Pace = field(default_factory=Pace)


_HALTED = {
    "paused": "the pool's owner has paused it",
    "understaffed": "too few seats judge the pool: it takes no work until more opt in",
}


RECOUNT_SECONDS = 0.5
"""What is in flight is counted anew after this time; between, grants are added to it."""


class Leases:
    """Grants and renews work slots, one decision at a time. `file_units`: output tokens of the largest file."""

    def __init__(
        self, db: Database, watch: Watch, rule: Rule, file_units: int, clock: Callable[[], float] = time.time
    ) -> None:
        self._db, self._store = db, LeaseStore(db)
        self._watch, self._rule, self._file_units, self._clock = watch, rule, file_units, clock
        self._lock = threading.Lock()
        self._asked: dict[str, float] = {}
        self._grants = self._store.grants_since(clock() - MEMORY_SECONDS)
        self._progress: tuple[tuple[int, ...], float] = ((), clock())
        self._facts = PoolFacts()
        self._tally = FileTally(watch.pool_id)
        self._trained = Trained()
        self._reported: object = None
        self._supplied: tuple[object, float, Supply] | None = None
        self.read_reports()

    def read_reports(self) -> None:
        """Take in what the trainer has reported to any replica; to be called after every report."""
        with self._db.reading() as session:
            mark = reported(session)
            if mark == self._reported:
                return
            found = load(session)
        with self._lock:
            self._reported, self._trained = mark, found

    def write(self) -> None:
        """Make renewals and ends last."""
        self._store.write()

    def ask(self, address: str, counter: int | None, ready: int | None = None) -> tuple[Decision, str | None]:
        """Decide for a node that says it has the weights of step `ready`; the second value is the id of the lease it
        holds now."""
        now = self._clock()
        with self._lock:
            state = self._watch.state
            account = self._watch.account(state, address)
            why = barred(account, self._watch.pool_id)
            due, joined = (account.counter, account.joined_step) if account else (0, 0)
            node = Requester(address, due, joined, why, ready)
            decision = decide(self._rule, self._supply(state, now), node, counter, now)
            if not isinstance(decision, Grant):
                return decision, self._noted(address, decision, now)
            with self._store.granting() as granting:
                if granting.news:
                    decision = decide(self._rule, self._supply(state, now), node, counter, now)
                lease = self._granted(granting, address, decision, now) if isinstance(decision, Grant) else None
            if lease is None:
                return decision, self._noted(address, decision, now)
            self._asked.pop(address, None)
            self._count_in(lease, replaces=isinstance(decision, Grant) and decision.replaces is not None)
            return decision, lease.id

    def renew(self, address: str, lease_id: str) -> float | None:
        """A heartbeat for a lease; when it ends now, or None if the node has no such open lease."""
        expires = self.renew_known(address, lease_id)
        if expires is None:
            # Another replica may have granted it.
            self._store.read()
            expires = self.renew_known(address, lease_id)
        return expires

    def renew_known(self, address: str, lease_id: str) -> float | None:
        """As `renew`, for the leases that this replica knows: without a look into the database."""
        now = self._clock()
        lease = self._store.find(lease_id, address, now)
        if lease is None:
            return None
        expires = renew(self._rule, lease, now)
        self._store.renew(lease, expires)
        return expires

    def in_flight(self) -> InFlightEntry:
        """What is in flight now."""
        now = self._clock()
        with self._lock:
            return self._counted(self._supply(self._watch.state, now), now)

    def _noted(self, address: str, decision: Decision, now: float) -> str | None:
        """What a decision other than a grant changes; the id of the lease that the node keeps."""
        self._asked.pop(address, None)
        if isinstance(decision, Wait) and decision.queued:
            self._asked[address] = now
        if not isinstance(decision, Keep):
            return None
        self._store.renew(decision.lease, decision.expires)
        return decision.lease.id

    def _granted(self, granting: Granting, address: str, grant: Grant, now: float) -> Lease:
        lease = Lease(secrets.token_hex(16), address, grant.step, grant.counter, now, grant.expires, grant.limit)
        granting.add(lease, grant.replaces)
        self._grants[address, grant.counter, grant.step] = now
        return lease

    def _count_in(self, lease: Lease, replaces: bool) -> None:
        """Add a new lease to what was counted; one that replaces another is counted anew."""
        if self._supplied is None or replaces:
            self._supplied = None
            return
        key, when, supply = self._supplied
        count = supply.count
        if count is not None:
            expected = count.expected + supply.pace.share(lease.node)
            count = count.model_copy(update={"leased": count.leased + 1, "expected": expected})
        self._supplied = key, when, replace(supply, leases=[*supply.leases, lease], count=count)

    def _counted(self, supply: Supply, now: float) -> InFlightEntry:
        return supply.count or in_flight(self._rule, supply, now)

    def _supply(self, state: State, now: float) -> Supply:
        pool, facts = self._watch.pool(state), self.facts(state)
        self._asked = {node: when for node, when in self._asked.items() if now - when <= self._rule.ask_window}
        marks = (pool.step if pool else -1, facts.trained.newest, len(facts.consumed), facts.accepted)
        if marks != self._progress[0]:
            self._progress = (marks, now)
        key = (state.version, state.head, facts.trained, self._store.generation)
        known = self._supplied
        if known is not None and known[0] == key and 0 <= now - known[1] < RECOUNT_SECONDS:
            return replace(known[2], asked=self._asked, changed=self._progress[1])
        supply = Supply(
            published=pool.step if pool and pool.steps else None,
            usable=self._watch.usable_step(state),
            trained=facts.trained.newest,
            consumed=facts.consumed,
            files=facts.files,
            leases=self._store.open(now, lambda node: self._next_counter(state, node)),
            asked=self._asked,
            granted=self._store.granted,
            reached=self._store.reached,
            closed=f"the pool is {pool.status}" if pool and pool.status not in ("open", *_HALTED) else "",
            halted=_HALTED.get(pool.status, "") if pool else "",
            affordable=facts.affordable,
            changed=self._progress[1],
            pace=facts.pace,
        )
        supply = replace(supply, count=in_flight(self._rule, supply, now))
        self._supplied = key, now, supply
        return supply

    def _next_counter(self, state: State, node: str) -> int:
        account = self._watch.account(state, node)
        return account.counter if account else 0

    def facts(self, state: State) -> PoolFacts:
        """Worked out once per change of the state or of the reports."""
        known = self._facts
        if known.version == state.version and known.trained is self._trained:
            return known
        self._tally.update(state, self._trained)
        tally, pool = self._tally, self._watch.pool(state)
        affordable, pace = 0, Pace()
        if pool is not None:
            terms = pool.terms
            cost = min(self._file_units, terms.maxUnits) * terms.rate + terms.fee * terms.committee
            affordable = max(0, escrow(state, pool.pool, tally.sums).free) // max(1, cost)
            earliest = self._clock() - MEMORY_SECONDS
            self._grants = {key: at for key, at in self._grants.items() if at > earliest}
            newest = [state.submissions[pool.pool, sequence] for sequence in pool.sequences[-RECENT_FILES:]]
            pace = measure(pool, newest, self._grants)
        self._facts = PoolFacts(
            version=state.version,
            trained=self._trained,
            files=tally.queued,
            accepted=tally.accepted,
            consumed=set(tally.consumed),
            affordable=affordable,
            pace=pace,
        )
        return self._facts
