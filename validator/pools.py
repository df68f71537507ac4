"""The pools that our seats judge: which they are, how they are opened, and what the process shares among them."""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Self

from chain.contracts import DRAW_REACH
from chain.indexer.records import Pool, Seat, further_lanes
from chain.indexer.state import State
from chain.suite import Suite
from environments.program import too_slow
from protocol.accounts import LocalAccount
from protocol.config import PoolConfig
from protocol.encoding import canonical_json
from protocol.errors import ConfigError, MusterError, printable
from protocol.files import write_atomic
from protocol.identity import WorkId
from protocol.seeds import Work
from runtime.orchestrator_client import OrchestratorClient
from runtime.pool_client import ChainConnection, PoolClient
from runtime.process import PoolSource
from runtime.relay import serve_as_peer
from validator.ballots import BallotStore
from validator.config import ENGINES, READY, ValidatorConfig
from validator.judging.pipeline import FileJudge, JudgedWeights, JudgeOne, LoadedEngine, OtherEngines, others
from validator.judging.queue import JudgeQueue
from validator.judging.sources import Sources
from validator.judging.verdicts import VerdictStore
from validator.retention import RetentionStore, Serving, open_serving, tenant_of
from validator.tasks import TransactionTasks

log = logging.getLogger("muster.validator")


@dataclass(frozen=True)
class ValidatorCollaborators:
    """What all pools share. `voters`: for each voting key the contracts that send as it. `wake` is set when there is
    something to do before the next poll of the chain."""

    chain: ChainConnection
    voters: Mapping[str, Suite]
    ballots: BallotStore
    verdicts: VerdictStore
    retained: RetentionStore
    serving: Serving | None
    queue: JudgeQueue
    tasks: TransactionTasks
    wake: threading.Event

    @classmethod
    def connect(cls, config: ValidatorConfig, accounts: list[LocalAccount]) -> Self:
        """Connect to what a configuration names. Raises ConfigError or UnreachableError."""
        chain, wake = ChainConnection(config), threading.Event()
        verdicts = VerdictStore(chain.home / "verdicts")
        room = int(config.keep_gib * (1 << 30))
        files = RetentionStore(chain.home / "files", room, lambda pool: tenant_of(chain.state, pool))
        return cls(
            chain=chain,
            voters={str(account.address): chain.account_suite(account) for account in accounts},
            ballots=BallotStore(chain.home / "ballots"),
            verdicts=verdicts,
            retained=files,
            serving=open_serving(config, files),
            queue=JudgeQueue(verdicts, wake.set),
            tasks=TransactionTasks(2 * len(accounts) + 4),
            wake=wake,
        )

    def close(self) -> None:
        self.tasks.stop()
        self.queue.stop()
        if self.serving is not None:
            self.serving.close()
        self.chain.close()


@dataclass(frozen=True)
class PoolCollaborators:
    """What belongs to one pool. `patience`, `jury_patience`: seconds for which a missing file of it is asked for, by a
    committee and by a jury of one file."""

    pool_client: PoolClient
    orchestrator: OrchestratorClient
    judge: FileJudge
    config: PoolConfig
    patience: float
    jury_patience: float

    def jury_patience_for(self, files: int) -> float:
        """Return the same for a jury of `files` files, which has the longer window."""
        return self.jury_patience + further_lanes(files) * self.patience

    def close(self) -> None:
        self.orchestrator.close()
        self.pool_client.close()


_OPENING_SECONDS = 20.0
_DEADLINE_MARGIN = 3.0  # seconds of a commit window in which no file is waited for any more
_KEEP_STEPS = 4  # policy steps of each pool whose weights stay in the cache


def promised(pool: Pool, seats: Iterable[Seat]) -> bool:
    """Whether one of the seats chose this very pool, and may still be drawn for it: its silence is fined."""
    if pool.validator_group != pool.pool:
        return False
    return any(pool.pool in (*seat.groups, *seat.left_groups) for seat in seats if not seat.closed)


