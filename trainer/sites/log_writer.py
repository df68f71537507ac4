"""Writing a run's log: what happened since the last entry is one entry, at the first place that no stranger has taken,
and by one keeper alone.

An entry is on disk before anybody may see it, and is written again as it is until it is known to be there or not. For
a keeper that signs two entries at one place loses half of its stake on chain, and a request whose answer was lost may
have arrived.
"""

import logging
import time
from collections.abc import Sequence
from pathlib import Path

from protocol.accounts import LocalAccount
from protocol.encoding import sha256_hex
from protocol.errors import IntegrityError
from protocol.files import write_atomic
from protocol.sites.log import (
    FIRST,
    Boundary,
    ContributionOpened,
    LogEntry,
    LogEvent,
    MalformedEntry,
    Noted,
    PartsSaid,
    SignedEntry,
    open_entry,
    seal_entry,
)
from protocol.sites.outer import OuterState
from trainer.sites.exchange import MAX_TAKEN, SiteExchange
from trainer.sites.logbook import Logbook, first_boundary

log = logging.getLogger("muster.sites")
_WRITING = "entry.json"


class LogWriter:
    """The keeper's hand. `home`: where the entry is that is being written."""

    def __init__(self, exchange: SiteExchange, account: LocalAccount, home: Path) -> None:
        self._exchange, self._run, self._account = exchange, exchange.run, account
        self._path, self._free = home / _WRITING, 0
        home.mkdir(parents=True, exist_ok=True)

    def begin(self, first: OuterState) -> None:
        """The log's first entry, from the run's first state, unless there is one. Raises IntegrityError where its place
        is a stranger's; UnreachableError."""
        boundary = first_boundary(first.digest, self._exchange.publish_state(first))
        entry = LogEntry(run=self._run.digest, number=0, previous=FIRST, chapter=0, time=time.time(), events=[boundary])
        known = self._unfinished()
        data = known[1] if known is not None and known[0].number == 0 else seal_entry(entry, self._run, self._account)
        if not self._write(0, data) and not self._exchange.has_entry(0):
            raise IntegrityError(
                f"the first place of the log of {self._run.name} is taken by what is no entry of this version",
                "open another run; or see who writes to the bucket",
            )

    def finish(self, book: Logbook) -> None:
        """Write the entry again whose writing was broken off, and take it into `book`, if it belongs at the log's end.
        Raises IntegrityError where another keeper writes; UnreachableError."""
        known = self._unfinished()
        if known is None:
            return
        entry, data = known
        if entry.previous != book.tip or entry.number < book.number:
            self._path.unlink(missing_ok=True)
        elif self._place(book, entry.number, data):
            book.take(entry, sha256_hex(data))
            log.info("entry %d: %s, after all", entry.number, _words(entry.events))

    def write(self, book: Logbook, events: list[LogEvent]) -> None:
        """Write an entry that tells of `events`, and take it into `book`. Raises IntegrityError where another keeper
        writes; UnreachableError."""
        first = max(book.number, self._free)
        for number in range(first, first + MAX_TAKEN):
            chapter = number if isinstance(events[-1], Boundary) else book.chapter
            entry = LogEntry(
                run=self._run.digest, number=number, previous=book.tip, chapter=chapter, time=time.time(), events=events
            )
            data = seal_entry(entry, self._run, self._account)
            if self._place(book, number, data):
                book.take(entry, sha256_hex(data))
                log.info("entry %d: %s", number, _words(events))
                return
            log.warning("place %d of the log is taken by somebody who is not its keeper", number)
        raise IntegrityError(f"{MAX_TAKEN} places of the log are taken by strangers", "see who writes to the bucket")

    def _place(self, book: Logbook, number: int, data: bytes) -> bool:
        """Whether the entry stands at the place now; else a stranger has it, and no other is signed for it. Raises as
        `_is_ours`."""
        placed = self._write(number, data) or self._is_ours(book, number, data)
        if placed:
            self._path.unlink(missing_ok=True)
        self._free = number + 1
        return placed

    def _write(self, number: int, data: bytes) -> bool:
        write_atomic(self._path, data)
        return self._exchange.append(number, data)

    def _unfinished(self) -> tuple[LogEntry, bytes] | None:
        try:
            data = self._path.read_bytes()
            number = SignedEntry.model_validate_json(data).entry.number
            return open_entry(data, self._run, number, None), data
        except FileNotFoundError:
            return None
        except (OSError, ValueError, MalformedEntry) as error:
            log.warning("%s cannot be used: %s", self._path, error)
            return None

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


def _words(events: Sequence[LogEvent]) -> str:
    return "; ".join(map(_word, events))


def _word(event: LogEvent) -> str:
    if isinstance(event, Boundary):
        return f"outer step {event.step} begins with {len(event.members)} sites, from {event.digest[:16]}…"
    if isinstance(event, Noted):
        return f"{event.site}: {event.what}"
    if isinstance(event, ContributionOpened):
        return f"{event.site} opened its contribution"
    if isinstance(event, PartsSaid):
        return f"{', '.join(event.documents)}: {event.what}"
    return event.kind
