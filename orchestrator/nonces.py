"""UsedNonces already used, in the service's database: a request is taken once, whichever replica it is sent to."""

import hashlib
from collections.abc import Sequence
from typing import Protocol

from sqlalchemy import text

from orchestrator.db import Database
from orchestrator.together import Together
from protocol.http.signing import WINDOW

GATHER_SECONDS, MOST_SECONDS = 0.005, 0.025
"""How long a nonce waits for others, at least and at most: a transaction of many costs hardly more than one of one."""
_KEEP = 10 * WINDOW
"""Seconds a nonce is remembered: longer than it could be replayed, even if the clock is set back a few minutes."""
Use = tuple[str, bytes]
"""An address and the nonce that it used."""


class UsedNonces(Protocol):
    """What a guard needs of `NonceStore`."""

    def use_many(self, uses: Sequence[Use], now: float) -> list[bool]: ...


class NonceStore:
    """Safe to share between threads and replicas."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._insert = (
            f"INSERT INTO nonces (id, expires) SELECT given.id, :expires FROM {db.rows({'id': 'text'})} WHERE true "
            "ON CONFLICT DO NOTHING RETURNING id"
        )

    def use(self, address: str, nonce: bytes, now: float) -> bool:
        """Record a nonce; False if the address used it before."""
        return self.use_many([(address, nonce)], now)[0]

    def use_many(self, uses: Sequence[Use], now: float) -> list[bool]:
        """Record nonces; False for each that its address used before, or earlier among them."""
        ids = [_id(address, nonce) for address, nonce in uses]
        # In one order everywhere: two replicas that are sent the same requests must not wait for one another.
        rows = [(one,) for one in sorted(set(ids))]
        with self._db.session() as session:
            fresh = {row.id for row in self._db.bulk(session, self._insert, rows, expires=now + _KEEP)}
        out = []
        for one in ids:
            out.append(one in fresh)
            fresh.discard(one)
        return out

    def prune(self, now: float) -> None:
        """Forget what can no longer be replayed."""
        with self._db.session() as session:
            session.execute(text("DELETE FROM nonces WHERE expires < :now"), {"now": now})


class NonceQueue:
    """Uses nonces together: those of some milliseconds, and all that came while the last ones were written, by one
    transaction. For the event loop's thread."""

    def __init__(self, store: UsedNonces) -> None:
        self.store = store
        self._together = Together("nonces", self._use, GATHER_SECONDS, MOST_SECONDS)

    async def use(self, address: str, nonce: bytes, now: float) -> bool:
        """As the store's, without holding up other requests."""
        return await self._together.ask(((address, nonce), now))

    def _use(self, uses: Sequence[tuple[Use, float]]) -> list[bool]:
        return self.store.use_many([use for use, _ in uses], max(now for _, now in uses))


def _id(address: str, nonce: bytes) -> str:
    return hashlib.blake2b(bytes.fromhex(address[2:]) + nonce, digest_size=16).hexdigest()
