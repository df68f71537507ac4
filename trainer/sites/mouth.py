"""What a site says and sends: notes, each once and under a number of its own, and payloads in the background."""

import logging
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from protocol.accounts import LocalAccount
from protocol.errors import MusterError
from protocol.sites.notes import NoteWhat, SiteNote, seal_note
from trainer.sites.exchange import SiteExchange
from trainer.sites.fetching import as_sent
from trainer.sites.schedule import Schedule
from trainer.sites.share_of_step import OwnContribution

log = logging.getLogger("muster.sites")
_AHEAD, _AT_ONCE = 4096, 2


class SiteMouth:
    """Of one site."""

    def __init__(self, exchange: SiteExchange, account: LocalAccount) -> None:
        self._exchange, self._account, self._next = exchange, account, 0
        self._said: set[tuple[str, int, int, str | None]] = set()
        self._sender = ThreadPoolExecutor(1, "site-sender")
        self._sending: tuple[tuple[str, int], Future[None]] | None = None

    def find_place(self, number: int) -> None:
        """Go on behind the notes that are there, the first of which may have `number`. Raises MusterError if nobody
        reads them."""
        site = str(self._account.address)
        for free in range(number, number + _AHEAD):
            if not self._exchange.has_note(site, free):
                self._next = free
                return
        raise MusterError(f"more than {_AHEAD} notes of {site} were not read", "look at the run's keeper")

    def said_any(self, what: NoteWhat, now: Schedule) -> bool:
        """Whether this process said anything of that kind in the attempt under way."""
        return any(one[:3] == (what, now.step, now.attempt) for one in self._said)

    def said(self, what: NoteWhat, now: Schedule, digest: str | None) -> bool:
        """Whether this process said it in the attempt under way."""
        return (what, now.step, now.attempt, digest) in self._said

    def say(self, what: NoteWhat, now: Schedule, digest: str | None, items: Sequence[str] = ()) -> None:
        """Leave a note, unless it was said, at the first place that nobody has taken. Raises MusterError where there is
        none; UnreachableError."""
        if self.said(what, now, digest):
            return
        site, run = str(self._account.address), self._exchange.run
        for _ in range(_AHEAD):
            note = SiteNote(
                run=run.digest, site=site, number=self._next, what=what, step=now.step, attempt=now.attempt,
                digest=digest, items=list(items),
            )  # fmt: skip
            posted = self._exchange.post(site, note.number, seal_note(note, run, self._account))
            self._next += 1
            if posted:
                self._said = {one for one in self._said if one[1] == now.step} | {(what, now.step, now.attempt, digest)}
                return
        raise MusterError(f"{_AHEAD} places for notes of {site} are taken", "see who else writes to the bucket")

    def send(self, own: OwnContribution) -> None:
        """Publish the payload of a contribution in the background, again if it failed, and again in another attempt:
        that may be because it is gone."""
        offered = own.digest, own.attempt
        if self._sending is not None and self._sending[0] == offered:
            sent = self._sending[1]
            if not sent.done() or sent.exception() is None:
                return
            log.warning("the payload is sent again: %s", sent.exception())
        self._sending = offered, self._sender.submit(self._publish, own)

    def _publish(self, own: OwnContribution) -> None:
        with ThreadPoolExecutor(_AT_ONCE, "site-sender") as senders:
            list(senders.map(self._exchange.publish, as_sent(own.digest, own.payload)))
