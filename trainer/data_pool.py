"""The owner's process of a data pool: publishes the model as it is, and closes the pool once it has what it buys.

Nothing is kept but what chain, bucket and the model's folder say, so that a kill at any moment costs a repetition at
most. A node may work for steps that are published after it joined: for those who join late the same weights are
published again as the next policy step.
"""

import logging
import os
import threading
from pathlib import Path

from chain.indexer.records import Pool
from chain.indexer.state import State
from protocol.api.work import HeartbeatRequest
from protocol.errors import ConfigError
from protocol.files import drop_old, write_folder
from runtime.heartbeats import Heartbeats, heartbeat
from trainer.base_model import base_model
from trainer.canaries import CanaryPlan
from trainer.collaborators import TrainerCollaborators
from trainer.config import TrainerConfig
from trainer.exits import EXIT_DONE, EXIT_STOPPED
from trainer.model.policy import Policy
from trainer.model.sharding import Placement
from trainer.publish import StepPublisher
from trainer.waiting import Standstill, Waiting, kept_waiting, makers

log = logging.getLogger("muster.trainer")
_OVER = ("closing", "settled")


class DataKeeper:
    """One data pool. `run` returns one of the codes of trainer/exits.py. Raises ConfigError for settings that only
    training has a use for."""

    def __init__(
        self, config: TrainerConfig, outside: TrainerCollaborators, placement: Placement | None = None
    ) -> None:
        self.config, self.outside = config, outside
        self.pool_config = pool = outside.client.pool_config()
        if pool.data is None:
            raise ConfigError(f"pool {config.pool} trains", "start its trainer")
        if config.carrier is not None:
            raise ConfigError("a data pool has no canaries", "remove `carrier` from the trainer's configuration")
        if placement is not None and placement.ranks.world > 1:
            raise ConfigError("a data pool trains nothing", "set `parallel.ranks` to 1")
        self.rollouts = pool.data.rollouts
        self.base = config.base or base_model(pool.model, pool.environments[0], config.seed)
        self.publisher = StepPublisher(
            outside.client,
            outside.bucket,
            outside.account,
            pool.model.dtype,
            pool.weights,
            CanaryPlan.of(outside.account, config.pool, None),
        )
        self.stopping = threading.Event()
        self._standstill = Standstill(config.standstill_seconds, config.newcomer_seconds)
        self._phase, self._step, self._held_up = "starting", 0, ""

    def stop(self) -> None:
        self.stopping.set()

    def run(self) -> int:
        beats = Heartbeats(self.outside.orchestrator, self._beat, self.config.heartbeat_seconds)
        waiting = Waiting(self.stopping, self.config.poll_seconds, lambda: None)
        beats.start()
        try:
            what = f"{self.rollouts} rollouts that are accepted for good"
            return EXIT_STOPPED if waiting.until(what, self._look, why=lambda: self._held_up) is None else EXIT_DONE
        finally:
            self.publisher.encoder.close()
            beats.stop()
            self.outside.client.close()

    def _look(self) -> bool | None:
        """One look at the chain, and what follows from it; True if the pool is over. Raises MusterError: what may be
        temporary is tried again at the next look."""
        state = self.outside.client.refresh()
        return self._act(state, state.pools[self.config.pool]) or None

    def _act(self, state: State, pool: Pool) -> bool:
        if pool.status in _OVER:
            self._phase = "finished"
            return True
        self._step = max(0, pool.step)
        now = self.outside.client.client.now()
        accepted = final_rollouts(state, self.config.pool, now)
        self._phase = f"{accepted} of {self.rollouts} rollouts are accepted for good"
        if accepted >= self.rollouts:
            log.info("%s: closing the pool", self._phase)
            self.outside.client.suite.pools.close_pool(self.config.pool).send()
        elif not pool.steps or self._wanted(state, pool, now):
            self._publish(pool)
        self._held_up = f"{accepted} are" if makers(state, self.config.pool, "") else self._standstill.why
        return False

    def _wanted(self, state: State, pool: Pool, now: int) -> bool:
        """Whether nodes that joined late get a step to work for: sooner where nobody else may work."""
        alone = self._standstill.look(state, self.config.pool, "", 0)
        due = now >= pool.steps[-1].time + self.config.newcomer_seconds
        return alone or (due and kept_waiting(state, self.config.pool, ""))

    def _publish(self, pool: Pool) -> None:
        """The model's weights as the pool's next policy step."""
        known, step = [one.manifest for one in pool.steps], len(pool.steps)
        self._phase = f"publishing step {step}"
        first, folder = self.publisher.encoder.folder(0), self.publisher.encoder.folder(step)
        if not first.is_dir():
            Policy(self.base, self.pool_config.model.dtype, frozen=True).export(first)
        if not folder.is_dir():
            write_folder(folder, lambda aside: _link(first, aside))
        self.publisher.ensure([*known, self.publisher.upload(step, known)])
        others = [path for path in sorted(folder.parent.glob("step-*")) if path not in (first, folder)]
        drop_old(others, self.config.keep_exports)

    def _beat(self) -> HeartbeatRequest:
        return heartbeat("trainer", self.config.name, phase=self._phase, step=self._step, metrics={})


def final_rollouts(state: State, pool: int, now: int) -> int:
    """How many rollouts are in files whose acceptance nothing can change at chain time `now`."""
    return sum(sub.rows for sub in state.accepted(pool) if sub.is_final(now))


def _link(source: Path, target: Path) -> None:
    """The same files under another name, without their bytes a second time."""
    for path in source.iterdir():
        os.link(path, target / path.name)
