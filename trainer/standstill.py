"""When a run stands still because of who joined when: a node works for steps whose seed is later than its join.

Nodes that joined after the newest step wait for the next one. If nobody else makes files, that step never comes: the
trainer then publishes it without training, with the same weights.
"""

import time
from collections.abc import Callable

from chain.standing import Standing, standing_of
from chain.state import State


def may_start(state: State, pool: int, carrier: str) -> bool:
    """Whether a node has joined that can make the files of step 1 (`carrier`'s files are never trained on)."""
    return bool(_members(state, pool, carrier))


def kept_waiting(state: State, pool: int, carrier: str) -> bool:
    """Whether a node may work for the next step, but for none that is published."""
    newest = state.pools[pool].step
    return any(joined > newest for joined in _members(state, pool, carrier))


def makers(state: State, pool: int, carrier: str) -> int:
    """How many nodes may work for the newest published step, now or once a refusal is final."""
    newest = state.pools[pool].step
    return sum(joined <= newest for joined in _members(state, pool, carrier))


def _members(state: State, pool: int, carrier: str) -> list[int]:
    """From which step on each node may work that is a member."""
    may = (Standing.MEMBER, Standing.FROZEN)
    accounts = (account for (of, _), account in state.accounts.items() if of == pool)
    return [one.joined_step for one in accounts if standing_of(one) in may and one.node != carrier]


class Standstill:
    """Told of every look at the chain, says when to go on without files: nodes wait for the next step, no file is on
    its way, and for `patience` seconds nobody could make one or for `silence` seconds nobody did."""

    def __init__(self, patience: float, silence: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._patience, self._silence, self._clock = patience, silence, clock
        self._seen: tuple[int, int, bool] | None = None
        self._since = clock()

    def look(self, state: State, pool: int, carrier: str, coming: int) -> bool:
        """Whether to publish the next step without training. `coming`: files that have no final verdict yet."""
        idle = bool(makers(state, pool, carrier))
        seen = (state.pools[pool].step, len(state.pools[pool].sequences), idle)
        if seen != self._seen or coming or not kept_waiting(state, pool, carrier):
            self._seen, self._since = seen, self._clock()
            return False
        return self._clock() - self._since >= (self._silence if idle else self._patience)
