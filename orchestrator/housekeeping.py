"""The thread that writes what is kept in memory, and takes in what other replicas wrote."""

import logging
import threading
import time
from collections.abc import Callable

from sqlalchemy.exc import DBAPIError

from orchestrator.heartbeats import NewestHeartbeats
from orchestrator.leader import Leader
from orchestrator.leases import Leases
from orchestrator.nonces import NonceStore

log = logging.getLogger("muster.housekeeping")
PRUNE_SECONDS = 5.0


class Housekeeper:
    """Start it, stop it. A database that does not answer is asked again: nothing in memory is lost meanwhile."""

    def __init__(
        self, heartbeats: NewestHeartbeats, leases: Leases, nonces: NonceStore, leader: Leader, seconds: float
    ) -> None:
        self._work: list[Callable[[], None]] = [heartbeats.write, leases.write, heartbeats.read, leases.read_reports]
        self._nonces, self._leader, self._seconds = nonces, leader, seconds
        self._pruned = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="housekeeping", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends after everything was written."""
        self._stop.set()
        self._thread.join(timeout=10)
        self.once()

    def once(self) -> None:
        """One round."""
        try:
            for step in self._work:
                step()
            if time.monotonic() - self._pruned >= PRUNE_SECONDS and self._leader.leads():
                self._pruned = time.monotonic()
                self._nonces.prune(time.time())
        except DBAPIError as error:
            log.warning("the database does not answer: %s", error.orig)

    def _run(self) -> None:
        while not self._stop.wait(self._seconds):
            self.once()
