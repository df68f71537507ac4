"""Who may share, as a gate asks the chain: however many strangers come, in one call a second."""

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from chain.contracts.swarms import Swarms
from orchestrator.errors import HttpError
from protocol.errors import MusterError

log = logging.getLogger("muster.swarm")
_MOST_AT_ONCE = 500
_ASK_SECONDS = 1.0


class Members(Protocol):
    def check(self, address: str) -> None:
        """Raises HttpError 403 for who may not share, 503 where that is not known yet."""
        ...


class NamedMembers:
    """Of a swarm that no chain knows."""

    def __init__(self, members: Sequence[str]) -> None:
        self._members = frozenset(members)

    def check(self, address: str) -> None:
        if address not in self._members:
            raise _stranger(address)


class StakedMembers:
    """Those of swarm `number` whose stake lies on chain, `confirmations` blocks deep, and who have not left. What is
    known of a member holds for `seconds`, and as long as the chain is gone."""

    def __init__(
        self,
        swarms: Swarms,
        number: int,
        confirmations: int,
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._swarms, self._number, self._confirmations = swarms, number, confirmations
        self._seconds, self._clock = seconds, clock
        self._lock = threading.Lock()
        self._known: dict[str, tuple[bool, float]] = {}
        """Of who joined: whether it may share, and since when that is known."""
        self._wanted: dict[str, None] = {}
        self._next = 0.0

    def check(self, address: str) -> None:
        known, since = self._known.get(address, (None, 0.0))
        if known is None or self._clock() - since > self._seconds:
            answered = self._ask(address)
            known, _ = self._known.get(address, (None, 0.0))
            if known is None and not answered:
                raise HttpError(503, "whether you are a member is being asked", "try again", 1)
        if not known:
            raise _stranger(address)

    def _ask(self, address: str) -> bool:
        """With all others who were not answered yet; whether the chain was asked about this one now. Strangers' keys
        cost nothing, so each must not cost a call."""
        with self._lock:
            now = self._clock()
            due = now >= self._next
            # Strangers who fill it and never come again keep out neither who has stake nor whoever comes next.
            if due or address in self._known or len(self._wanted) < _MOST_AT_ONCE:
                self._wanted[address] = None
            if not due:
                return False
            # Nobody else waits for an answer that may take long.
            self._next = math.inf
            asked, self._wanted = list(self._wanted), {}
        try:
            self._read(asked, now)
            return True
        except MusterError as error:
            log.warning("members of the swarm cannot be read: %s", error)
            return False
        finally:
            self._next = self._clock() + _ASK_SECONDS

    def _read(self, asked: Sequence[str], now: float) -> None:
        settled = self._swarms.client.head().number - self._confirmations
        views = {one.member: one for one in self._swarms.members_of(self._number, asked)}
        for address in asked:
            one = views.get(address)
            if one is not None and 0 < one.joined_block < settled:
                self._known[address] = one.active and not one.ejected, now
            else:
                # Who never joined is forgotten: only stake may take memory for long.
                self._known.pop(address, None)


def _stranger(address: str) -> HttpError:
    return HttpError(403, f"{address} is no member of this swarm", "muster swarm join; wait for confirmations")
