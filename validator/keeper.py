"""What anybody may do and somebody must: settle, finalise, conclude. Keepers' races are harmless, but cost gas."""

import random
import time
from collections.abc import Callable, Hashable
from typing import Any

from chain.contracts import DRAW_REACH
from chain.indexer.records import Lane, Panel, Submission, Trial
from chain.indexer.state import State, needed, seats_in
from chain.suite import Suite
from validator import selectors
from validator.rounds import settleable, turn
from validator.transaction_tasks import TransactionTasks

_MEMBERS_WAIT, _OTHERS_WAIT = 2.0, 4.0


class Keeper:
    """A keeper for one pool. Turns are taken: for each transaction one process sends it at once, the others wait a
    few seconds and step in only if it did not."""

    def __init__(self, suite: Suite, pool: int, tasks: TransactionTasks) -> None:
        self._suite, self._pool, self._tasks = suite, pool, tasks
        self._due: dict[Hashable, float] = {}
        self._blocks = 0

    def settle(self, state: State, lane: Lane, files: list[Submission], seats: set[int], now: int) -> None:
        """Tally the newest round of a lane when it can be; `seats` are ours."""
        current = lane.round
        if current.settled:
            return
        if not selectors.will_never_be_drawn(state, lane) and not settleable(current, now):
            return
        where = selectors.lane_place(lane, current.round)
        settle = self._suite.court.settle((lane.pool, lane.lane, current.round), files).send
        self._do((where, "settle"), state, f"{where} settles", settle, self._wait(current, lane.lane, seats))

    def conclude(self, state: State, trial: Trial, file: Submission | None, seats: set[int]) -> None:
        """Record a jury's verdict at whoever summoned it; `file`: the one it judges, None where that is none."""
        case = state.case_of(trial.trial)
        wait, what = self._wait(trial, trial.trial, seats), f"trial {trial.trial} is concluded"
        key = selectors.trial_place(trial), "conclude"
        if case is not None:
            self._do(key, state, what, self._suite.node_cases.conclude(case.case).send, wait)
            return
        assert file is not None, "all other juries judge files"
        place = (file.pool, file.sequence)
        # A canary's opening ends a dispute of its file.
        planted = place in state.canaries and not state.canaries[place].concluded
        conclude = self._suite.canaries.conclude if planted else self._suite.appeals.conclude
        self._do(key, state, what, conclude(file).send, wait)

    def draw_or_dismiss(self, state: State, trial: Trial, file: Submission | None, seats: set[int]) -> None:
        """For a jury that its jurors leave undrawn: draw it before its one seed lapses, or have the case dismissed."""
        epochs = state.head // self._epoch_blocks() - trial.seed_block // self._epoch_blocks()
        if epochs > DRAW_REACH:
            self.conclude(state, trial, file, seats)
        elif epochs == DRAW_REACH - 1:
            what = f"trial {trial.trial} is drawn"
            self._do((selectors.trial_place(trial), "draw"), state, what, self._suite.juries.draw(trial.trial).send)

    def _epoch_blocks(self) -> int:
        if not self._blocks:
            self._blocks = self._suite.seats.epoch_blocks()
        return self._blocks

    def finish_overdue(self, state: State, now: int) -> None:
        """Finalise refusals, resolve disputes and canaries whose time is up, open the pool once it has its seats."""
        suite, ours = self._suite, state.pools[self._pool]
        if ours.status == "understaffed" and len(seats_in(state, ours)) >= needed(ours.terms):
            self._do(("review", self._pool), state, "the pool's seats are counted", self._review)
        for file in selectors.to_finalize(state, self._pool, now):
            what = f"submission {file.sequence} is finalised"
            self._do(("finalize", self._pool, file.sequence), state, what, suite.pools.finalize(file).send)
        for (pool, sequence), dispute in state.disputes.items():
            over = dispute.verdict and not dispute.appellant and dispute.appeal_until <= now
            over = over and (pool, sequence) not in state.canaries
            if pool == self._pool and not dispute.resolved and over:
                file, what = state.submissions[pool, sequence], f"the dispute of submission {sequence} is resolved"
                self._do(("dispute", pool, sequence), state, what, suite.appeals.conclude(file).send)
        for (pool, sequence), canary in state.canaries.items():
            if pool == self._pool and not canary.concluded and not canary.contester:
                file, what = state.submissions[pool, sequence], f"the canary {sequence} is concluded"
                self._do(("canary", pool, sequence), state, what, suite.canaries.conclude(file).send)

    def _review(self) -> object:
        return self._suite.pools.review_seats(self._pool).send() if self._suite.court.staffed(self._pool) else None

    def _wait(self, current: Panel, number: int, seats: set[int]) -> float:
        """Seconds before we step in: none for the seat whose turn it is."""
        if current.seats and current.seats[turn(number, len(current.seats))] in seats:
            return 0.0
        return _MEMBERS_WAIT if seats & set(current.seats) else _OTHERS_WAIT

    def _do(self, key: Hashable, state: State, what: str, task: Callable[[], Any], wait: float | None = None) -> None:
        delay = random.uniform(0, _MEMBERS_WAIT) if wait is None else wait + random.uniform(0, 0.3) * (wait > 0)
        if time.monotonic() >= self._due.setdefault(key, time.monotonic() + delay):
            self._tasks.run(key, state.head, what, task, quiet=True)
