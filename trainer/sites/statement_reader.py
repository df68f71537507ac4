"""Reading what sites and keeper of a run sign, as it appears in the bucket, for two statements that contradict one
another. What strangers put there is passed over.

A bucket takes one note and one entry at a place, but whoever holds its key can change that, and a keeper may: so an
entry that does not follow the one that was read before makes the reader look at that one's place again.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from protocol.encoding import sha256_hex
from protocol.errors import IntegrityError
from protocol.sites.contradiction import keeper_contradiction, site_contradiction
from protocol.sites.log import MAX_ENTRIES, LogEntry, MalformedEntry, open_entry
from protocol.sites.notes import open_note
from protocol.sites.run import SitesRun
from trainer.sites.exchange import MAX_TAKEN, SiteExchange
from trainer.sites.logbook import Logbook
from trainer.sites.seen_statements import SeenStatements

log = logging.getLogger("muster.sites")
_NOTES_AT_ONCE, _ENTRIES_AT_ONCE, _STEPS_BACK = 64, 512, 64


@dataclass(frozen=True)
class FoundProof:
    """Two stored `statements` of `accused` that cannot both be; or one, an entry of the keeper's, where by its record
    of outer step `step` another stands."""

    accused: str
    statements: tuple[bytes, ...]
    step: int | None = None


class StatementReader:
    """Of a run, without what `own` says: nobody shows itself. It begins some outer steps back. One thread."""

    def __init__(self, exchange: SiteExchange, own: str) -> None:
        self._exchange, self._run, self._seen = exchange, exchange.run, SeenStatements()
        self._sites = [site for site in exchange.run.sites if site != own]
        self._with_log = exchange.run.keeper != own
        self._notes: dict[str, int] = {}
        self._next, self._tip = 0, ""
        self._last: int | None = None
        self._begun = False

    def read(self) -> Iterator[FoundProof]:
        """What has appeared since, a bounded part of it. Raises UnreachableError, after which it is read again."""
        if not self._begun and not self._begin():
            return
        for site in self._sites:
            yield from self._read_notes(site)
        if self._with_log:
            yield from self._read_log()

    def entry_at(self, number: int) -> tuple[LogEntry, bytes] | None:
        """The keeper's entry at a place of the log, as it was first seen, or as it is there; None where there is none
        of the keeper's. Raises UnreachableError."""
        if number >= MAX_ENTRIES:
            return None
        data = self._seen.entry_at(number)
        try:
            data = data or self._exchange.stored_entry(number)
            return None if data is None else (open_entry(data, self._run, number, None), data)
        except MalformedEntry:
            return None

    def _begin(self) -> bool:
        """Where to read on; whether there is a log. One that does not hang together is read as far as it does: a keeper
        that breaks it must not blind those who watch."""
        try:
            book = Logbook.newest(self._exchange)
            if book is None:
                return False
            for count, (number, boundary) in enumerate(book.chapters_back()):
                self._next, self._notes = number, dict(boundary.notes)
                if count == _STEPS_BACK:
                    break
        except IntegrityError as error:
            log.warning("the log is read from entry %d on: %s", self._next, error)
        self._begun = True
        return True

    def _read_notes(self, site: str) -> Iterator[FoundProof]:
        for _ in range(_NOTES_AT_ONCE):
            number = self._notes.get(site, 0)
            try:
                data = self._exchange.stored_note(site, number)
                if data is None:
                    return
                note = open_note(data, self._run, site, number)
            except IntegrityError:
                self._notes[site] = number + 1
                continue
            self._notes[site] = number + 1
            first = self._seen.signed(note, data) if note.what == "sign" else data
            if _contradict(site_contradiction, first, data, self._run):
                log.warning("%s signed two contributions to outer step %d, attempt %d", site, note.step, note.attempt)
                yield FoundProof(site, (first, data))

    def _read_log(self) -> Iterator[FoundProof]:
        for _ in range(_ENTRIES_AT_ONCE):
            upcoming = self._upcoming()
            if upcoming is None:
                return
            entry, data = upcoming
            if self._last is not None and entry.previous != self._tip:
                yield from self._read_again(self._last)
            self._seen.entry(entry.number, data)
            self._last, self._tip, self._next = entry.number, sha256_hex(data), entry.number + 1

    def _upcoming(self) -> tuple[LogEntry, bytes] | None:
        """The next entry of the keeper's, past places that strangers took; None if it is not there yet."""
        for number in range(self._next, self._next + MAX_TAKEN):
            try:
                data = self._exchange.stored_entry(number)
                return None if data is None else (open_entry(data, self._run, number, None), data)
            except MalformedEntry:
                continue
        return None

    def _read_again(self, number: int) -> Iterator[FoundProof]:
        """An entry that the next one does not follow: another one may lie in its place now."""
        log.warning("the log goes on from another entry %d than was read", number)
        first = self._seen.entry_at(number)
        try:
            data = self._exchange.stored_entry(number)
        except MalformedEntry:
            return
        if first is not None and data is not None and _contradict(keeper_contradiction, first, data, self._run):
            log.warning("the keeper signed two entries at place %d of its log", number)
            yield FoundProof(self._run.keeper, (first, data))


def _contradict(prove: Callable[[bytes, bytes, SitesRun], object], first: bytes, data: bytes, run: SitesRun) -> bool:
    """Whether two stored statements are a proof."""
    if first == data:
        return False
    try:
        prove(first, data, run)
    except IntegrityError:
        return False
    return True
