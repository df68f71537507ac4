"""Leases: which node may make which file, granted by the scheduler and kept in the database.

Every replica has the open leases in memory. Each change has a number. Whoever changes leases first locks the counter of
these numbers and reads what other replicas changed, so decisions happen one after another, and each knows the others.
"""

import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from sqlalchemy import bindparam, delete, func, select, tuple_, update
from sqlalchemy.orm import Session

from chain.indexer.state import State
from orchestrator.chain import PoolView, barred
from orchestrator.db import Database, LeaseChangeRow, LeaseRow
from orchestrator.ledger import escrow
from orchestrator.scheduling import scheduler
from orchestrator.scheduling.aggregates import ConsumedFiles, FileAggregates, load_consumed, report_version
from orchestrator.scheduling.scheduler import Decision, Grant, Lease, Pace, QueueState, Requester, Rule, Wait
from protocol.api.run import EscrowEntry, InFlightEntry

# Longest time for which a count of files in flight is used while nothing is known to have changed.
RECOUNT_SECONDS = 0.5
# How long after its end a lease is closed in the database: replicas' clocks may differ.
EXPIRED_SECONDS = 60.0
_HALTED = {
    "paused": "the pool's owner has paused it",
    "understaffed": "too few seats judge the pool: it takes no work until more opt in",
}
_COLUMNS = [getattr(LeaseRow, name) for name in Lease._fields]
_CHANGED = (
    select(*_COLUMNS, LeaseRow.open, LeaseRow.change)
    .where(LeaseRow.change > bindparam("seen"))
    .order_by(LeaseRow.change)
)  # built once: every request for a lease runs it


class LeaseStore:
    """Leases in the database. `granted`: node → when it last got one; `reached`: node → the newest policy step that it
    ever got one of; `version` grows when a lease is opened or closed. Thread-safe."""

    def __init__(self, db: Database) -> None:
        self._db, self._lock = db, threading.Lock()
        self._open: dict[str, Lease] = {}
        self.version = 0
        newest = select(LeaseRow.node, func.max(LeaseRow.granted), func.max(LeaseRow.step)).group_by(LeaseRow.node)
        with db.reading() as session:
            rows = session.execute(newest).all()
            self.granted: dict[str, float] = {node: when for node, when, _ in rows}
            self.reached: dict[str, int] = {node: step for node, _, step in rows}
            self._seen = session.scalar(select(func.max(LeaseRow.change))) or 0
            for row in session.execute(select(*_COLUMNS).where(LeaseRow.open)):
                self._open[row.id] = Lease(*row)

    def open(self, now: float) -> list[Lease]:
        """Return the leases that have not run out, as far as this replica knows."""
        with self._lock:
            return [lease for lease in self._open.values() if lease.expires > now]

    def held_by(self, node: str) -> list[Lease]:
        """Return the node's leases that were not closed."""
        with self._lock:
            return [lease for lease in self._open.values() if lease.node == node]

    def find(self, lease_id: str, node: str, now: float) -> Lease | None:
        """Return the node's open lease of this id."""
        lease = self._open.get(lease_id)
        return lease if lease is not None and lease.node == node and lease.expires > now else None

    def grants_since(self, time: float) -> dict[tuple[str, int, int], float]:
        """Return (node, counter, policy step) → time of every lease granted after `time`."""
        columns = select(LeaseRow.node, LeaseRow.counter, LeaseRow.step, LeaseRow.granted)
        with self._db.reading() as session:
            rows = session.execute(columns.where(LeaseRow.granted > time).order_by(LeaseRow.granted))
            return {(node, counter, step): granted for node, counter, step, granted in rows}

    @contextmanager
    def changing(self) -> Iterator["LeaseChange"]:
        """Open a transaction in which no other replica changes leases; their earlier changes are read first."""
        following = update(LeaseChangeRow).values(number=LeaseChangeRow.number + 1).returning(LeaseChangeRow.number)
        with self._db.session() as session:
            number = session.execute(following).scalar_one()
            self.sync(session)
            yield LeaseChange(session, number)
        with self._db.reading() as session:
            self.sync(session)

    def sync(self, session: Session) -> None:
        """Read what was changed, by this replica or others."""
        with self._lock:  # a thread that applies what it read before another would open again what that one closed
            for *fields, is_open, number in session.execute(_CHANGED, {"seen": self._seen}):
                self._seen = max(self._seen, number)
                self._keep(Lease(*fields))
                if not is_open:
                    self.version += self._open.pop(fields[0], None) is not None

    def prune(self, now: float, in_database: bool, keep: float) -> None:
        """Drop leases that ran out long ago from memory. Perhaps close them `in_database`, and delete closed ones that
        were granted `keep` seconds ago, except the newest of each node."""
        with self._lock:
            self._open = {key: lease for key, lease in self._open.items() if lease.expires + EXPIRED_SECONDS > now}
        if in_database:
            expired = LeaseRow.open & (LeaseRow.expires < now - EXPIRED_SECONDS)
            with self._db.session() as session:
                session.execute(update(LeaseRow).where(expired).values(open=False))
                newest = select(LeaseRow.node, func.max(LeaseRow.granted)).group_by(LeaseRow.node)
                is_newest = tuple_(LeaseRow.node, LeaseRow.granted).in_(newest)
                old = ~LeaseRow.open & (LeaseRow.granted < now - keep) & ~is_newest
                session.execute(delete(LeaseRow).where(old), execution_options={"synchronize_session": False})

    def _keep(self, lease: Lease) -> None:
        self.version += lease.id not in self._open
        self.granted[lease.node] = max(lease.granted, self.granted.get(lease.node, 0.0))
        self.reached[lease.node] = max(lease.step, self.reached.get(lease.node, 0))
        self._open[lease.id] = lease


