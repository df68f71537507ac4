"""The keeper's states on their way to its disk and to the bucket, for which no outer step waits.

Neither is needed for anything to be right: a keeper that lacks a state on its disk, or a newcomer that finds none in
the bucket, takes an older one and makes the steps since again.
"""

import logging
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from protocol.errors import MusterError
from protocol.sites.outer import OuterState
from protocol.waits import WAITS
from trainer.sites.exchange import SiteExchange
from trainer.sites.replica_store import StateFolder

log = logging.getLogger("muster.sites")


class KeptStates:
    """One thread uses it. Where states come faster than they are written, the newest is next."""

    def __init__(self, exchange: SiteExchange, folder: Path, first: OuterState) -> None:
        self._exchange = exchange
        self._folder = StateFolder(folder, first.layout, exchange.run.settings.shards)
        self._sender = ThreadPoolExecutor(1, "state-sender")
        self._sent: tuple[OuterState, Future[str]] | None = None
        self._newest = self._folder.newest() or first
        self._written = self._newest.step

    @property
    def newest(self) -> OuterState:
        """That was kept last, or lies on the disk, or else the run's first."""
        return self._newest

    def keep(self, state: OuterState) -> None:
        """Let it be written to the disk. Raises MusterError where that did not take the one before."""
        self._newest = state
        self.tend()

    def publish(self, state: OuterState) -> str | None:
        """Let it be put into the bucket; the SHA-256 of the list of its files. None where the one before is not there
        yet: then this one is not published."""
        if self._sent is not None and not self._sent[1].done():
            log.info("outer state %d is not published: the one before is still being sent", state.step)
            return None
        self._send(state)
        return self._exchange.listed(state)

    def publish_again(self, state: OuterState, listed: str) -> None:
        """The same of one that the log names by that list, if a kill came before it was there. Raises
        UnreachableError."""
        if not self._exchange.has_state(listed) and self._exchange.listed(state) == listed:
            self._send(state)

    def tend(self) -> None:
        """Go on with what is being written and sent, without a wait. Raises as `keep`."""
        if self._folder.tend():
            self._write_newest()
        if self._sent is not None and self._sent[1].done():
            (state, sent), self._sent = self._sent, None
            try:
                sent.result()
            except MusterError as error:
                log.warning("outer state %d is sent again: %s", state.step, error)
                self._send(state)

    def finish(self) -> None:
        """Return once all is on the disk, and what was begun to be sent is sent, or cannot be. Raises as `keep`."""
        self._folder.finish()
        self._write_newest()
        self._folder.finish()
        if self._sent is not None:
            (state, sent), self._sent = self._sent, None
            try:
                with WAITS.on(f"the bucket, for outer state {state.step}"):
                    sent.result()
            except MusterError as error:
                log.warning("outer state %d was not published: %s", state.step, error)

    def _write_newest(self) -> None:
        if self._written != self._newest.step:
            self._written = self._newest.step
            self._folder.begin(self._newest)

    def _send(self, state: OuterState) -> None:
        self._sent = state, self._sender.submit(self._exchange.publish_state, state)
