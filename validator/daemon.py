"""The validator's process: looks at the chain again and again and starts whatever is due for its seats."""

import logging
import threading
from collections.abc import Callable

from protocol.api.work import HeartbeatRequest
from protocol.errors import ConfigError, MusterError
from runtime.heartbeats import Heartbeats, heartbeat
from validator.collaborators import ValidatorCollaborators
from validator.config import ValidatorConfig
from validator.fees import FeeCollection
from validator.keeper import Keeper
from validator.lanes import LaneHandler
from validator.publishing import VerdictPublisher
from validator.trials import TrialHandler
from validator.voting import Voting

log = logging.getLogger("muster.validator")
MakeVoting = Callable[[ValidatorCollaborators, VerdictPublisher], Voting]


class Validator:
    """Serves all seats whose voting keys the configuration names."""

    def __init__(
        self, config: ValidatorConfig, collaborators: ValidatorCollaborators, make_voting: MakeVoting = Voting
    ) -> None:
        self._config, self._collaborators = config, collaborators
        client, tasks = collaborators.pool_client, collaborators.tasks
        publisher = VerdictPublisher(collaborators.orchestrator, collaborators.verdicts, tasks)
        self._voting = make_voting(collaborators, publisher)
        self._fees = FeeCollection(collaborators, publisher)
        self._keeper = Keeper(next(iter(collaborators.voters.values())), config.pool, tasks)
        self._lanes = LaneHandler(client.suite.court, self._voting, self._fees, self._keeper)
        self._trials = TrialHandler(client.suite.juries, self._voting, self._fees, self._keeper)
        self._generation = client.state.generation
        self._stopping = threading.Event()

    def stop(self) -> None:
        self._stopping.set()
        self._collaborators.wake.set()

    def run(self) -> int:
        """Serve until `stop`. Returns 0."""
        with_us = self._collaborators
        beats = Heartbeats(with_us.orchestrator, self._heartbeat, self._config.heartbeat_seconds)
        beats.start()
        with_us.queue.start()
        log.info("serving %d voting keys in pool %d", len(with_us.voters), self._config.pool)
        try:
            while not self._stopping.is_set():
                try:
                    self.turn()
                except ConfigError:
                    raise
                except MusterError as error:
                    log.info("%s", error)
                    self._stopping.wait(2.0)
                # A new verdict is a vote to be cast: it does not wait for the next look at the chain.
                with_us.wake.wait(self._config.poll_seconds)
                with_us.wake.clear()
            return 0
        finally:
            beats.stop()
            with_us.close()

    def turn(self) -> None:
        """Look at the chain once and start whatever is due."""
        client = self._collaborators.pool_client
        state, pool = client.refresh(), client.pool()
        if pool is None:
            return
        if self._generation != state.generation:
            self._generation = state.generation
            self._collaborators.tasks.forget()
            self._fees.forget()
        now = client.client.now()
        self._lanes.advance(state, pool, now)
        self._trials.advance(state, pool, now)
        self._keeper.finish_overdue(state, now)
        self._voting.end_turn()

    def _heartbeat(self) -> HeartbeatRequest:
        queue = self._collaborators.queue
        return heartbeat(
            "validator",
            self._config.name,
            phase=f"judging {queue.current}" if queue.current else "watching",
            engine=self._config.engine.name,
            metrics={"judged": float(queue.judged)},
        )
