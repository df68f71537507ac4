"""Presents receipts of files that the pool's service uploaded and then left out on chain, before they count as late."""

import logging
import threading
from collections.abc import Iterator

from chain.errors import ContractError
from chain.records import Submission
from chain.state import State
from protocol.errors import MusterError
from worker.collaborators import WorkerCollaborators

log = logging.getLogger("muster.worker")


class ReceiptKeeper:
    """A thread of its own: making a file takes longer than a lane waits for what is missing."""

    def __init__(self, collaborators: WorkerCollaborators, poll_seconds: float) -> None:
        self._collaborators, self._poll = collaborators, poll_seconds
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="receipts", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        while not self._stopping.wait(self._poll):
            try:
                self.once()
            except MusterError as error:
                log.info("no receipt is presented: %s", error)
            except Exception:
                # A bug here must not end the thread: what the service leaves out would be late.
                log.exception("no receipt is presented")

    def once(self) -> None:
        """Present the receipt of every file that is running out of time."""
        client, journal = self._collaborators.pool_client, self._collaborators.journal
        client.refresh()
        for file in running_out(client.state, client.config.pool, self._collaborators.node):
            receipt = journal.receipt(file.sha256)
            if receipt is not None and not self._stopping.is_set():
                log.warning("the service did not attest submission %d: presenting its receipt", file.sequence)
                try:
                    client.suite.court.attest_by_receipt(file, receipt).send()
                except ContractError as error:
                    log.warning("the receipt of submission %d is not taken: %s", file.sequence, error)


def running_out(state: State, pool_id: int, node: str) -> Iterator[Submission]:
    """The node's files that the service has not attested in the first half of the time it has, and still can."""
    for file in state.unattested(pool_id, node):
        lane = state.lane_of(file)
        if lane.ended(state.head) and state.head >= lane.last_block + state.pools[pool_id].terms.attestBlocks // 2:
            yield file
