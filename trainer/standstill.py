"""When a run stands still because of who joined when: a node works for steps whose seed is later than its join.

Nodes that joined after the newest step wait for the next one. If nobody else makes files, that step never comes: the
trainer then publishes it without training, with the same weights. So step 0 need not wait for nodes: who wants to
rehearse before it joins needs weights, and who joins after that gets step 1.
"""

import time
from collections.abc import Callable

from chain.standing import Standing, standing_of
from chain.state import State

_NOBODY = "no node may work: whoever has a stake joins by `muster node up --pool URL`"


def kept_waiting(state: State, pool: int, carrier: str) -> bool:
    """Whether a node may work for the next step, but for none that is published (`carrier`'s files are never trained
    on)."""
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
    its way, and for `patience` seconds nobody could make one or for `silence` seconds nobody did. `why`: what holds the
    run up as of the last look, empty if it is not who joined when."""

    def __init__(self, patience: float, silence: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._patience, self._silence, self._clock = patience, silence, clock
        self._seen: tuple[int, int, bool] | None = None
        self._since, self.why = clock(), ""

    def look(self, state: State, pool: int, carrier: str, coming: int) -> bool:
        """Whether to publish the next step without training. `coming`: files that have no final verdict yet."""
        idle, late = bool(makers(state, pool, carrier)), kept_waiting(state, pool, carrier)
        limit, newest = self._silence if idle else self._patience, state.pools[pool].step
        self.why = "" if idle or coming else _NOBODY
        seen = (newest, len(state.pools[pool].sequences), idle)
        if seen != self._seen or coming or not late:
            self._seen, self._since = seen, self._clock()
        if coming or not late:
            return False
        who = "no file is on its way" if idle else f"nobody may work for step {newest}"
        self.why = (
            f"{who}; nodes that joined after step {newest} get step {newest + 1}, without training, once that has "
            f"lasted {limit:.0f} s"
        )
        return self._clock() - self._since >= limit
