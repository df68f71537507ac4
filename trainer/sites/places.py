"""Where in the run's data a site begins that did not take part in the newest outer step: where the others stand."""

import logging

from protocol.errors import IntegrityError
from protocol.sites.contribution import ContributionLimits
from protocol.sites.layout import TensorLayout
from storage.keys import MissingObjectError
from trainer.sites.exchange import SiteExchange
from trainer.sites.logbook import Logbook

log = logging.getLogger("muster.sites")
FIGURE = "documents"
"""What sites say of it in their contributions."""


class OthersPlaces:
    """As one site reads them in the log."""

    def __init__(self, exchange: SiteExchange, address: str, layout: TensorLayout) -> None:
        self._exchange, self._address, self._layout = exchange, address, layout
        self._known: tuple[int, tuple[int, ...]] | None = None

    def of(self, book: Logbook) -> tuple[int, ...]:
        """Documents that each site had passed whose contribution the newest outer step was made of, ascending; none
        where this site is one of them, or nobody says so. Raises UnreachableError, IntegrityError."""
        if self._known is None or self._known[0] != book.chapter:
            self._known = book.chapter, self._read(book)
        return self._known[1]

    def _read(self, book: Logbook) -> tuple[int, ...]:
        boundary, run = book.boundary, self._exchange.run
        if boundary.before is None or self._address in boundary.made_of or run.work == "given":
            return ()
        before, found = Logbook.at(self._exchange, boundary.before).boundary, []
        base = bytes.fromhex(before.digest)
        limits = ContributionLimits.of(run.pool_id, run.settings, before.step, base, self._layout)
        for site, document in boundary.made_of.items():
            try:
                made = self._exchange.contribution(document, site, limits)
            except (MissingObjectError, IntegrityError) as error:
                log.warning("where %s stands is not known: %s", site, error)
                continue
            if FIGURE in made.figures:
                found.append(int(made.figures[FIGURE]))
        return tuple(sorted(found))
