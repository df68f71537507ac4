"""Opens the pool owner's canaries: every file of the carrier, after its votes and within its challenge window.

An opening accuses the seats that accepted the file, and frees the carrier. It runs in the trainer's process because the
owner's key must not send from two processes at once.
"""

import logging
import threading

from eth_utils.crypto import keccak

from chain.contracts.appeals import FailingRollout, Planted
from chain.records import Submission
from chain.state import State
from protocol.config import PoolConfig
from protocol.errors import MusterError
from protocol.rollouts.commitment import inclusion
from protocol.rollouts.file import read
from protocol.rollouts.schema import Limits
from protocol.seeds import audit_sample
from protocol.verdict import Code
from storage.keys import object_key
from trainer.canary_tree import LEAVES
from trainer.publisher import StepPublisher

log = logging.getLogger("muster.trainer")
_POLL_SECONDS = 1.0


def to_open(state: State, pool: int, carrier: str, now: int, margin: int = 2) -> list[Submission]:
    """The carrier's settled files that can still be opened at chain time `now`, and were not."""
    return [
        sub
        for sub in state.submissions_of(pool, carrier)
        if sub.decided_time and not sub.finalized and now + margin < sub.final_time
        if (pool, sub.sequence) not in state.canaries and not sub.disputed
    ]


def unsettled(state: State, pool: int, carrier: str) -> bool:
    """Whether a file of the carrier still waits for votes, its opening or its conclusion."""
    canaries = state.canaries
    return any(
        not sub.finalized and not ((pool, sub.sequence) in canaries and canaries[pool, sub.sequence].concluded)
        for sub in state.submissions_of(pool, carrier)
    )


class CanaryKeeper:
    """A thread that opens. `publisher` holds the owner's secret, bucket and chain link."""

    def __init__(self, publisher: StepPublisher, config: PoolConfig) -> None:
        self._publisher, self._limits = publisher, Limits.of(config.work)
        self._carrier, self._pool = publisher.carrier, publisher.pool
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="canaries", daemon=True)

    def start(self) -> None:
        if self._carrier:
            self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=30)

    def _run(self) -> None:
        while not self._stop.wait(_POLL_SECONDS):
            try:
                link = self._publisher.link
                state = link.state
                for sub in to_open(state, self._pool, self._carrier, link.client.now()):
                    self._open(state, sub)
            except MusterError as error:
                log.info("canary: %s", error)

    def _open(self, state: State, sub: Submission) -> None:
        planted = self._opening(state, sub)
        if planted is None:
            log.error("file %d of the carrier was not planted with step %d", sub.sequence, sub.step)
            return
        terms = state.pools[self._pool].terms
        seed = state.lane_of(sub).round.seed
        row = audit_sample(seed, sub.sequence, sub.rows, terms.auditRate)[0]
        data = self._publisher.bucket.get(object_key("rollouts", sub.sha256), self._limits.file_bytes)
        content, proof = inclusion(read(data, self._limits)[1], row)
        failing = FailingRollout(row, keccak(content), proof)
        self._publisher.link.suite.canaries.open(sub, planted, failing, Code.REJECT_WEIGHTS).send()
        log.info("opened file %d as a canary", sub.sequence)

    def _opening(self, state: State, sub: Submission) -> Planted | None:
        """The file's place in its step's tree: found by trying the counters that the tree may have begun with."""
        root = state.pools[self._pool].steps[sub.step].canary_root
        for first in range(sub.counter, max(-1, sub.counter - LEAVES), -1):
            tree = self._publisher.canaries(sub.step, first)
            if tree.root == root:
                return tree.opening(sub.node, sub.counter)
        return None
