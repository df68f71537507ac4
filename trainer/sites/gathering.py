"""What a site fetches of the others' contributions where everybody fetches all: each file as soon as it is there."""

import logging

from protocol.sites.admission import Admitted
from protocol.sites.contribution import Contribution
from protocol.sites.log import Boundary
from protocol.sites.outer import OuterState
from trainer.sites.catching_up import limits_at
from trainer.sites.exchange import SiteExchange
from trainer.sites.fetching import ShardFetcher, as_sent
from trainer.sites.logbook import Logbook
from trainer.sites.share_of_step import OwnContribution

log = logging.getLogger("muster.sites")


class SiteGathering:
    """Of one site; in the place of `SiteReducing`."""

    def __init__(self, exchange: SiteExchange, site: str) -> None:
        self._exchange, self._site = exchange, site
        self.fetcher = ShardFetcher(exchange)
        self._of: tuple[int, int] = (-1, -1)
        self._made: dict[str, Contribution] = {}

    def turn(self, book: Logbook, state: OuterState, own: OwnContribution) -> str:
        """Fetch what is there by now; what is waited for. Raises IntegrityError, MissingObjectError,
        UnreachableError."""
        now = book.schedule
        if self._of != (now.step, now.attempt):
            self._of, self._made = (now.step, now.attempt), {}
            self.fetcher.forget()
        limits = limits_at(self._exchange, state, book.dealing)
        for site, document in now.documents.items():
            if site not in self._made and site != self._site:
                self._made[site] = self._exchange.contribution(document, site, limits)
        self.fetcher.has(
            as_sent(document, self._made[site].shards) for site, document in now.documents.items() if site in self._made
        )
        return f"outer step {now.step} to be settled"

    def made(self, boundary: Boundary) -> tuple[OuterState, Admitted] | None:
        """The step is made of what was fetched once it is known of which contributions."""
        return None
