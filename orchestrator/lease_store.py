"""Leases in the database: they survive restarts, and show afterwards how long each node took."""

from collections.abc import Callable

from sqlalchemy import func, select, update

from orchestrator.db import Database
from orchestrator.pace import Grants
from orchestrator.supply import Lease
from orchestrator.tables import LeaseRow


class LeaseStore:
    """Leases by their id. A lease is open until its file is on chain, it runs out or another replaces it."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def last_grants(self) -> dict[str, float]:
        """Node → when it last got a lease, Unix seconds."""
        with self._db.session() as session:
            last = select(LeaseRow.node, func.max(LeaseRow.granted)).group_by(LeaseRow.node)
            return dict(session.execute(last).all())

    def grants_since(self, time: float) -> Grants:
        """Every lease granted after `time`."""
        with self._db.session() as session:
            recent = select(LeaseRow).where(LeaseRow.granted > time).order_by(LeaseRow.granted)
            return {(row.node, row.counter, row.step): row.granted for row in session.scalars(recent)}

    def open(self, now: float, next_counter: Callable[[str], int]) -> list[Lease]:
        """The open leases; `next_counter`: node → the counter that the chain expects next of it."""
        with self._db.session() as session:
            rows = list(session.scalars(select(LeaseRow).where(LeaseRow.open)))
            for row in rows:
                row.open = row.expires > now and next_counter(row.node) <= row.counter
            return [_lease(row) for row in rows if row.open]

    def find(self, lease_id: str, node: str, now: float) -> Lease | None:
        """The node's open lease of this id."""
        with self._db.session() as session:
            row = session.get(LeaseRow, lease_id)
            found = row is not None and row.node == node and row.open and row.expires > now
            return _lease(row) if row is not None and found else None

    def add(self, lease: Lease, replaces: str | None) -> None:
        """Open a lease; the one of the id `replaces` ends."""
        with self._db.session() as session:
            if replaces is not None:
                session.execute(update(LeaseRow).where(LeaseRow.id == replaces).values(open=False))
            session.add(LeaseRow(**vars(lease)))

    def extend(self, lease_id: str, expires: float) -> None:
        with self._db.session() as session:
            session.execute(update(LeaseRow).where(LeaseRow.id == lease_id).values(expires=expires))


def _lease(row: LeaseRow) -> Lease:
    return Lease(row.id, row.node, row.step, row.counter, row.granted, row.expires, row.limit)
