"""The keeper's ear: which sites' notes are looked for when, each in its order."""

import logging
from collections.abc import Callable, Iterator

from protocol.errors import MusterError, UnreachableError
from protocol.sites.notes import SiteNote
from trainer.sites.events import OuterPhase
from trainer.sites.exchange import SiteExchange
from trainer.sites.logbook import Logbook
from trainer.sites.rhythm import Rhythm
from trainer.sites.schedule import Schedule
from trainer.sites.seldom import Seldom

log = logging.getLogger("muster.sites")
_AT_ONCE, OTHERS_TIMES = 16, 50.0


class NoteReader:
    """Of those whom the step waits for it looks for one whenever it is asked, once that may have spoken, and for the
    next once it has: it goes on when all have. All others, who may join or leave, are looked for seldom. `heard`: whose
    notes are read at all."""

    def __init__(self, exchange: SiteExchange, heard: Callable[[str], bool] = lambda _: True) -> None:
        self._exchange, self._heard = exchange, heard
        self._others, self._rhythm = Seldom(OTHERS_TIMES), Rhythm()

    def new(self, book: Logbook, every: bool = False) -> Iterator[SiteNote]:
        """What was left since; `book` says from where on. `every`: by whomever, and whenever it looked last. Raises
        UnreachableError."""
        left = [site for site in self._exchange.run.sites if self._heard(site)]
        now = book.schedule
        expected = speakers(now) if self._rhythm.due(now) and not every else frozenset[str]()
        for site in [site for site in left if site in expected]:
            left.remove(site)
            spoken = False
            for note in self._of(site, book):
                yield note
                book.notes[site] = note.number + 1
                spoken = (note.step, note.attempt) == (now.step, now.attempt)
                if spoken:
                    break
            if not spoken:
                break
        if every or self._others.due():
            with self._others:
                for site in left:
                    for note in self._of(site, book):
                        yield note
                        book.notes[site] = note.number + 1

    def _of(self, site: str, book: Logbook) -> Iterator[SiteNote]:
        """One after the other, as `book` is told that they are read."""
        for _ in range(_AT_ONCE):
            number = book.notes.get(site, 0)
            try:
                note = self._exchange.note(site, number)
            except UnreachableError:
                raise
            except MusterError as error:
                log.warning("note %d of %s: %s", number, site, error)
                book.notes[site] = number + 1
                continue
            if note is None:
                return
            yield note


def speakers(now: Schedule) -> frozenset[str]:
    """Of whom a word is waited for."""
    if now.phase == OuterPhase.COLLECT:
        return now.members - now.barred - now.documents.keys()
    return now.untold
