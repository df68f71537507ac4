"""A member's envelopes on their way: each round is signed once, and kept until the exchange has it."""

import logging
from collections.abc import Iterable
from pathlib import Path

from protocol.accounts import LocalAccount
from protocol.errors import printable
from protocol.files import write_atomic
from protocol.swarm.envelope import Envelope, seal
from swarm.exchange import Exchange, RefusedForGood, envelope_key

log = logging.getLogger("muster.swarm")
MAX_UNSENT = 16
"""Envelopes that wait for the exchange to come back; older ones are given up, nobody would draw them any more."""


class EnvelopeOutbox:
    """In `folder`, made if need be. Rounds are signed in ascending order only, so that neither a restart nor a copy of
    the folder makes two envelopes of one, for which receivers
    would never believe this key again."""

    def __init__(self, folder: Path, account: LocalAccount) -> None:
        self._folder, self._mark, self._account = folder, folder / "signed", account
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def waiting(self) -> list[Path]:
        """Oldest first."""
        return sorted(self._folder.glob("[0-9]*.json"))

    @property
    def signed(self) -> int:
        """The newest round that is known to be signed; -1 before the first."""
        return int(self._mark.read_text()) if self._mark.is_file() else -1

    def put(self, envelope: Envelope) -> None:
        """Sign it, unless this round or a later one is signed already."""
        number = envelope.round
        if number <= self.signed:
            if not self._path(number).exists():
                log.info("round %d is not shared: round %d was signed before", number, self.signed)
            return
        # First, since an envelope that was sent may be lost here.
        self._raise_mark(number)
        write_atomic(self._path(number), seal(envelope, self._account))

    def found(self, own: Iterable[tuple[int, str]]) -> None:
        """Rounds of this key's envelopes that lie in the exchange, with their keys there. What another home signed is
        signed, and what waits here of such a round is not sent."""
        for number, key in own:
            path = self._path(number)
            if path.is_file() and envelope_key(path.read_bytes()) != key:
                log.warning("another home signs with this key: round %d is not sent. Run one home a key", number)
                path.unlink()
            if number > self.signed:
                log.warning("another home has signed round %d with this key. Run one home a key", number)
                self._raise_mark(number)

    def send(self, exchange: Exchange) -> None:
        """Everything that waits. Raises MusterError or OSError where it cannot."""
        waiting = self.waiting
        for path in waiting[:-MAX_UNSENT]:
            path.unlink()
        for path in waiting[-MAX_UNSENT:]:
            try:
                exchange.publish(path.read_bytes())
            except RefusedForGood as error:
                # It would hold up all that come after it.
                log.warning("round %d is not shared: %s", int(path.stem), printable(str(error)))
            path.unlink()

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:010d}.json"

    def _raise_mark(self, number: int) -> None:
        write_atomic(self._mark, str(number).encode())
