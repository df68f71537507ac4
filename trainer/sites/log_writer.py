"""Writing a run's log: each event at the first place that no stranger has taken, and by one keeper alone."""

import logging
import time

from eth_account.signers.local import LocalAccount

from protocol.encoding import sha256_hex
from protocol.errors import IntegrityError
from protocol.sites.log import (
    FIRST,
    Boundary,
    ContributionOpened,
    LogEntry,
    LogEvent,
    MalformedEntry,
    Noted,
    PartsSaid,
    seal_entry,
)
from protocol.sites.outer import OuterState
from trainer.sites.exchange import MAX_TAKEN, SiteExchange
from trainer.sites.logbook import Logbook, first_boundary

log = logging.getLogger("muster.sites")


class LogWriter:
    """The keeper's hand."""

    def __init__(self, exchange: SiteExchange, account: LocalAccount) -> None:
        self._exchange, self._run, self._account = exchange, exchange.run, account

    def begin(self, first: OuterState) -> None:
        """The log's first entry, from the run's first state, unless there is one. Raises UnreachableError."""
        boundary = first_boundary(first.digest, self._exchange.publish_state(first))
        entry = LogEntry(run=self._run.digest, number=0, previous=FIRST, chapter=0, time=time.time(), event=boundary)
        self._exchange.append(0, seal_entry(entry, self._run, self._account))

    def tell(self, book: Logbook, event: LogEvent) -> None:
        """Write an event, and take it into `book`. Raises IntegrityError for one that cannot come now, or where another
        keeper writes; UnreachableError."""
        book.next(event)
        for number in range(book.number, book.number + MAX_TAKEN):
            chapter = number if isinstance(event, Boundary) else book.chapter
            entry = LogEntry(
                run=self._run.digest, number=number, previous=book.tip, chapter=chapter, time=time.time(), event=event
            )
            data = seal_entry(entry, self._run, self._account)
            if self._exchange.append(number, data) or self._is_ours(book, number, data):
                book.take(entry, sha256_hex(data))
                log.info("entry %d: %s", number, _words(event))
                return
            log.warning("place %d of the log is taken by somebody who is not its keeper", number)
        raise IntegrityError(f"{MAX_TAKEN} places of the log are taken by strangers", "see who writes to the bucket")

    def _is_ours(self, book: Logbook, number: int, data: bytes) -> bool:
        """Whether the entry at a place that is taken is this very one, from a try whose answer was lost. Raises
        IntegrityError where another process writes as the keeper."""
        try:
            found = self._exchange.entry(number, book.tip)
        except MalformedEntry:
            return False
        if found is None or found[1] != sha256_hex(data):
            raise IntegrityError(f"entry {number} of the log was written by another process", "run one keeper")
        return True


def _words(event: LogEvent) -> str:
    if isinstance(event, Boundary):
        return f"outer step {event.step} begins with {len(event.members)} sites, from {event.digest[:16]}…"
    if isinstance(event, Noted):
        return f"{event.site}: {event.what}"
    if isinstance(event, ContributionOpened):
        return f"{event.site} opened its contribution"
    if isinstance(event, PartsSaid):
        return f"{', '.join(event.documents)}: {event.what}"
    return event.kind
