"""The keeper's ear: which sites' notes are looked for when, each in its order."""

import logging
from collections.abc import Callable, Collection, Iterator

from protocol.errors import MusterError, UnreachableError
from protocol.sites.notes import SiteNote
from trainer.sites.events import OuterPhase
from trainer.sites.exchange import SiteExchange
from trainer.sites.logbook import Logbook
from trainer.sites.schedule import Schedule
from trainer.sites.seldom import Seldom

log = logging.getLogger("muster.sites")
_AT_ONCE = 16


class NoteReader:
    """Of whom the step waits for it looks whenever it is asked; of the others, who may join or leave, seldom. `heard`:
    whose notes are read at all."""

    def __init__(self, exchange: SiteExchange, heard: Callable[[str], bool] = lambda _: True) -> None:
        self._exchange, self._heard = exchange, heard
        self._others = Seldom()

    def new(self, book: Logbook) -> Iterator[SiteNote]:
        """What was left since; `book` says from where on. Raises UnreachableError."""
        sites = [site for site in self._exchange.run.sites if self._heard(site)]
        expected = speakers(book.schedule)
        yield from self._of([site for site in sites if site in expected], book)
        if self._others.due():
            with self._others:
                yield from self._of([site for site in sites if site not in expected], book)

    def _of(self, sites: Collection[str], book: Logbook) -> Iterator[SiteNote]:
        for site in sites:
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
                    break
                yield note
                book.notes[site] = number + 1


def speakers(now: Schedule) -> frozenset[str]:
    """Of whom a word is waited for."""
    if now.phase == OuterPhase.COLLECT:
        return now.members - now.barred - now.documents.keys()
    return now.untold
