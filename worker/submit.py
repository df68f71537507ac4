"""Hands finished files in and claims what they earn; whatever fails is tried again."""

import logging
import threading
import time

from chain.contracts import Submitted, WorkItem
from chain.errors import ContractError, TransactionError
from protocol.amounts import show_tokens
from protocol.errors import MusterError
from protocol.receipts import UploadReceipt
from worker.collaborators import WorkerCollaborators
from worker.journal import JournalEntry
from worker.progress import WorkerProgress
from worker.receipts import worth_presenting

log = logging.getLogger("muster.worker")
_KEPT_FILES = 64
_CATCH_UP = 30.0
_AHEAD = 15
"""Seconds by which a service's clock may be ahead of the chain's: its receipt counts once the chain is there."""
_UNUSABLE = frozenset({"BadReceipt", "ReceiptOutOfTime"})
"""Refusals of a receipt that say nothing against the file."""
_PROMISED = frozenset({"WrongStatus", "StepOutOfRange", "NotMember"})
"""Refusals that the receipt of an earlier upload overrides."""


class Submitter:
    """Pay that has vested is claimed every `claim_seconds`."""

    def __init__(
        self,
        collaborators: WorkerCollaborators,
        progress: WorkerProgress,
        stopping: threading.Event,
        claim_seconds: float,
    ) -> None:
        self._collaborators, self._client = collaborators, collaborators.pool_client
        self._progress, self._stopping = progress, stopping
        self._claim_seconds, self._next_claim = claim_seconds, 0.0

    def submit(self, entry: JournalEntry) -> None:
        """Upload a finished file if need be, then submit it."""
        journal, progress = self._collaborators.journal, self._progress
        if not self._counts(entry.receipt):
            progress.phase = "uploading"
            receipt = self._collaborators.orchestrator.upload_rollouts(journal.data(entry))
            if not self._counts(receipt):
                self._wait_for_service(receipt)
                return
            entry = journal.change(entry, receipt=receipt)
        progress.phase = "submitting"
        try:
            landed = self._send(entry)
        except ContractError as error:
            self._refused(entry, error)
            return
        except TransactionError as error:
            unknown = f"whether file {entry.counter} was submitted is unknown"
            known = unknown if error.tx_hash else f"file {entry.counter} is not submitted yet"
            progress.pause(1.0, f"{known}: {error}", "submitting")
            return
        progress.slot = None
        progress.submitted += 1
        log.info("file %d is submission %d", entry.counter, landed.sequence)
        journal.prune(entry.counter - _KEPT_FILES)
        self._catch_up(landed.receipt.block)

    def _counts(self, receipt: UploadReceipt | None) -> bool:
        """Whether the chain would take the receipt: without one, what the service leaves out is late and fined."""
        pool, now = self._client.pool(), self._client.client.now()
        if pool is None or receipt is None or not pool.is_service(receipt.signer, now):
            return False
        return now - pool.terms.receiptWindow <= receipt.time <= now + _AHEAD

    def _wait_for_service(self, receipt: UploadReceipt | None) -> None:
        pool, signer = self._client.pool(), receipt.signer if receipt else "nobody"
        named = pool.service if pool and pool.service else "no key"
        when = f", of time {receipt.time}" if receipt else ""
        reason = f"nothing is submitted: {signer} signs the service's receipts{when}; the pool's owner named {named}"
        self._progress.pause(5.0, reason, "waiting")

    def _send(self, entry: JournalEntry) -> Submitted:
        pools, pool = self._client.suite.pools, self._client.config.pool
        item = WorkItem(entry.root, entry.sha256, entry.units, entry.rows)
        if entry.receipt and not entry.overdue and worth_presenting(self._client.state, pool):
            try:
                return pools.submit(pool, entry.step, entry.counter, item, entry.receipt).send()
            except ContractError as error:
                if error.name not in _UNUSABLE:
                    raise
                log.info("file %d is submitted without its receipt: %s", entry.counter, error)
        try:
            return pools.submit(pool, entry.step, entry.counter, item).send()
        except ContractError as error:
            if error.name not in _PROMISED or entry.receipt is None or entry.overdue:
                raise
            return pools.submit(pool, entry.step, entry.counter, item, entry.receipt).send()

    def claim_if_due(self) -> None:
        if time.monotonic() >= self._next_claim:
            self.claim()

    def claim(self) -> None:
        """Claim what has vested, for the operator. Failures are logged: the next claim covers them."""
        self._next_claim = time.monotonic() + self._claim_seconds
        client = self._client
        try:
            hint = client.state.claim_hint(client.config.pool, self._collaborators.node, client.client.now())
            if hint is not None:
                log.info("claimed %s tokens", show_tokens(client.suite.pools.claim(hint).send()))
        except MusterError as error:
            log.info("nothing claimed: %s", error)

    def _refused(self, entry: JournalEntry, error: ContractError) -> None:
        """The chain's next look decides; until then do not hammer it."""
        if error.call == "Pools.submitWithReceipt" and error.name in {"ReceiptOutOfTime", *_PROMISED}:
            self._collaborators.journal.change(entry, overdue=True)
        if error.name == "OverLimit":
            self.claim()
        if error.name == "CounterMismatch":
            # Most often our own transaction of before a kill: the projection will show it.
            self._progress.pause(1.0, f"file {entry.counter}: {error}", "submitting")
            return
        self._progress.pause(3.0, f"file {entry.counter} is not taken: {error}", "waiting")

    def _catch_up(self, block: int) -> None:
        """Wait until the projection has reached our own transaction, or it would be sent again."""
        deadline = time.monotonic() + _CATCH_UP
        while self._client.refresh().head < block and time.monotonic() < deadline and not self._stopping.is_set():
            time.sleep(0.1)
