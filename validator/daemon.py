"""The validator's process: polls the chain and starts whatever is due for its seats."""

import logging
import threading
import time
from functools import partial

from chain.indexer.state import State
from protocol.api.work import HeartbeatRequest
from protocol.encoding import canonical_json
from protocol.errors import ConfigError, MusterError, unwritten
from protocol.files import write_atomic
from runtime.orchestrator_client import heartbeat
from validator.config import UNSERVED, ValidatorConfig
from validator.decide import ballots_needed, pools_of_ballots
from validator.duties import MakeVoting, PoolDuties
from validator.judging.queue import TaskKey
from validator.pools import OpenPool, PoolCollaborators, ServedPools, ValidatorCollaborators, pools_to_serve
from validator.retention import RetentionService
from validator.voting import Voting

log = logging.getLogger("muster.validator")
_SWEEP_SECONDS = 60.0


class Validator:
    """Serves all seats whose voting keys the configuration names, in all pools that they may be drawn for."""

    def __init__(
        self,
        config: ValidatorConfig,
        collaborators: ValidatorCollaborators,
        open_pool: OpenPool,
        make_voting: MakeVoting = Voting,
    ) -> None:
        self._config, self._collaborators, self._make_voting = config, collaborators, make_voting
        self._served = ServedPools(config.sources, open_pool, collaborators.tasks)
        self._retention = RetentionService(
            collaborators.retained, collaborators.serving, collaborators.voters, config.home
        )
        self._pools: dict[int, PoolDuties] = {}
        self._unopened: dict[int, PoolDuties] = {}
        self._written: dict[str, str] | None = None
        self._unneeded: set[str] = set()
        self._sweep_at = 0.0
        self._generation = collaborators.chain.state.generation
        self._epoch_blocks = collaborators.chain.suite.seats.epoch_blocks()
        self._stopping = threading.Event()

    def stop(self) -> None:
        self._stopping.set()
        self._collaborators.wake.set()

    def run(self) -> int:
        """Serve until `stop`. Returns 0."""
        shared = self._collaborators
        shared.queue.start()
        log.info("serving %d voting keys", len(shared.voters))
        try:
            while not self._stopping.is_set():
                try:
                    self.turn()
                except ConfigError:
                    raise
                except MusterError as error:
                    log.info("%s", error)
                    self._stopping.wait(2.0)
                except OSError as error:
                    log.error("%s", unwritten(error))
                    self._stopping.wait(2.0)
                # A new verdict is a vote to be cast: it does not wait for the next poll of the chain.
                shared.wake.wait(self._config.poll_seconds)
                shared.wake.clear()
            return 0
        finally:
            self.close()
            shared.close()

    def close(self) -> None:
        for duties in self._pools.values():
            duties.close()
        self._retention.close()

    def turn(self) -> None:
        """Poll the chain once and start whatever is due."""
        shared = self._collaborators
        state = shared.chain.refresh()
        if self._generation != state.generation:
            self._generation = state.generation
            shared.tasks.forget()
            self._retention.forget()
            for duties in (*self._pools.values(), *self._unopened.values()):
                duties.forget()
        wanted = pools_to_serve(state, shared.voters, state.head // self._epoch_blocks)
        wanted |= pools_of_ballots(state, shared.ballots.cast_by(shared.voters))
        self._served.advance(state, wanted)
        for number, pool in sorted(self._served.opened.items()):
            if number not in self._pools:
                log.info("serving pool %d", number)
                self._pools[number] = PoolDuties(shared, number, pool, self._make_voting)
                self._pools[number].start(partial(self._heartbeat, pool), self._config.heartbeat_seconds)
        for number in sorted(wanted - self._pools.keys() - self._unopened.keys()):
            self._unopened[number] = PoolDuties(shared, number, None, problem=partial(self._served.problem, number))
        self._unopened = {number: self._unopened[number] for number in sorted(wanted - self._pools.keys())}
        now = shared.chain.now
        self._retention.advance(state, now)
        self._advance(state, now)
        self._sweep_ballots(state, now)
        self._write_problems()

    def _advance(self, state: State, now: int) -> None:
        """Advance each pool. Where one fails, the judge queue forgets nothing, since it may still need it."""
        wanted: set[TaskKey] | None = set()
        for number, duties in (*self._pools.items(), *self._unopened.items()):
            try:
                open_tasks = duties.advance(state, now)
                wanted = None if wanted is None or open_tasks is None else wanted | open_tasks
            except MusterError as error:
                log.info("pool %d: %s", number, error)
                wanted = None
        if wanted is not None:
            self._collaborators.queue.retain(wanted)

    def _sweep_ballots(self, state: State, now: int) -> None:
        """Delete ballots that were not needed at two sweeps in a row: a reorganisation may change that for a moment."""
        if time.monotonic() < self._sweep_at:
            return
        self._sweep_at = time.monotonic() + _SWEEP_SECONDS
        ballots = self._collaborators.ballots
        unneeded = {name for name in ballots.names if not ballots_needed(state, name, now)}
        for name in unneeded & self._unneeded:
            ballots.forget(name)
        self._unneeded = unneeded - (unneeded & self._unneeded)

    def _problems(self) -> dict[str, str]:
        """Return why pools that our seats may be drawn for are not judged, by pool."""
        troubles = {number: duties.voting.trouble for number, duties in tuple(self._pools.items())}
        problems = sorted((troubles | self._served.problems).items())
        return {str(number): why for number, why in problems if why}

    def _write_problems(self) -> None:
        """Write them for `muster validator status`, which cannot ask a service that does not answer."""
        problems = self._problems()
        if problems != self._written:
            write_atomic(self._config.home / UNSERVED, canonical_json(problems))
            self._written = problems

    def _heartbeat(self, pool: PoolCollaborators) -> HeartbeatRequest:
        queue, problems = self._collaborators.queue, self._problems()
        kept = self._collaborators.retained.files
        phase = f"judging {queue.current}" if queue.current else "watching"
        phase = f"{phase}; {queue.problem}" if queue.problem else phase
        return heartbeat(
            "validator",
            self._config.name,
            phase=f"{phase}; CANNOT SERVE {', '.join(f'pool {number}' for number in problems)}" if problems else phase,
            engine=self._config.engine.name,
            weights=pool.pool_client.newest_weights,
            metrics={
                "judged": float(pool.judge.judged),
                "unserved_pools": float(len(problems)),
                "kept_files": float(len(kept)),
                "kept_bytes": float(sum(file.size for file in kept.values())),
            },
        )
