"""When a worker shows the chain the receipt of its upload: with the submission, where that spares the service's
attestation; or later, of files that the service left out, before they count as late."""

import logging
import threading
from collections.abc import Iterator
from itertools import islice

from chain.errors import ContractError
from chain.indexer.records import Submission
from chain.indexer.state import State
from protocol.errors import MusterError
from worker.collaborators import WorkerCollaborators

log = logging.getLogger("muster.worker")
_FEW = 4
"""Files of a lane up to which all of their receipts cost less gas than the service's one attestation of them."""


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


def worth_presenting(state: State, pool_id: int) -> bool:
    """Whether the node's next file should bring its receipt: the pool's lanes hold few files, and those of the open one
    brought theirs, so that its committee is drawn without waiting for the service."""
    newest = list(islice(state.recent_lanes(pool_id, since=-1), 2))
    if newest and not newest[0].ended(state.head):
        if newest[0].missing or len(newest[0].sequences) >= _FEW:
            return False
        newest = newest[1:]
    return all(len(lane.sequences) <= _FEW for lane in newest[:1])


def running_out(state: State, pool_id: int, node: str) -> Iterator[Submission]:
    """The node's files that the service has not attested in the first half of the time it has, and still can."""
    for file in state.unattested(pool_id, node):
        lane = state.lane_of(file)
        if lane.ended(state.head) and state.head >= lane.last_block + state.pools[pool_id].terms.attestBlocks // 2:
            yield file
