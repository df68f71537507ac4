"""Files of a step fetched in the background as soon as each is published, while others are still being sent."""

import logging
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor

from protocol.errors import IntegrityError, UnreachableError
from protocol.sites.contribution import ShardEntry
from storage.keys import MissingObjectError
from trainer.sites.exchange import SiteExchange

log = logging.getLogger("muster.sites")
AT_ONCE = 4


class ShardFetcher:
    """Holds the bytes of what is wanted, no longer than it is: each is as long as was signed at most. A file that is
    not there yet is asked for again at the next look. One thread uses it."""

    def __init__(self, exchange: SiteExchange) -> None:
        self._exchange = exchange
        self._pool = ThreadPoolExecutor(AT_ONCE, "site-fetcher")
        self._held: dict[str, bytes] = {}
        self._coming: dict[str, Future[bytes]] = {}
        self._broken: set[str] = set()

    def keep(self, data: bytes, sha256: str) -> None:
        """What is had already, and need not be fetched."""
        self._held[sha256] = data

    def drop(self, entries: Iterable[ShardEntry]) -> None:
        """What is needed no more."""
        for one in entries:
            self._held.pop(one.sha256, None)

    def forget(self) -> None:
        """All of it; what is under way ends for nobody."""
        for one in self._coming.values():
            one.cancel()
        self._held, self._coming, self._broken = {}, {}, set()

    def has(self, wanted: Iterable[ShardEntry]) -> bool:
        """Whether all of it is here, or known to be other bytes than its hash says; what is missing is asked for."""
        there = [self._has(one) for one in wanted]
        return all(there)

    def is_broken(self, entry: ShardEntry) -> bool:
        """Whether other bytes lay under its hash when it was fetched."""
        return entry.sha256 in self._broken

    def read(self, entry: ShardEntry) -> bytes:
        """Its bytes, from the bucket if they are not here. Raises as `SiteExchange.shard`."""
        coming = self._coming.pop(entry.sha256, None)
        if coming is not None and not coming.cancel():
            try:
                self._held[entry.sha256] = coming.result()
            except (IntegrityError, MissingObjectError, UnreachableError) as error:
                log.debug("asked for again: %s", error)
        held = self._held.get(entry.sha256)
        return self._exchange.shard(entry) if held is None else held

    def _has(self, entry: ShardEntry) -> bool:
        name = entry.sha256
        if name in self._held or name in self._broken:
            return True
        coming = self._coming.get(name)
        if coming is not None and coming.done():
            del self._coming[name]
            try:
                self._held[name] = coming.result()
                return True
            except (MissingObjectError, UnreachableError) as error:
                log.debug("not there yet: %s", error)
            except IntegrityError as error:
                log.warning("%s", error)
                self._broken.add(name)
                return True
        if name not in self._coming:
            self._coming[name] = self._pool.submit(self._exchange.shard, entry)
        return False
