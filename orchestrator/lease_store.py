"""Leases in the database: they survive restarts, and show afterwards how long each node took.

The open ones are in memory too, as the database has them. Replicas change them one after another: who is about to takes
the next number of changes, and with it a lock on its row; it first reads what the others changed since it last looked.
Renewals do not wait for that: they are kept in memory and written together.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from sqlalchemy import func, select, text
from sqlalchemy.orm import Session

from orchestrator.db import Database
from orchestrator.pace import Grants
from orchestrator.supply import Lease
from orchestrator.tables import LeaseRow

GRACE = 5.0
"""Seconds after which a lease that ran out is closed: another replica may not have written a renewal yet."""
PAST = 1 << 16
"""Closed leases that are remembered: their nodes may name them in heartbeats until they hear that they ended."""
_NUMBER = text("UPDATE lease_changes SET number = number + 1 WHERE id = 1 RETURNING number")
_CHANGED = text(
    "SELECT id, node, step, counter, granted, expires, ends, open, change FROM slots "
    "WHERE change > :seen ORDER BY change"
)
_OPEN = text("SELECT id, node, step, counter, granted, expires, ends FROM slots WHERE open")
_CLOSE = text("UPDATE slots SET open = false, change = :change WHERE id = :id AND open")
_COLUMNS = {
    "id": "text",
    "node": "text",
    "step": "int",
    "counter": "int",
    "granted": "float",
    "expires": "float",
    "ends": "float",
}


class LeaseStore:
    """Leases by their id. A lease is open until its file is on chain, it runs out or another replaces it.

    `granted`: node → when it last got one; `reached`: node → the newest policy step that it ever got one of.
    `generation` grows when another replica replaced one. Thread-safe.
    """

    def __init__(self, db: Database) -> None:
        self._db = db
        self._lock = threading.Lock()
        self._open: dict[str, Lease] = {}
        self._held: dict[str, dict[str, Lease]] = {}
        self._renewed: dict[str, float] = {}
        self._ended: set[str] = set()
        self._past: OrderedDict[str, None] = OrderedDict()
        self._seen = 0
        self.generation = 0
        self._elsewhere: list[Lease] = []
        self._extend = (
            "UPDATE slots SET expires = given.expires, change = :change "
            f"FROM {db.rows({'id': 'text', 'expires': 'float'})} WHERE slots.id = given.id AND slots.open"
        )
        names = ", ".join(_COLUMNS)
        self._insert = (
            f"INSERT INTO slots ({names}, open, change) SELECT {names}, true, :change FROM {db.rows(_COLUMNS)} "
            "WHERE true"
        )
        with db.reading() as session:
            last = select(LeaseRow.node, func.max(LeaseRow.granted), func.max(LeaseRow.step)).group_by(LeaseRow.node)
            found = session.execute(last).all()
            self.granted: dict[str, float] = {node: when for node, when, _ in found}
            self.reached: dict[str, int] = {node: step for node, _, step in found}
            self._seen = session.scalar(select(func.max(LeaseRow.change))) or 0
            for row in session.execute(_OPEN):
                self._keep(Lease(*row))

    def grants_since(self, time: float) -> Grants:
        """Every lease granted after `time`."""
        with self._db.reading() as session:
            made = select(LeaseRow.node, LeaseRow.counter, LeaseRow.step, LeaseRow.granted)
            recent = session.execute(made.where(LeaseRow.granted > time).order_by(LeaseRow.granted))
            return {(node, counter, step): granted for node, counter, step, granted in recent}

    def open(self, now: float, next_counter: Callable[[str], int]) -> list[Lease]:
        """The open leases; `next_counter`: node → the counter that the chain expects next of it. Those that ended by
        it are open no more."""
        with self._lock:
            ended = [
                lease.id
                for lease in self._open.values()
                if next_counter(lease.node) > lease.counter or lease.expires + GRACE <= now
            ]
            for one in ended:
                self._forget(one)
            self._ended.update(ended)
            return [lease for lease in self._open.values() if lease.expires > now]

    def held_by(self, node: str) -> list[Lease]:
        """The node's leases that are open as far as this replica knows; some may have run out since."""
        with self._lock:
            return list(self._held.get(node, {}).values())

    def find(self, lease_id: str, node: str, now: float) -> Lease | None:
        """The node's open lease of this id, as far as this replica knows."""
        with self._lock:
            lease = self._open.get(lease_id)
        return lease if lease is not None and lease.node == node and lease.expires > now else None

    def has_ended(self, lease_id: str) -> bool:
        """Whether a lease was closed, for good, as far as this replica knows and remembers."""
        with self._lock:
            return lease_id in self._past

    def granted_elsewhere(self) -> list[Lease]:
        """What other replicas granted, as far as it was taken in since the last call."""
        with self._lock:
            found, self._elsewhere = self._elsewhere, []
        return found

    def renew(self, lease: Lease, expires: float) -> None:
        """Move the end of an open lease; `write` makes it last."""
        with self._lock:
            if lease.id in self._open:
                self._keep(lease._replace(expires=expires))
                self._renewed[lease.id] = expires

    @contextmanager
    def granting(self) -> Iterator["Granting"]:
        """One transaction in which no other replica changes leases; what they changed before is known in it."""
        with self._db.session() as session:
            number = session.scalar(_NUMBER)
            assert number is not None, "the migrations make the row"
            news = self._take_in(session)
            granting = Granting(news)
            yield granting
            self._grant(session, number, granting.added)
        with self._lock:
            self._seen = max(self._seen, number)
            for lease, replaced in granting.added:
                if replaced is not None:
                    self._forget(replaced)
                self._keep(lease)
                self._note(lease)

    def _grant(self, session: Session, change: int, added: Sequence[tuple[Lease, str | None]]) -> None:
        """Write leases, then the ends of those that they replace: the one or other may be among them."""
        if added:
            rows = [(one.id, one.node, one.step, one.counter, one.granted, one.expires, one.limit) for one, _ in added]
            self._db.bulk(session, self._insert, rows, change=change)
        ended = [{"id": replaced, "change": change} for _, replaced in added if replaced is not None]
        if ended:
            session.execute(_CLOSE, ended)

    def read(self) -> None:
        """Take in what other replicas changed."""
        with self._db.reading() as session:
            self._take_in(session)

    def write(self) -> None:
        """Write renewals and ends since the last time, and take in what other replicas changed before."""
        with self._lock:
            renewed, self._renewed = self._renewed, {}
            ended, self._ended = self._ended, set()
        if not renewed and not ended:
            return
        try:
            with self._db.session() as session:
                change = session.scalar(_NUMBER)
                assert change is not None, "the migrations make the row"
                self._take_in(session)
                if renewed:
                    self._db.bulk(session, self._extend, sorted(renewed.items()), change=change)
                if ended:
                    session.execute(_CLOSE, [{"id": one, "change": change} for one in sorted(ended)])
        except Exception:
            with self._lock:
                self._renewed, self._ended = renewed | self._renewed, ended | self._ended
            raise
        # Everything before was taken in: nobody else has to read what this replica wrote.
        with self._lock:
            self._seen = max(self._seen, change)

    def _take_in(self, session: Session) -> bool:
        """Whether there was anything new of other replicas, which is known now."""
        news = False
        opened: set[tuple[str, int]] = set()
        closed: set[tuple[str, int]] = set()
        for row in session.execute(_CHANGED, {"seen": self._seen}):
            lease = Lease(row.id, row.node, row.step, row.counter, row.granted, row.expires, row.ends)
            with self._lock:
                self._seen = max(self._seen, row.change)
                if self._changed(lease, bool(row.open)):
                    news = True
                    (opened if row.open else closed).add((lease.node, lease.counter))
        # One that simply ended only frees its place, and what is in flight is counted anew soon enough.
        self.generation += bool(opened & closed)
        return news

    def _note(self, lease: Lease) -> bool:
        """Whether no lease of the node's was of as new a step."""
        newer = lease.step > self.reached.get(lease.node, -1)
        self.granted[lease.node] = max(lease.granted, self.granted.get(lease.node, 0.0))
        self.reached[lease.node] = max(lease.step, self.reached.get(lease.node, 0))
        return newer

    def _changed(self, lease: Lease, is_open: bool) -> bool:
        # One that ended before this replica heard of it says all the same how far its node has come.
        newer = self._note(lease)
        known = self._open.get(lease.id)
        if not is_open:
            self._forget(lease.id)
            return known is not None or newer
        if lease.id in self._ended or lease.id in self._past:
            return newer
        if known is None:
            self._elsewhere.append(lease)
        if known is None or known.expires < lease.expires:
            self._keep(lease)
        return known is None

    def _keep(self, lease: Lease) -> None:
        self._open[lease.id] = lease
        self._held.setdefault(lease.node, {})[lease.id] = lease

    def _forget(self, lease_id: str) -> None:
        """A lease is open no more: nothing opens it again."""
        lease = self._open.pop(lease_id, None)
        if lease is not None:
            own = self._held[lease.node]
            del own[lease_id]
            if not own:
                del self._held[lease.node]
        self._past[lease_id] = None
        while len(self._past) > PAST:
            self._past.popitem(last=False)


class Granting:
    """A transaction of `LeaseStore.granting`; `news`: another replica had changed leases. `added` is written at its
    end: leases, each with the id of the one that it replaces, or None."""

    def __init__(self, news: bool) -> None:
        self.news = news
        self.added: list[tuple[Lease, str | None]] = []

    def add(self, leases: Iterable[tuple[Lease, str | None]]) -> None:
        """Open leases; those that they replace end."""
        self.added.extend(leases)
