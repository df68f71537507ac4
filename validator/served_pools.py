"""Which pools our seats may be drawn for, and the connections to all of them that can be served."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from chain.contracts import DRAW_REACH
from chain.indexer.records import Pool
from chain.indexer.state import State
from protocol.errors import ConfigError, MusterError, printable
from runtime.process import PoolSource
from validator.collaborators import PoolCollaborators, UnopenedPool
from validator.transaction_tasks import TransactionTasks

log = logging.getLogger("muster.validator")
_REMIND_SECONDS = 60.0
_AT_STAKE, _AT_LEISURE = 2.0, 30.0
"""The longest pause, in seconds, before a pool that could not be opened is tried again."""

OpenPool = Callable[[PoolSource, bool], PoolCollaborators]
"""From where a pool is, and whether a stranger said so."""


def pools_to_serve(state: State, voters: Mapping[str, object], epoch: int) -> set[int]:
    """The pools that a seat of these keys may be drawn for, or has an open duty in."""
    ours = [seat for seat in state.seats.values() if seat.voter in voters and not seat.closed]
    numbers, classes = {seat.seat for seat in ours}, set[int]()
    for seat in ours:
        classes.update(seat.classes if seat.active else ())
        classes.update(one for one, last in seat.left_classes.items() if epoch <= last + DRAW_REACH)
    found = {pool.pool for pool in state.pools.values() if pool.seat_class in classes and pool.status != "settled"}
    for lane in state.lanes.values():
        if lane.pool not in found and any(numbers & one.duties for one in lane.rounds):
            found.add(lane.pool)
    return found | {trial.pool for trial in state.trials.values() if numbers & trial.duties}


class ServedPools:
    """Opens each pool once, in the background, where `sources` say it is or else where its owner announced it. A pool
    that cannot be served is said again and again, in `problems` and in the log: its seats are fined for what they miss.
    """

    def __init__(self, sources: Mapping[int, PoolSource], open_pool: OpenPool, tasks: TransactionTasks) -> None:
        self._sources, self._open_pool, self._tasks = sources, open_pool, tasks
        self._opened: dict[int, PoolCollaborators] = {}
        self._told: dict[int, tuple[str, float]] = {}
        self.problems: dict[int, str] = {}

    def advance(self, state: State, wanted: set[int]) -> None:
        """Start to open what is missing; pools that the configuration names are opened in any case."""
        for number in sorted(wanted | self._sources.keys()):
            if number not in self._opened and number in state.pools:
                what, opening = f"pool {number} is opened", partial(self._open, state.pools[number])
                tried = _AT_STAKE if number in wanted else _AT_LEISURE
                self._tasks.run(("open", number), state.head, what, opening, quiet=True, longest=tried)
        for number in tuple(self.problems):
            if number in wanted:
                self._remind(number)
            elif number not in self._sources:
                self.problems.pop(number, None)  # no seat of ours may be drawn for it any more

    def unopened(self, number: int) -> UnopenedPool:
        """What stands for a pool until it is opened."""
        return UnopenedPool(lambda: self.problems.get(number, ""))

    def take(self) -> Iterator[tuple[int, PoolCollaborators]]:
        """The pools that have been opened so far."""
        yield from sorted(self._opened.items())

    def _open(self, pool: Pool) -> None:
        announced = pool.pool not in self._sources
        try:
            if announced and not pool.service_url:
                raise ConfigError("its owner announced no service", "name it in `pools`, or opt out of its class")
            source = PoolSource(pool=pool.pool, orchestrator=pool.service_url) if announced else None
            self._opened[pool.pool] = self._open_pool(source or self._sources[pool.pool], announced)
            self.problems.pop(pool.pool, None)
        except MusterError as error:
            self.problems[pool.pool] = printable(str(error), 300)
            raise

    def _remind(self, number: int) -> None:
        problem, now = self.problems.get(number, ""), time.monotonic()
        said, when = self._told.get(number, ("", 0.0))
        if problem and (said != problem or now > when + _REMIND_SECONDS):
            self._told[number] = problem, now
            log.error("our seats may be drawn for pool %d, and it CANNOT BE SERVED: %s", number, problem)
