"""The shell around the scheduler: leases from the database, the rest from the chain and the trainer's reports."""

import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from chain.records import Status
from chain.state import State
from orchestrator.db import Database
from orchestrator.lease_store import LeaseStore
from orchestrator.ledger import escrow
from orchestrator.pace import MEMORY_SECONDS, Pace, measure
from orchestrator.scheduler import Decision, Grant, Keep, Requester, Wait, decide, renew
from orchestrator.supply import Lease, QueuedFile, Rule, Supply, in_flight
from orchestrator.trained import Trained, load
from orchestrator.watch import Watch, barred
from protocol.api.run import InFlightEntry


@dataclass(frozen=True)
class PoolFacts:
    """What follows from one version of the chain's state and from the reports; `affordable`: further files that the
    free budget covers."""

    version: int = -1
    trained: Trained = field(default_factory=Trained)
    files: list[QueuedFile] = field(default_factory=list)
    consumed: set[int] = field(default_factory=set)
    affordable: int = 0
    pace: Pace = field(default_factory=Pace)


_HALTED = {
    "paused": "the pool's owner has paused it",
    "understaffed": "too few seats judge the pool: it takes no work until more opt in",
}


class Leases:
    """Grants and renews work slots, one decision at a time. `file_units`: output tokens of the largest file."""

    def __init__(
        self, db: Database, watch: Watch, rule: Rule, file_units: int, clock: Callable[[], float] = time.time
    ) -> None:
        self._db, self._store = db, LeaseStore(db)
        self._watch, self._rule, self._file_units, self._clock = watch, rule, file_units, clock
        self._lock = threading.Lock()
        self._asked: dict[str, float] = {}
        self._granted = self._store.last_grants()
        self._grants = self._store.grants_since(clock() - MEMORY_SECONDS)
        self._progress: tuple[tuple[int, ...], float] = ((), clock())
        self._facts = PoolFacts()
        self.read_reports()

    def read_reports(self) -> None:
        """Take in what the trainer has reported; to be called after every report."""
        with self._lock, self._db.session() as session:
            self._trained = load(session)

    def ask(self, address: str, counter: int | None) -> tuple[Decision, str | None]:
        """Decide for a node; the second value is the id of the lease it holds now."""
        now = self._clock()
        with self._lock:
            state = self._watch.state
            account = self._watch.account(state, address)
            why = barred(account, self._watch.pool_id)
            node = Requester(address, account.counter if account else 0, account.joined_step if account else 0, why)
            decision = decide(self._rule, self._supply(state, now), node, counter, now)
            return decision, self._carry_out(address, decision, now)

    def renew(self, address: str, lease_id: str) -> float | None:
        """A heartbeat for a lease; when it ends now, or None if the node has no such open lease."""
        now = self._clock()
        with self._lock:
            lease = self._store.find(lease_id, address, now)
            if lease is None:
                return None
            expires = renew(self._rule, lease, now)
            self._store.extend(lease_id, expires)
            return expires

    def in_flight(self) -> InFlightEntry:
        """What is in flight now."""
        now = self._clock()
        with self._lock:
            state = self._watch.state
            return in_flight(self._rule, self._supply(state, now), now)

    def _carry_out(self, address: str, decision: Decision, now: float) -> str | None:
        self._asked.pop(address, None)
        if isinstance(decision, Wait) and decision.queued:
            self._asked[address] = now
        if isinstance(decision, Keep):
            self._store.extend(decision.lease.id, decision.expires)
            return decision.lease.id
        if not isinstance(decision, Grant):
            return None
        new = Lease(
            secrets.token_hex(16), address, decision.step, decision.counter, now, decision.expires, decision.limit
        )
        self._store.add(new, decision.replaces)
        self._granted[address] = now
        self._grants[address, decision.counter, decision.step] = now
        return new.id

    def _supply(self, state: State, now: float) -> Supply:
        pool, facts = self._watch.pool(state), self.facts(state)
        self._asked = {node: when for node, when in self._asked.items() if now - when <= self._rule.ask_window}
        accepted = sum(one.status is Status.ACCEPTED for one in facts.files)
        marks = (pool.step if pool else -1, facts.trained.newest, len(facts.consumed), accepted)
        if marks != self._progress[0]:
            self._progress = (marks, now)
        return Supply(
            published=pool.step if pool and pool.steps else None,
            usable=self._watch.usable_step(state),
            trained=facts.trained.newest,
            consumed=facts.consumed,
            files=facts.files,
            leases=self._store.open(now, lambda node: self._next_counter(state, node)),
            asked=self._asked,
            granted=self._granted,
            closed=f"the pool is {pool.status}" if pool and pool.status not in ("open", *_HALTED) else "",
            halted=_HALTED.get(pool.status, "") if pool else "",
            affordable=facts.affordable,
            changed=self._progress[1],
            pace=facts.pace,
        )

    def _next_counter(self, state: State, node: str) -> int:
        account = self._watch.account(state, node)
        return account.counter if account else 0

    def facts(self, state: State) -> PoolFacts:
        """Worked out once per change of the state or of the reports."""
        known = self._facts
        if known.version == state.version and known.trained is self._trained:
            return known
        files = state.submissions_of(self._watch.pool_id)
        live = [sub for sub in files if sub.status in (Status.PENDING, Status.ACCEPTED)]
        pool = self._watch.pool(state)
        affordable, pace = 0, Pace()
        if pool is not None:
            terms = pool.terms
            cost = min(self._file_units, terms.maxUnits) * terms.rate + terms.fee * terms.committee
            affordable = max(0, escrow(state, pool.pool).free) // max(1, cost)
            earliest = self._clock() - MEMORY_SECONDS
            self._grants = {key: at for key, at in self._grants.items() if at > earliest}
            pace = measure(pool, files, self._grants)
        self._facts = PoolFacts(
            version=state.version,
            trained=self._trained,
            files=[QueuedFile(sub.sequence, sub.node, sub.step, sub.status) for sub in live],
            consumed=self._trained.consumed(live),
            affordable=affordable,
            pace=pace,
        )
        return self._facts
