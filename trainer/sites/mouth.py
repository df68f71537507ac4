"""What a site says and sends: notes, each once and under a number of its own, and payloads in the background."""

import logging
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Literal

from eth_account.signers.local import LocalAccount

from protocol.errors import MusterError
from protocol.sites.notes import SiteNote, seal_note
from trainer.sites.exchange import SiteExchange
from trainer.sites.schedule import Schedule
from trainer.sites.share_of_step import OwnContribution

log = logging.getLogger("muster.sites")
What = Literal["join", "leave", "sign"]
_AHEAD, _TRIES = 4096, 16


class SiteMouth:
    """Of one site."""

    def __init__(self, exchange: SiteExchange, account: LocalAccount) -> None:
        self._exchange, self._account, self._next = exchange, account, 0
        self._said: set[tuple[str, int, int, str | None]] = set()
        self._sender = ThreadPoolExecutor(1, "site-sender")
        self._sending: tuple[str, Future[None]] | None = None

    def find_place(self, number: int) -> None:
        """Go on behind the notes that are there, the first of which may have `number`. Raises MusterError if nobody
        reads them."""
        site = str(self._account.address)
        for free in range(number, number + _AHEAD):
            if not self._exchange.has_note(site, free):
                self._next = free
                return
        raise MusterError(f"more than {_AHEAD} notes of {site} were not read", "look at the run's keeper")

    def said(self, what: What, now: Schedule, digest: str | None) -> bool:
        """Whether this process said it in the attempt under way."""
        return (what, now.step, now.attempt, digest) in self._said

    def say(self, what: What, now: Schedule, digest: str | None) -> None:
        """Leave a note, unless it was said. Raises MusterError where others use this site's key; UnreachableError."""
        if self.said(what, now, digest):
            return
        site, run = str(self._account.address), self._exchange.run
        for _ in range(_TRIES):
            note = SiteNote(
                run=run.digest, site=site, number=self._next, what=what, step=now.step, attempt=now.attempt,
                digest=digest,
            )  # fmt: skip
            posted = self._exchange.post(site, note.number, seal_note(note, run, self._account))
            self._next += 1
            if posted:
                self._said = {one for one in self._said if one[1] == now.step} | {(what, now.step, now.attempt, digest)}
                return
        raise MusterError(f"another process leaves notes as {site}", "run one home a key")

    def send(self, own: OwnContribution) -> None:
        """Publish the payload of a contribution in the background, again if it failed."""
        if self._sending is not None and self._sending[0] == own.digest:
            sent = self._sending[1]
            if not sent.done() or sent.exception() is None:
                return
            log.warning("the payload is sent again: %s", sent.exception())
        self._sending = own.digest, self._sender.submit(self._publish, own)

    def _publish(self, own: OwnContribution) -> None:
        for shard in own.payload:
            self._exchange.publish(shard)