class PoolOpener:
    """Connects to pools: `account` signs requests to their services, all of them are judged by one engine, and files of
    node challenges by their workers' own, of those that this machine holds."""

    def __init__(
        self, config: ValidatorConfig, shared: ValidatorCollaborators, account: LocalAccount, judge_one: JudgeOne
    ) -> None:
        self._config, self._shared, self._account, self._judge_one = config, shared, account, judge_one
        besides = others(config.engine)
        self._engine = LoadedEngine(config.engine.make(), OtherEngines(besides))
        write_atomic(config.home / ENGINES, canonical_json([config.engine.name, *(engine.name for engine in besides)]))
        self._count = 0

    def open(self, source: PoolSource, announced: bool) -> PoolCollaborators:
        """Return the pool at `source`, which a stranger `announced` or the configuration names. Raises MusterError
        where it cannot be judged."""
        config = self._config.model_copy(update=source.model_dump())
        client = PoolClient(config, None, self._shared.chain, announced)
        try:
            if source.pool == self._config.pool:
                serve_as_peer(client, self._account)
            document, pool, shared = client.pool_config(_OPENING_SECONDS), client.pool(), self._shared
            self._refuse_unfit(client, pool, document)
            weights = JudgedWeights(client, self._config.poll_seconds, self._kept_steps)
            judge = FileJudge(
                document, self._engine, Sources(client.objects), weights, shared.verdicts, shared.retained,
                self._judge_one,
            )  # fmt: skip
            orchestrator = OrchestratorClient(
                config.orchestrator, self._account, client.pool_id, allow_private=config.allow_private_sources,
                announced=announced,
            )  # fmt: skip
            if not self._count:
                self._warm(client, pool, judge)
            self._count += 1
        except BaseException:
            client.close()
            raise
        windows = (pool.terms.commitWindow, pool.terms.juryCommitWindow) if pool else (0, 0)
        # Half of the commit window, so that the vote is in time.
        patience = (max(1.0, (window - _DEADLINE_MARGIN) / 2) for window in windows)
        return PoolCollaborators(client, orchestrator, judge, document, *patience)

    def _refuse_unfit(self, client: PoolClient, pool: Pool | None, document: PoolConfig) -> None:
        """Raises ConfigError for a pool that could hold the queue for longer than it gives its judges, or whose
        thresholds are of another audit rate, unless a seat promised to judge it."""
        if pool is None:
            return
        misfit, terms = document.checks.misfit(pool.terms.auditRate), pool.terms
        unfit = misfit or too_slow(document, terms.commitWindow, terms.juryCommitWindow)
        if unfit is None:
            return
        if not promised(pool, (seat for voter in self._shared.voters for seat in client.state.seats_of_voter(voter))):
            raise ConfigError(unfit.what, f"its owner can mend that: {unfit.hint}")
        risk = "REFUSE HONEST FILES" if misfit else "be TOO SLOW to judge in time"
        log.warning("pool %d may %s (muster validator judge --stop): %s", pool.pool, risk, unfit.what)

    def _warm(self, client: PoolClient, pool: Pool | None, judge: FileJudge) -> None:
        """Load the newest weights, and say in the home folder that we can judge. Raises MusterError where they cannot
        be had: nobody should bond on that. With seats at stake nothing waits for them: votes may have to be opened."""
        try:
            if pool is not None and pool.steps and not any(map(client.state.seats_of_voter, self._shared.voters)):
                newest = pool.steps[-1]
                work_id = WorkId(client.pool_id, str(self._account.address), newest.step, 0)
                judge.warm(Work(work_id, bytes(32), newest.manifest))
        except MusterError as error:
            log.warning("not ready to judge pool %d yet: %s; trying again", client.config.pool, error)
            raise
        write_atomic(self._config.home / READY, b"")
        log.info("ready to judge pool %d", client.config.pool)

    def _kept_steps(self) -> int:
        """No pool's steps push another's out of the cache. The first pool is warmed before it counts."""
        return _KEEP_STEPS * max(1, self._count)


# --- Which pools our seats may be drawn for


_AT_STAKE, _AT_LEISURE = 2.0, 30.0  # the longest pauses, in seconds, before a pool is tried again
OpenPool = Callable[[PoolSource, bool], PoolCollaborators]  # from where a pool is, and whether a stranger announced it


def pools_to_serve(state: State, voters: Mapping[str, object], epoch: int) -> set[int]:
    """Return the pools that a seat of these keys may be drawn for, or has an open duty in."""
    ours = [seat for seat in state.seats.values() if seat.voter in voters and not seat.closed]
    numbers, groups = {seat.seat for seat in ours}, set[int]()
    for seat in ours:
        groups.update(seat.groups if seat.active else ())
        groups.update(group for group, last in seat.left_groups.items() if epoch <= last + DRAW_REACH)
    pools = {pool.pool for pool in state.pools.values() if pool.validator_group in groups and pool.status != "settled"}
    lanes = [lane for lane in state.lanes.values() if lane.pool not in pools]
    pools |= {lane.pool for lane in lanes if any(numbers & panel.duties for panel in lane.rounds)}
    return pools | {trial.pool for trial in state.trials.values() if numbers & trial.duties}


class ServedPools:
    """Opens each pool once, in the background, where `sources` say it is or else where its owner announced it. A pool
    that cannot be served is reported: its seats are fined for what they miss."""

    def __init__(self, sources: Mapping[int, PoolSource], open_pool: OpenPool, tasks: TransactionTasks) -> None:
        self._sources, self._open_pool, self._tasks = sources, open_pool, tasks
        self.opened: dict[int, PoolCollaborators] = {}
        self.problems: dict[int, str] = {}
        self._reported: dict[int, str] = {}

    def advance(self, state: State, wanted: set[int]) -> None:
        """Start to open what is missing; pools that the configuration names are opened in any case."""
        for number in sorted(wanted | self._sources.keys()):
            if number not in self.opened and number in state.pools:
                what, opening = f"pool {number} is opened", partial(self._open, state.pools[number])
                longest = _AT_STAKE if number in wanted else _AT_LEISURE
                self._tasks.run(("open", number), state.head, what, opening, quiet=True, longest=longest)
        for number, problem in tuple(self.problems.items()):
            if number in wanted and self._reported.get(number) != problem:
                self._reported[number] = problem
                log.error("our seats may be drawn for pool %d, and it CANNOT BE SERVED: %s", number, problem)
            elif number not in wanted and number not in self._sources:
                self.problems.pop(number, None)  # no seat of ours may be drawn for it any more

    def problem(self, number: int) -> str:
        """Return why a pool is not open; empty while that is not known."""
        return self.problems.get(number, "")

    def _open(self, pool: Pool) -> None:
        announced = pool.pool not in self._sources
        try:
            if announced and not pool.service_url:
                raise ConfigError(
                    "its owner announced no service", "name it in `pools`, or opt out of its validator group"
                )
            source = PoolSource(pool=pool.pool, orchestrator=pool.service_url) if announced else None
            self.opened[pool.pool] = self._open_pool(source or self._sources[pool.pool], announced)
            self.problems.pop(pool.pool, None)
        except MusterError as error:
            self.problems[pool.pool] = printable(str(error), 300)
            raise
