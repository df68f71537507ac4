"""The validator's process: looks at the chain again and again and starts whatever is due for its seats."""

import logging
import threading

from chain.indexer.state import State
from protocol.api.work import HeartbeatRequest
from protocol.encoding import canonical_json
from protocol.errors import ConfigError, MusterError, unwritten
from protocol.files import write_atomic
from runtime.orchestrator_client import heartbeat
from validator.config import UNSERVED, ValidatorConfig
from validator.duties import MakeVoting, PoolDuties
from validator.judging.queue import TaskKey
from validator.pools import OpenPool, PoolCollaborators, ServedPools, ValidatorCollaborators, pools_to_serve
from validator.retention import Custodian
from validator.voting import Voting

log = logging.getLogger("muster.validator")


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
        self._custodian = Custodian(collaborators.holdings, collaborators.voters, config.home)
        self._pools: dict[int, PoolDuties] = {}
        self._unopened: dict[int, PoolDuties] = {}
        self._said: dict[str, str] | None = None
        self._generation = collaborators.chain.state.generation
        self._epoch_blocks = collaborators.chain.suite.seats.epoch_blocks()
        self._stopping = threading.Event()

    def stop(self) -> None:
        self._stopping.set()
        self._collaborators.wake.set()

    def run(self) -> int:
        """Serve until `stop`. Returns 0."""
        with_us = self._collaborators
        with_us.queue.start()
        log.info("serving %d voting keys", len(with_us.voters))
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
                # A new verdict is a vote to be cast: it does not wait for the next look at the chain.
                with_us.wake.wait(self._config.poll_seconds)
                with_us.wake.clear()
            return 0
        finally:
            self.close()
            with_us.close()

    def close(self) -> None:
        """Take leave of every pool."""
        for duties in self._pools.values():
            duties.close()
        self._custodian.close()

    def turn(self) -> None:
        """Look at the chain once and start whatever is due."""
        with_us = self._collaborators
        state = with_us.chain.refresh()
        if self._generation != state.generation:
            self._generation = state.generation
            with_us.tasks.forget()
            self._custodian.forget()
            for duties in (*self._pools.values(), *self._unopened.values()):
                duties.forget()
        wanted = pools_to_serve(state, with_us.voters, state.head // self._epoch_blocks)
        self._served.advance(state, wanted)
        for number, pool in self._served.take():
            if number not in self._pools:
                self._begin(number, pool)
        waiting = sorted(wanted - self._pools.keys())
        self._unopened = {number: self._unopened.get(number) or self._without(number) for number in waiting}
        now = with_us.chain.now
        self._custodian.advance(state, now)
        self._advance(state, now)
        self._say_problems()

    def _without(self, number: int) -> PoolDuties:
        return PoolDuties(self._collaborators, number, self._served.unopened(number))

    def _begin(self, number: int, pool: PoolCollaborators) -> None:
        log.info("serving pool %d", number)
        self._pools[number] = duties = PoolDuties(self._collaborators, number, pool, self._make_voting)
        duties.start(lambda: self._heartbeat(pool), self._config.heartbeat_seconds)

    def _advance(self, state: State, now: int) -> None:
        """One pool's trouble is its own; but then nobody knows what is still to be judged for it."""
        wanted: set[TaskKey] | None = set()
        for number, duties in (*self._pools.items(), *self._unopened.items()):
            try:
                found = duties.advance(state, now)
                wanted = None if wanted is None else wanted | found
            except MusterError as error:
                log.info("pool %d: %s", number, error)
                wanted = None
        if wanted is not None:
            self._collaborators.queue.retain(wanted)

    def _problems(self) -> dict[int, str]:
        """What our seats may be drawn for and is not judged: pool → why."""
        troubles = {number: duties.trouble for number, duties in tuple(self._pools.items()) if duties.trouble}
        return troubles | self._served.problems

    def _say_problems(self) -> None:
        """For `muster validator status`, which cannot ask a service that does not answer."""
        problems = {str(number): why for number, why in sorted(self._problems().items())}
        if problems != self._said:
            self._said = problems
            write_atomic(self._config.home / UNSERVED, canonical_json(problems))

    def _heartbeat(self, pool: PoolCollaborators) -> HeartbeatRequest:
        queue, problems = self._collaborators.queue, sorted(self._problems())
        kept = self._collaborators.holdings.files.files
        phase = f"judging {queue.current}" if queue.current else "watching"
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
