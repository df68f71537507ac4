"""A run's log as its keeper goes on with it: what is written, and what the next entry is to tell."""

import time

from protocol.encoding import canonical_json
from protocol.errors import IntegrityError
from protocol.sites.log import MAX_ENTRY_BYTES, MAX_EVENTS, Boundary, LogEvent
from trainer.sites.log_writer import LogWriter
from trainer.sites.logbook import Logbook

_AROUND = 1024
"""Bytes of an entry besides its events."""


class DraftedLog:
    """`book`: as far as the log is written; `next`: how it stands after the `events` that the next entry is to tell."""

    def __init__(self, writer: LogWriter, book: Logbook) -> None:
        self._writer, self.book = writer, book
        self._begin()

    def _begin(self) -> None:
        self.next, self.events = self.book.draft(), list[LogEvent]()
        self._bytes, self._since = _AROUND, 0.0

    def add(self, event: LogEvent) -> None:
        """To what the next entry is to tell; a full one is written first. Raises IntegrityError for an event that
        cannot come now; UnreachableError."""
        size = len(canonical_json(event.model_dump(mode="json"))) + 1
        ended = bool(self.events) and isinstance(self.events[-1], Boundary)
        if ended or len(self.events) == MAX_EVENTS or self._bytes + size > MAX_ENTRY_BYTES:
            self.write()
        self.next.apply(event, time.time())
        self._since = self._since if self.events else time.monotonic()
        self.events.append(event)
        self._bytes += size

    def takes(self, event: LogEvent) -> bool:
        """Whether it can come now, and changes something."""
        try:
            self.next.next(event)
        except IntegrityError:
            return False
        return True

    def write(self) -> None:
        """Write the next entry. Raises IntegrityError where another process writes the log; UnreachableError, after
        which the entry is on disk: `finish` writes it again."""
        events, notes = self.events, self.next.notes
        self._begin()
        self._writer.write(self.book, events)
        self.book.notes = dict(notes)  # also those that nothing is told of
        self._begin()

    def end_turn(self, patience: float) -> None:
        """Write what happened, at the latest `patience` seconds after the first of it: what nobody acts on, because
        others are waited for still, may wait for more. Raises as `write`."""
        before, after = self.book.schedule, self.next.schedule
        moved = (before.step, before.attempt, before.phase) != (after.step, after.attempt, after.phase)
        if not self.events:
            self.book.notes = dict(self.next.notes)
            self._begin()
        elif moved or time.monotonic() - self._since >= patience:
            self.write()

    def finish(self) -> None:
        """Write the entry again of which it is not known whether it arrived. Raises as `write`."""
        number = self.book.number
        self._writer.finish(self.book)
        if self.book.number > number:
            self._begin()