class LeaseChange:
    """Changes of one transaction, which the store reads back once it is committed."""

    def __init__(self, session: Session, number: int) -> None:
        self._session, self._number = session, number

    def grant(self, lease: Lease, replaces: str = "") -> None:
        """Open a lease and close the one that it replaces."""
        self._session.add(LeaseRow(**lease._asdict(), open=True, change=self._number))
        if replaces:
            self._update(replaces, open=False)

    def renew(self, lease: Lease) -> None:
        """Move the end of a lease to its `expires`, unless it was closed."""
        self._update(lease.id, expires=lease.expires)

    def _update(self, lease_id: str, **values: object) -> None:
        row = LeaseRow.open & (LeaseRow.id == lease_id)
        self._session.execute(update(LeaseRow).where(row).values(**values, change=self._number))


class Leases:
    """Grants and renews leases, one decision at a time. `file_units`: output tokens of the largest file; `handed_in`:
    how many of a node's files, from a counter on, wait to be relayed."""

    def __init__(
        self,
        db: Database,
        view: PoolView,
        rule: Rule,
        file_units: int,
        handed_in: Callable[[str, int], int] = lambda node, counter: 0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._db, self._store = db, LeaseStore(db)
        self._view, self._rule, self._file_units, self._clock = view, rule, file_units, clock
        self._handed_in = handed_in
        self._lock = threading.Lock()
        self._asked: dict[str, float] = {}
        self._progress: tuple[tuple[int, ...], float] = ((), clock())
        self._aggregates = FileAggregates(view.pool_id)
        self._consumed = ConsumedFiles()
        self._reported: object = None
        self._facts: tuple[int, ConsumedFiles, QueueState] | None = None
        self._counted: tuple[object, float, QueueState] | None = None

    def request(self, address: str, counter: int | None, ready: int | None = None) -> Decision:
        """Decide for a node that asks for its file `counter`, None for its next; a Grant's lease is in the database.
        `ready`: the newest policy step whose weights the node says it has."""
        with self._lock:
            self._sync()
            decision = self._decide(address, counter, ready)
            if isinstance(decision, Grant):
                with self._store.changing() as change:
                    # Another replica may have granted something since.
                    decision = self._decide(address, counter, ready)
                    if isinstance(decision, Grant) and decision.lease.id:
                        change.renew(decision.lease)
                    elif isinstance(decision, Grant):
                        decision = replace(decision, lease=decision.lease._replace(id=secrets.token_hex(16)))
                        change.grant(decision.lease, decision.replaces)
            self._asked.pop(address, None)
            if isinstance(decision, Wait) and decision.queued:
                self._asked[address] = self._clock()
            return decision

    def renew(self, address: str, ids: Sequence[str]) -> float | None:
        """Renew leases by a heartbeat. Return when the first of them ends now, None if the node has none of these."""
        now = self._clock()
        with self._db.reading() as session:
            self._store.sync(session)  # another replica may have granted them
        if not any(self._store.find(lease_id, address, now) for lease_id in ids):
            return None
        ends = []
        with self._store.changing() as change:
            for lease in filter(None, (self._store.find(lease_id, address, now) for lease_id in ids)):
                ends.append(scheduler.renew(self._rule, lease, now))
                change.renew(lease._replace(expires=ends[-1]))
        return min(ends, default=None)

    def in_flight(self) -> InFlightEntry:
        with self._lock:
            self._sync()
            count = self._queue_state().count
            assert count is not None
            return count

    def escrow(self) -> EscrowEntry | None:
        """Return the pool's escrow now, from sums that are kept; None while the pool is not on chain."""
        with self._lock:
            self._sync()
            state = self._view.state
            self.facts(state)
            return escrow(state, self._view.pool_id, self._aggregates.sums) if self._view.pool(state) else None

    def prune(self, leads: bool) -> None:
        """Drop leases that ran out long ago, from the database if this replica `leads`."""
        self._store.prune(self._clock(), leads, self._rule.lease_limit)

    def _decide(self, address: str, counter: int | None, ready: int | None) -> Decision:
        now, account = self._clock(), self._view.account(self._view.state, address)
        next_counter, joined = (account.counter, account.joined_step) if account else (0, 0)
        own = [lease for lease in self._store.held_by(address) if lease.counter >= next_counter]
        handed_in = self._handed_in(address, next_counter)
        node = Requester(address, next_counter, joined, barred(account, self._view.pool_id), ready, own, handed_in)
        return scheduler.decide(self._rule, self._queue_state(), node, counter, now)

    def _sync(self) -> None:
        with self._db.reading() as session:
            self._store.sync(session)
            version = report_version(session)
            if version != self._reported:
                self._consumed, self._reported = load_consumed(session), version

    def _queue_state(self) -> QueueState:
        now, state = self._clock(), self._view.state
        facts = self.facts(state)
        self._asked = {node: when for node, when in self._asked.items() if now - when <= scheduler.WAITING_SECONDS}
        progress = (facts.published or 0, facts.trained, len(facts.consumed), self._aggregates.accepted)
        if progress != self._progress[0]:
            self._progress = (progress, now)
        key = (state.version, state.head, self._consumed, self._store.version)
        if self._counted is not None:
            counted_key, when, queue = self._counted
            if counted_key == key and 0 <= now - when < RECOUNT_SECONDS:
                return replace(queue, asked=self._asked, changed=self._progress[1])
        # Those whose files are not on chain yet.
        leases = [
            lease
            for lease in self._store.open(now)
            if (account := self._view.account(state, lease.node)) is None or account.counter <= lease.counter
        ]
        usable, changed = self._view.usable_step(state), self._progress[1]
        queue = replace(facts, usable=usable, leases=leases, asked=self._asked, changed=changed)
        queue = replace(queue, count=scheduler.in_flight(self._rule, queue, now))
        self._counted = key, now, queue
        return queue

    def facts(self, state: State) -> QueueState:
        """Return which facts of the queue follow from a state and the reports, computed once for both."""
        if self._facts is not None and self._facts[0] == state.version and self._facts[1] is self._consumed:
            return self._facts[2]
        self._aggregates.update(state, self._consumed)
        pool, affordable, pace = self._view.pool(state), 0, Pace()
        if pool is not None:
            terms = pool.terms
            cost = min(self._file_units, terms.maxUnits) * terms.rate + terms.fee * terms.committee
            affordable = max(0, escrow(state, pool.pool, self._aggregates.sums).free) // max(1, cost)
            newest = [state.submissions[pool.pool, sequence] for sequence in pool.sequences[-scheduler.RECENT_FILES :]]
            pace = scheduler.measure(pool, newest, self._store.grants_since(self._clock() - self._rule.lease_limit))
        facts = QueueState(
            published=pool.step if pool and pool.steps else None,
            trained=self._consumed.newest,
            over=self._consumed.over,
            consumed=set(self._aggregates.consumed),
            files=list(self._aggregates.queued.values()),
            granted=self._store.granted,
            reached=self._store.reached,
            closed=f"the pool is {pool.status}" if pool and pool.status not in ("open", *_HALTED) else "",
            halted=_HALTED.get(pool.status, "") if pool else "",
            affordable=affordable,
            pace=pace,
        )
        self._facts = state.version, self._consumed, facts
        return facts
