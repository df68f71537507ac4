"""Everything that our seats have to do in one pool."""

from collections.abc import Callable

from chain.state import State
from protocol.api.work import HeartbeatRequest
from runtime.heartbeats import Heartbeats
from validator.collaborators import PoolCollaborators, ValidatorCollaborators
from validator.fees import FeeCollection
from validator.judge_queue import TaskKey
from validator.keeper import Keeper
from validator.lanes import LaneHandler
from validator.publishing import VerdictPublisher
from validator.trials import TrialHandler
from validator.voting import Voting

MakeVoting = Callable[[ValidatorCollaborators, PoolCollaborators, VerdictPublisher], Voting]


class PoolDuties:
    """Lanes, trials and what is overdue, of one pool. `beat` says how this process is, for the pool's service."""

    def __init__(
        self, shared: ValidatorCollaborators, pool: PoolCollaborators, make_voting: MakeVoting = Voting
    ) -> None:
        self.pool = pool
        client = pool.pool_client
        publisher = VerdictPublisher(pool.orchestrator, shared.verdicts, shared.tasks)
        self._voting = make_voting(shared, pool, publisher)
        self._fees = FeeCollection(shared, publisher)
        self._keeper = Keeper(next(iter(shared.voters.values())), client.config.pool, shared.tasks)
        self._lanes = LaneHandler(client.suite.court, self._voting, self._fees, self._keeper)
        self._trials = TrialHandler(client.suite.juries, self._voting, self._fees, self._keeper)
        self._beats: Heartbeats | None = None

    def start(self, beat: Callable[[], HeartbeatRequest], seconds: float) -> None:
        """Begin to send heartbeats."""
        self._beats = Heartbeats(self.pool.orchestrator, beat, seconds)
        self._beats.start()

    def advance(self, state: State, now: int) -> set[TaskKey]:
        """Start whatever is due; returns the tasks that are to be judged, now or ahead."""
        pool = state.pools[self.pool.pool_client.config.pool]
        self._lanes.advance(state, pool, now)
        self._trials.advance(state, pool, now)
        self._keeper.finish_overdue(state, now)
        return self._voting.end_turn()

    def forget(self) -> None:
        """After a reorganisation."""
        self._fees.forget()

    def close(self) -> None:
        if self._beats is not None:
            self._beats.stop()
        self.pool.close()
