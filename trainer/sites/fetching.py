"""Files of a step fetched in the background as soon as each is published, while others are still being sent."""

import logging
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from protocol.errors import IntegrityError, UnreachableError
from protocol.sites.contribution import ShardEntry
from storage.keys import MissingObjectError
from trainer.sites.exchange import SiteExchange
from trainer.sites.seldom import Seldom

log = logging.getLogger("muster.sites")
AT_ONCE = 4
T = TypeVar("T")


def as_sent(document: str, files: Sequence[T]) -> list[T]:
    """The files of a contribution, of which `document` is the SHA-256, in the order in which its site sends them: each
    site begins with another one, so those who fetch one each need not wait until all have sent the others."""
    first = int(document, 16) % len(files)
    return [*files[first:], *files[:first]]


@dataclass
class _Fetched:
    """Of one attempt: what is here, and what other bytes lay under the hash of."""

    held: dict[str, bytes] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)

    def has(self, entry: ShardEntry) -> bool:
        return entry.sha256 in self.held or entry.sha256 in self.broken


@dataclass
class _FilesInOrder:
    """Files that are fetched one after the other. `job`: which does so, as long as it has not ended."""

    seldom: Seldom = field(default_factory=Seldom)
    job: Future[None] | None = None


class ShardFetcher:
    """Holds the bytes of what is wanted, no longer than it is: each is as long as was signed at most. One thread uses
    it."""

    def __init__(self, exchange: SiteExchange) -> None:
        self._exchange = exchange
        self._pool = ThreadPoolExecutor(AT_ONCE, "site-fetcher")
        self._fetched = _Fetched()
        self._lines: dict[str, _FilesInOrder] = {}

    def keep(self, data: bytes, sha256: str) -> None:
        """What is had already, and need not be fetched."""
        self._fetched.held[sha256] = data

    def drop(self, entries: Iterable[ShardEntry]) -> None:
        """What is needed no more."""
        for one in entries:
            self._fetched.held.pop(one.sha256, None)

    def forget(self) -> None:
        """All of it; what is under way ends for nobody."""
        for line in self._lines.values():
            if line.job is not None:
                line.job.cancel()
        self._fetched, self._lines = _Fetched(), {}

    def has(self, lines: Iterable[Sequence[ShardEntry]]) -> bool:
        """Whether all files are here, or known to be other bytes than their hash says. Those of a line are fetched one
        after the other, in the order in which they are sent, up to the first that is not there yet."""
        there = [self._has(one) for one in lines]
        return all(there)

    def is_broken(self, entry: ShardEntry) -> bool:
        """Whether other bytes lay under its hash when it was fetched."""
        return entry.sha256 in self._fetched.broken

    def read(self, entry: ShardEntry) -> bytes:
        """Its bytes, from the bucket if they are not here. Raises as `SiteExchange.shard`."""
        line = self._lines.get(entry.sha256)
        if line is not None and line.job is not None:
            job, line.job = line.job, None
            if not job.cancel():
                job.result()
        held = self._fetched.held.get(entry.sha256)
        return self._exchange.shard(entry) if held is None else held

    def _has(self, files: Sequence[ShardEntry]) -> bool:
        missing = [one for one in files if not self._fetched.has(one)]
        if not missing:
            return True
        line = self._lines.setdefault(missing[0].sha256, _FilesInOrder())
        self._lines.update((one.sha256, line) for one in missing)
        if line.job is not None and line.job.done():
            line.job.result()
            line.job = None
        if line.job is None and line.seldom.due():
            line.job = self._pool.submit(self._fetch, missing, self._fetched, line.seldom)
        return False

    def _fetch(self, files: Sequence[ShardEntry], into: _Fetched, seldom: Seldom) -> None:
        for one in files:
            try:
                with seldom:
                    into.held[one.sha256] = self._exchange.shard(one)
            except (MissingObjectError, UnreachableError) as error:
                log.debug("not there yet: %s", error)
                return
            except IntegrityError as error:
                log.warning("%s", error)
                into.broken.add(one.sha256)
