"""Attests uploads on chain: which files of a lane that takes no more had their bytes in the bucket, and only those.

Bytes come before randomness: the contract fixes the block that draws a lane's committee when the lane is attested. A
file that is not attested in time is late, unpaid and fined, so this never waits for anything but the chain.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from chain.contracts.court import Court
from chain.judging import Lane
from chain.records import Submission
from chain.state import State
from protocol.errors import MusterError

log = logging.getLogger("muster.attestor")
_AT_ONCE = 8
"""Transactions under way: lanes end together when many nodes work."""

IsStored = Callable[[Submission], bool]


class Attestor:
    """Sends as the service's key, which the pool's owner named at Court. `problem`: why the last attestation failed."""

    def __init__(self, court: Court, pool: int, is_stored: IsStored) -> None:
        self._court, self._pool, self._is_stored = court, pool, is_stored
        self._senders = ThreadPoolExecutor(_AT_ONCE, "attest")
        self._lock, self._sent, self._generation = threading.Lock(), dict[int, int](), 0
        self.problem = ""

    def advance(self, state: State) -> None:
        """Start the attestation of every lane that is due. What fails is due again at the next call."""
        lanes = list(due(state, self._pool, self._is_stored))
        with self._lock:
            sent = self._sent if self._generation == state.generation else {}
            self._sent = {lane.lane: sent.get(lane.lane, 0) for lane, _ in lanes}
            self._generation = state.generation
            for lane, places in lanes:
                new = places & ~self._sent[lane.lane]
                if new:
                    self._sent[lane.lane] |= new
                    self._senders.submit(partial(self._attest, lane.lane, new))

    def _attest(self, lane: int, places: int) -> None:
        try:
            self._court.attest(self._pool, lane, places).send()
            self.problem = ""
        except MusterError as error:
            self.problem = f"lane {lane} is not attested: {error.what}"
            log.warning("%s (%s)", self.problem, error.hint)
            with self._lock:
                self._sent[lane] = self._sent.get(lane, 0) & ~places

    def close(self) -> None:
        self._senders.shutdown(wait=False, cancel_futures=True)


def due(state: State, pool_id: int, is_stored: IsStored) -> Iterator[tuple[Lane, int]]:
    """The lanes that can be attested in the next block, with the places (a bitmap) to attest."""
    pool = state.pools.get(pool_id)
    if pool is None:
        return
    for lane in state.recent_lanes(pool_id, state.head - pool.terms.laneBlocks - pool.terms.attestBlocks):
        if not lane.missing or not lane.ended(state.head) or state.head >= lane.last_block + pool.terms.attestBlocks:
            continue
        files = (file for file in state.files_of(lane) if lane.missing >> file.place & 1)
        places = sum(1 << file.place for file in files if is_stored(file))
        if places:
            yield lane, places
