"""Everything that our seats have to do in one pool."""

from collections.abc import Callable

from chain.indexer.state import State
from protocol.api.work import HeartbeatRequest
from runtime.heartbeats import Heartbeats
from validator.collaborators import PoolCollaborators, UnopenedPool, ValidatorCollaborators
from validator.fees import FeeCollection
from validator.judge_queue import TaskKey
from validator.keeper import Keeper
from validator.lanes import LaneHandler
from validator.publishing import VerdictPublisher
from validator.trials import TrialHandler
from validator.voting import Voting

MakeVoting = Callable[[ValidatorCollaborators, PoolCollaborators, VerdictPublisher], Voting]


class PoolDuties:
    """Lanes, trials and what is overdue, of one pool. What needs no more than the chain is done where the pool could
    not be opened too: cast votes are shown, answers given, lanes settled, fees collected."""

    def __init__(
        self,
        shared: ValidatorCollaborators,
        number: int,
        pool: PoolCollaborators | UnopenedPool,
        make_voting: MakeVoting = Voting,
    ) -> None:
        self._number, self._pool = number, pool if isinstance(pool, PoolCollaborators) else None
        service = self._pool.orchestrator if self._pool else None
        publisher, suite = VerdictPublisher(service, shared.verdicts), shared.chain.suite
        self._publisher = publisher
        self._voting = make_voting(shared, self._pool, publisher) if self._pool else Voting(shared, pool, publisher)
        self._fees = FeeCollection(shared, publisher)
        self._keeper = Keeper(next(iter(shared.voters.values())), number, shared.tasks)
        self._lanes = LaneHandler(suite.court, self._voting, self._fees, self._keeper)
        config = self._pool.config if self._pool else None
        self._trials = TrialHandler(suite.juries, self._voting, self._fees, self._keeper, config)
        self._beats: Heartbeats | None = None

    @property
    def trouble(self) -> str:
        """Why our last vote there was no judgement; empty if it was one."""
        return self._voting.trouble

    def start(self, beat: Callable[[], HeartbeatRequest], seconds: float) -> None:
        """Begin to tell the pool's service how this process is (`beat`)."""
        if self._pool is not None:
            self._beats = Heartbeats(self._pool.orchestrator, beat, seconds)
            self._beats.start()

    def advance(self, state: State, now: int) -> set[TaskKey]:
        """Start whatever is due; returns the tasks that are to be judged, now or ahead."""
        pool = state.pools[self._number]
        self._lanes.advance(state, pool, now)
        self._trials.advance(state, pool, now)
        self._keeper.finish_overdue(state, now)
        return self._voting.end_turn()

    def forget(self) -> None:
        """After a reorganisation."""
        self._fees.forget()

    def close(self) -> None:
        self._publisher.close()
        if self._beats is not None:
            self._beats.stop()
        if self._pool is not None:
            self._pool.close()
