"""The shell around the scheduler: leases from the database, the rest from the chain and the trainer's reports."""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from chain.indexer.state import State
from orchestrator.db import Database
from orchestrator.deciding import Ask, Deciding, Told
from orchestrator.lease_store import Granting, LeaseStore
from orchestrator.ledger import escrow
from orchestrator.pace import MEMORY_SECONDS, RECENT_FILES, Pace, measure
from orchestrator.scheduler import Decision, Grant, Requester, renew
from orchestrator.supply import QueuedFile, Rule, Supply, in_flight, with_lease
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

    def ask(self, address: str, counter: int | None, ready: int | None = None) -> Told:
        """Decide for one node."""
        told = self.ask_together([Ask(address, counter, ready)])[0]
        if isinstance(told, Exception):
            raise told
        return told

    def ask_together(self, asks: Sequence[Ask]) -> list[Told | Exception]:
        """Decide for nodes in this order, as if each had asked alone; all leases that are granted last after one
        transaction, or none does and it raises. Where a decision fails, its exception takes the place of its answer."""
        now, told = self._clock(), list[Told | Exception]()
        with self._lock:
            state = self._watch.state
            known, generation, counters = self._supply(state, now), self._store.generation, self._next_counter(state)
            deciding = Deciding(self._rule, known, now, lambda: self._store.open(now, counters))
            with ExitStack() as stack:
                granting: Granting | None = None
                for ask in asks:
                    decision = self._decided(deciding, state, ask)
                    if isinstance(decision, Grant) and granting is None:
                        granting = stack.enter_context(self._store.granting())
                        if self._count_others() or granting.news or self._store.generation != generation:
                            deciding.learn(self._supply(state, now))
                            decision = self._decided(deciding, state, ask)
                    told.append(decision if isinstance(decision, Exception) else deciding.take(ask.address, decision))
                if granting is not None:
                    granting.add(deciding.granted)
            self._take_over(deciding, now)
        return told

    def renew(self, address: str, lease_id: str) -> float | None:
        """A heartbeat for a lease; when it ends now, or None if the node has no such open lease."""
        expires = self.renew_known(address, lease_id)
        if expires is None and not self.has_ended(lease_id):
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

    def has_ended(self, lease_id: str) -> bool:
        """Whether this replica knows that a lease is open nowhere."""
        return self._store.has_ended(lease_id)

    def in_flight(self) -> InFlightEntry:
        """What is in flight now."""
        now = self._clock()
        with self._lock:
            return self._counted(self._supply(self._watch.state, now), now)

    def _decided(self, deciding: Deciding, state: State, ask: Ask) -> Decision | Exception:
        account = self._watch.account(state, ask.address)
        due, joined = (account.counter, account.joined_step) if account else (0, 0)
        own = deciding.held(ask.address, self._store.held_by(ask.address))
        node = Requester(ask.address, due, joined, barred(account, self._watch.pool_id), ask.ready, own)
        try:
            return deciding.decide(node, ask.counter)
        except Exception as error:
            return error

    def _take_over(self, deciding: Deciding, now: float) -> None:
        """Know what was decided, after what was granted has been written."""
        self._asked = deciding.asked
        for lease, _ in deciding.granted:
            place = (lease.node, lease.counter, lease.step)
            self._grants.pop(place, None)
            self._grants[place] = now
        if deciding.replaces():
            self._supplied = None
        elif deciding.granted and self._supplied is not None:
            key, when, known = self._supplied
            counted = deciding.supply
            self._supplied = key, when, replace(known, leases=counted.leases, count=counted.count)
        for kept in deciding.kept:
            self._store.renew(kept.lease, kept.expires)

    def _count_others(self) -> bool:
        """Add what other replicas granted to what was counted; whether there was anything."""
        granted = self._store.granted_elsewhere()
        if self._supplied is not None:
            key, when, supply = self._supplied
            for lease in granted:
                supply = with_lease(supply, lease)
            self._supplied = key, when, supply
        return bool(granted)

    def _counted(self, supply: Supply, now: float) -> InFlightEntry:
        return supply.count or in_flight(self._rule, supply, now)

    def _supply(self, state: State, now: float) -> Supply:
        pool, facts = self._watch.pool(state), self.facts(state)
        self._asked = {node: when for node, when in self._asked.items() if now - when <= self._rule.ask_window}
        marks = (pool.step if pool else -1, facts.trained.newest, len(facts.consumed), facts.accepted)
        if marks != self._progress[0]:
            self._progress = (marks, now)
        key = (state.version, state.head, facts.trained, self._store.generation)
        self._count_others()
        known = self._supplied
        if known is not None and known[0] == key and 0 <= now - known[1] < RECOUNT_SECONDS:
            return replace(known[2], asked=self._asked, changed=self._progress[1])
        supply = Supply(
            published=pool.step if pool and pool.steps else None,
            usable=self._watch.usable_step(state),
            trained=facts.trained.newest,
            consumed=facts.consumed,
            files=facts.files,
            leases=self._store.open(now, self._next_counter(state)),
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

    def _next_counter(self, state: State) -> Callable[[str], int]:
        # Asked for every lease: no more calls than it takes.
        accounts, pool = state.accounts, self._watch.pool_id

        def of(node: str) -> int:
            account = accounts.get((pool, node))
            return account.counter if account is not None else 0

        return of

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
            # In the order of their times.
            while self._grants and next(iter(self._grants.values())) <= earliest:
                del self._grants[next(iter(self._grants))]
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
