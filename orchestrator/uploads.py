"""Upload tickets and receipts: who may put which bytes into the pool's bucket, and proof that they arrived."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from sqlalchemy import delete, select, text, update

from orchestrator.auth import HttpError
from orchestrator.chain import PoolView, barred
from orchestrator.db import Database, ReceiptRow, UploadRow
from protocol.api import work
from protocol.api.work import ReceiptSigner, UploadReceipt
from protocol.identity import PoolId
from protocol.verdict import MAX_DOCUMENT_BYTES
from storage.keys import object_key

TICKET_SECONDS = 900
TICKETS_AT_ONCE = 64
_NEVER = 1 << 40
# One statement each, in text: the ORM's reading, comparing and writing takes ten times the processor's time.
_OPEN_TICKET = text(
    "INSERT INTO tickets (key, node, issued, used) SELECT CAST(:key AS varchar), CAST(:node AS varchar), "
    "CAST(:now AS float8), false WHERE (SELECT count(*) FROM tickets "
    "WHERE node = :node AND issued > :since AND NOT used AND key <> :key) < :most "
    "ON CONFLICT (key, node) DO UPDATE SET issued = excluded.issued, used = false RETURNING key"
)
_GIVE_RECEIPT = text(
    "INSERT INTO receipt_times (sha256, node, time) VALUES (:sha256, :node, :now) "
    "ON CONFLICT (sha256, node) DO UPDATE SET "
    "time = CASE WHEN receipt_times.time >= :oldest THEN receipt_times.time ELSE excluded.time END RETURNING time"
)


class ObjectStore(Protocol):
    """What is needed of a bucket; `storage.s3.Bucket` is one."""

    def get(self, key: str, limit: int) -> bytes: ...
    def size(self, key: str) -> int | None: ...
    def presign_put(self, key: str, size: int, sha256: bytes, expires: int = 900) -> work.UploadTicket: ...
    def presign_get(self, key: str, expires: int = 900) -> str: ...


@dataclass(frozen=True)
class Uploads:
    db: Database
    view: PoolView
    store: ObjectStore
    receipts: ReceiptSigner
    max_bytes: int
    clock: Callable[[], float] = time.time

    @property
    def pool(self) -> PoolId:
        """The pool whose uploads these are."""
        return self.receipts.pool

    def ticket(self, address: str, body: work.UploadRequest) -> work.UploadResponse:
        """Return a ticket for an upload, or that the bytes are there already. Raises HttpError 403, 409, 413, 429."""
        key = self._allowed(address, body)
        if self._has(key, body.size):
            return work.UploadExists(key=key)
        now = self.clock()
        if not self._open(address, key, now):
            self._close_used(address, now)
            if not self._open(address, key, now):
                raise HttpError(429, f"{TICKETS_AT_ONCE} tickets are open for this key", "use them first", 30)
        ticket = self.store.presign_put(key, body.size, bytes.fromhex(body.sha256), TICKET_SECONDS)
        return work.UploadNeeded(key=key, **ticket.model_dump())

    def receipt(self, address: str, sha256: str, size: int) -> UploadReceipt:
        """Return a signed statement that a node's rollout file (`sha256` in hex) is in the bucket. Raises HttpError
        403, 404 or 409."""
        self._check_node(address)
        key = object_key("rollouts", bytes.fromhex(sha256))
        if not self._has(key, size):
            raise HttpError(404, f"{key} is not in the bucket", "upload it first")
        return self.stored_receipt(address, sha256, size)

    def stored_receipt(self, address: str, sha256: str, size: int) -> UploadReceipt:
        """Return the receipt of a file that was in the bucket, with the time at which it was first given while the
        chain accepts that one."""
        values = {"sha256": sha256, "node": address, "now": int(self.clock()), "oldest": self._oldest_receipt()}
        with self.db.session() as session:
            given: int = session.execute(_GIVE_RECEIPT, values).scalar_one()
        return self.receipts.sign(address, sha256, size, given)

    def _allowed(self, address: str, body: work.UploadRequest) -> str:
        state, is_file = self.view.state, body.kind == "rollouts"
        if is_file:
            self._check_node(address)
        elif not any(seat.active for seat in state.seats_of_voter(address)):
            raise HttpError(403, f"{address} votes for no active seat", "bond a seat with this voting key")
        limit = self.max_bytes if is_file else MAX_DOCUMENT_BYTES
        if body.size > limit:
            raise HttpError(413, f"{body.size} bytes are too many for {body.kind}: at most {limit}", "send less")
        return object_key(body.kind, body.digest)

    def _check_node(self, address: str) -> None:
        if why := barred(self.view.account(self.view.state, address), self.view.pool_id):
            raise HttpError(403, why, "join the pool with this node key")

    def _has(self, key: str, size: int) -> bool:
        """Return whether the bucket has the object. Raises HttpError 409 if it has another size."""
        stored = self.store.size(key)
        if stored not in (None, size):
            raise HttpError(409, f"{key} is in the bucket with {stored} bytes, not {size}", "check hash and size")
        return stored is not None

    def prune(self) -> None:
        """Forget tickets that ran out and the times of receipts that the chain no longer accepts."""
        oldest = self._oldest_receipt()
        with self.db.session() as session:
            session.execute(delete(UploadRow).where(UploadRow.issued <= self.clock() - TICKET_SECONDS))
            session.execute(delete(ReceiptRow).where(ReceiptRow.time < oldest))

    def _open(self, address: str, key: str, now: float) -> bool:
        values = {"key": key, "node": address, "now": now, "since": now - TICKET_SECONDS, "most": TICKETS_AT_ONCE}
        with self.db.session() as session:
            return session.execute(_OPEN_TICKET, values).first() is not None

    def _close_used(self, address: str, now: float) -> None:
        own = UploadRow.node == address
        with self.db.reading() as session:
            is_open = own & (UploadRow.issued > now - TICKET_SECONDS) & UploadRow.used.is_(False)
            keys = list(session.scalars(select(UploadRow.key).where(is_open)))
        stored = [key for key in keys if self.store.size(key) is not None]
        with self.db.session() as session:
            session.execute(update(UploadRow).where(own, UploadRow.key.in_(stored)).values(used=True))

    def _oldest_receipt(self) -> int:
        """Return the time (Unix seconds) from which on the chain accepts receipts."""
        pool = self.view.pool(self.view.state)
        return int(self.clock()) - pool.terms.receiptWindow if pool is not None else _NEVER
