"""The shell around the scheduler: leases in the database, the rest from the chain's state."""

import secrets
import threading
import time
from collections.abc import Callable

from sqlalchemy import func, select, update

from chain.records import Status, Submission
from chain.state import State
from orchestrator.db import Database
from orchestrator.ledger import escrow
from orchestrator.pace import MEMORY_SECONDS, Grants, Pace, measure
from orchestrator.scheduler import Decision, Grant, Keep, Requester, Wait, decide, renew
from orchestrator.supply import FileState, InFlight, Lease, QueuedFile, Rule, Supply, in_flight
from orchestrator.tables import LeaseRow, StepReportRow
from orchestrator.trained import Trained, load
from orchestrator.watch import Watch, barred


class Leases:
    """Grants and keeps work slots; one decision at a time. Survives restarts: leases are in the database."""

    def __init__(
        self, db: Database, watch: Watch, rule: Rule, file_units: int, clock: Callable[[], float] = time.time
    ) -> None:
        self._db, self._watch, self._rule, self._file_units, self._clock = db, watch, rule, file_units, clock
        self._lock = threading.Lock()
        self._asked: dict[str, float] = {}
        self._known_at: tuple[int, int] = (-1, -1)
        self._files: list[QueuedFile] = []
        self._consumed: set[int] = set()
        self._affordable = 0
        self._pace = Pace()
        self._progress: tuple[tuple[object, ...], float] = ((), clock())
        with db.session() as session:
            last = select(LeaseRow.node, func.max(LeaseRow.granted)).group_by(LeaseRow.node)
            self._granted: dict[str, float] = dict(session.execute(last).all())
            recent = select(LeaseRow).where(LeaseRow.granted > clock() - MEMORY_SECONDS).order_by(LeaseRow.granted)
            self._grants: Grants = {(row.node, row.counter, row.step): row.granted for row in session.scalars(recent)}
        self._reports = 0
        self._trained, self._newest = Trained(), 0
        self.read_reports()

    def read_reports(self) -> None:
        """Take in what the trainer has reported; to be called after every report."""
        with self._lock, self._db.session() as session:
            self._trained = load(session)
            self._newest = session.scalar(select(func.max(StepReportRow.step))) or 0
            self._reports += 1

    def ask(self, address: str, counter: int | None) -> tuple[Decision, str | None]:
        """Decide for a node; the second value is the id of the lease it holds now."""
        now = self._clock()
        with self._lock, self._watch.reading() as state:
            account = self._watch.account(state, address)
            why = barred(account, self._watch.pool_id)
            node = Requester(address, account.counter if account else 0, account.joined_step if account else 0, why)
            decision = decide(self._rule, self._supply(state, now), node, counter, now)
            return decision, self._carry_out(address, decision, now)

    def renew(self, address: str, slot: str) -> float | None:
        """A heartbeat for a lease; when it ends now, or None if the node has no such open lease."""
        now = self._clock()
        with self._lock, self._db.session() as session:
            row = session.get(LeaseRow, slot)
            if row is None or row.node != address or not row.open or row.expires <= now:
                return None
            row.expires = renew(self._rule, _lease(row), now)
            return row.expires

    def in_flight(self) -> InFlight:
        now = self._clock()
        with self._lock, self._watch.reading() as state:
            return in_flight(self._rule, self._supply(state, now), now)

    def _carry_out(self, address: str, decision: Decision, now: float) -> str | None:
        if isinstance(decision, Wait):
            if decision.queued:
                self._asked[address] = now
            else:
                self._asked.pop(address, None)
            return None
        self._asked.pop(address, None)
        if isinstance(decision, Keep):
            with self._db.session() as session:
                session.execute(
                    update(LeaseRow).where(LeaseRow.id == decision.lease.id).values(expires=decision.expires)
                )
            return decision.lease.id
        if not isinstance(decision, Grant):
            return None
        slot = secrets.token_hex(16)
        with self._db.session() as session:
            if decision.replaces is not None:
                session.execute(update(LeaseRow).where(LeaseRow.id == decision.replaces).values(open=False))
            session.add(
                LeaseRow(
                    id=slot,
                    node=address,
                    step=decision.step,
                    counter=decision.counter,
                    granted=now,
                    expires=decision.expires,
                    limit=decision.limit,
                )
            )
        self._granted[address] = now
        self._grants[address, decision.counter, decision.step] = now
        return slot

    def _supply(self, state: State, now: float) -> Supply:
        pool = self._watch.pool(state)
        self._learn(state)
        with self._db.session() as session:
            rows = list(session.scalars(select(LeaseRow).where(LeaseRow.open)))
            for row in rows:
                account = self._watch.account(state, row.node)
                # The file that this lease was for is on chain, or its time is over.
                if row.expires <= now or (account is not None and account.counter > row.counter):
                    row.open = False
            leases = [_lease(row) for row in rows if row.open]
        self._asked = {n: t for n, t in self._asked.items() if now - t <= self._rule.ask_window}
        accepted = sum(one.state is FileState.ACCEPTED for one in self._files)
        marks = (pool.step if pool else -1, self._newest, len(self._consumed), accepted)
        if marks != self._progress[0]:
            self._progress = (marks, now)
        closed = "" if pool is None or pool.status in ("open", "paused") else f"the pool is {pool.status}"
        return Supply(
            published=pool.step if pool and pool.steps else None,
            usable=self._watch.usable_step(state),
            trained=self._newest,
            consumed=self._consumed,
            files=self._files,
            leases=leases,
            asked=self._asked,
            granted=self._granted,
            closed=closed,
            paused=pool is not None and pool.status == "paused",
            affordable=self._affordable,
            changed=self._progress[1],
            pace=self._pace,
        )

    def _learn(self, state: State) -> None:
        """What follows from the chain's state and the reports, worked out once per change of either."""
        now_at = (self._watch.version, self._reports)
        if self._known_at == now_at:
            return
        live = [sub for sub in state.submissions_of(self._watch.pool_id) if sub.status in _LIVE]
        self._files = [_file(sub) for sub in live]
        self._consumed = self._trained.consumed(live)
        pool = self._watch.pool(state)
        if pool is not None:
            terms = pool.terms
            cost = min(self._file_units, terms.maxUnits) * terms.rate + terms.fee * terms.committee
            self._affordable = max(0, escrow(state, pool.pool).free) // max(1, cost)
            earliest = self._clock() - MEMORY_SECONDS
            self._grants = {key: at for key, at in self._grants.items() if at > earliest}
            self._pace = measure(pool, state.submissions_of(pool.pool), self._grants)
        self._known_at = now_at


_LIVE = {Status.PENDING: FileState.PENDING, Status.ACCEPTED: FileState.ACCEPTED}


def _file(sub: Submission) -> QueuedFile:
    return QueuedFile(sub.sequence, sub.node, sub.step, _LIVE[sub.status])


def _lease(row: LeaseRow) -> Lease:
    return Lease(row.id, row.node, row.step, row.counter, row.granted, row.expires, row.limit)
