"""The thread that follows the chain, has uploads attested, and compares the ledger with the chain."""

import logging
import threading
import time

from chain.suite import Suite
from orchestrator.attestor import Attestor
from orchestrator.reconcile import reconcile
from orchestrator.watch import Watch
from protocol.api.run import Reconciliation
from protocol.errors import MusterError
from protocol.waits import WAITS

log = logging.getLogger("muster.indexer")
MAX_BACKOFF = 5.0
RECONCILE_SECONDS = 5.0


class Indexer:
    """Start it, stop it; `reconciliation` is the newest comparison of ledger and chain. A chain that does not answer is
    waited for: nothing is lost, and `watch.error` says why the view is old."""

    def __init__(self, watch: Watch, suite: Suite, attestor: Attestor, poll_seconds: float) -> None:
        self._watch, self._suite, self._attestor, self._poll = watch, suite, attestor, poll_seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="indexer", daemon=True)
        self._reconciled = (-1, 0.0)
        self._doubted = False
        self.reconciliation: Reconciliation | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(timeout=10)

    def once(self) -> None:
        """One round: poll; when it is time, compare."""
        self._watch.refresh()
        self._attestor.advance(self._watch.state)
        self._watch.error = self._attestor.problem(self._watch.state)
        version = self._watch.state.version
        if version == self._reconciled[0] or time.monotonic() - self._reconciled[1] < RECONCILE_SECONDS:
            return
        found = reconcile(self._watch.state, self._watch.pool_id, self._suite)
        if found is not None and found.findings and not self._doubted:
            # An endpoint may serve a block's state before its logs: only what still differs later is said in public.
            self._doubted, self._reconciled = True, (self._reconciled[0], time.monotonic())
            return
        self._doubted = False
        self.reconciliation, self._reconciled = found, (version, time.monotonic())
        if found is not None and found.findings:
            log.warning("the ledger differs from the chain: %s", "; ".join(found.findings))

    @property
    def current(self) -> bool:
        """Whether `reconciliation` is of the state as it is now."""
        return self._reconciled[0] == self._watch.state.version

    def _run(self) -> None:
        backoff = self._poll
        while not self._stop.is_set():
            try:
                self.once()
                backoff = self._poll
            except MusterError as error:
                self._watch.error = error.what
                log.warning("%s", error)
                backoff = min(MAX_BACKOFF, backoff * 2)
                with WAITS.on("the chain"):
                    self._stop.wait(backoff)
                continue
            except Exception as error:
                # A bug here must not end the service: the page would silently show an old state.
                self._watch.error = f"the indexer failed: {error!r}"
                log.exception("the indexer failed")
                backoff = MAX_BACKOFF
            self._stop.wait(backoff)
