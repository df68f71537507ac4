"""Attests uploads on chain: which files of a lane that takes no more had their bytes in the bucket, and only those.

Bytes come before randomness: the contract fixes the block that draws a lane's committee when the lane is attested. A
file that is not attested in time is late, unpaid and fined. So what is known of one file never waits for another, nor
one lane for another, and nothing is kept that a restart would need: chain, bucket and receipts say what is to be done.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence

from chain.contracts import Court
from chain.errors import ContractError
from chain.indexer.records import Lane, Submission
from chain.indexer.state import State
from protocol.errors import MusterError
from protocol.waits import WAITS

log = logging.getLogger("muster.attestor")
_AT_ONCE = 8
"""Lanes under way: they end together when many nodes work."""
_DONE = frozenset({"NothingNew", "AlreadyDrawn", "AlreadySettled"})
"""Refusals when somebody presented receipts meanwhile, or the last transaction was mined unseen."""

IsStored = Callable[[Submission], bool]


class Attestor:
    """Sends as the service's key, which the pool's owner named at Court. `looks`: ways to learn that a file is stored,
    the quickest first."""

    def __init__(self, court: Court, pool: int, looks: Sequence[IsStored]) -> None:
        self._court, self._pool, self._looks = court, pool, looks
        self._lock = threading.Lock()
        self._looked: dict[int, int | None] = {}
        """Lane → the block up to which it was seen to, None while it is."""
        self._problems: dict[int, str] = {}

    def problem(self, state: State) -> str:
        """Why uploads are not attested as they should be, or empty."""
        pool, key = state.pools.get(self._pool), self._court.client.address
        if pool is not None and key != pool.service:
            cure = "start it with that key, or name its own: muster pool set-service"
            return f"this service has the key {key}, and the pool's owner named {pool.service or 'none'}; {cure}"
        with self._lock:
            return next(iter(self._problems.values()), "")

    def advance(self, state: State) -> None:
        """Start to attest every lane that is due and not under way. What fails is due again in the next block."""
        lanes = {lane.lane: lane for lane in due(state, self._pool)}
        with self._lock:
            self._problems = {number: why for number, why in self._problems.items() if number in lanes}
            self._looked = {n: block for n, block in self._looked.items() if block is None or block >= state.head}
            room = _AT_ONCE - list(self._looked.values()).count(None)
            for number in sorted(lanes.keys() - self._looked.keys())[: max(room, 0)]:
                self._looked[number] = None
                args = lanes[number], state.files_of(lanes[number]), state.head
                threading.Thread(target=self._see_to, args=args, name=f"lane {number}", daemon=True).start()

    def _see_to(self, lane: Lane, files: list[Submission], head: int) -> None:
        problem = "it failed unexpectedly"
        try:
            with WAITS.on(f"the attestation of lane {lane.lane}"):
                head = max(head, self._attest(lane, files) - 1)
            problem = ""
        except MusterError as error:
            problem = "" if isinstance(error, ContractError) and error.name in _DONE else error.what
        finally:
            with self._lock:
                self._looked[lane.lane] = head
                said = self._problems.pop(lane.lane, "")
                if problem:
                    self._problems[lane.lane] = f"lane {lane.lane} is not attested: {problem}"
                    if said != self._problems[lane.lane]:
                        log.warning("%s", self._problems[lane.lane])

    def _attest(self, lane: Lane, files: list[Submission]) -> int:
        """The last block with an attestation of what is stored of the lane, or 0. A bucket that does not answer holds
        up none of the files that are known to be in it."""
        missing, block = lane.missing, 0
        for is_stored in self._looks:
            places = sum(1 << file.place for file in files if missing >> file.place & 1 and is_stored(file))
            if places:
                block = self._court.attest(self._pool, lane.lane, places).send().block
                missing &= ~places
        return block


def due(state: State, pool_id: int) -> Iterator[Lane]:
    """The lanes of which something can be attested in the next block."""
    pool = state.pools.get(pool_id)
    if pool is None:
        return
    patience = pool.terms.attestBlocks
    for lane in state.recent_lanes(pool_id, state.head - pool.terms.laneBlocks - patience):
        if lane.missing and lane.ended(state.head) and state.head < lane.last_block + patience:
            yield lane
