"""The owner's process of a data pool: publishes the model as it is, and closes the pool once it has what it buys.

It keeps nothing that chain, bucket and the model's folder do not hold. A node works only for steps that are published
after it joined: for late nodes the same weights are published again."""

import logging
import os
import shutil
import threading

from chain.indexer.records import Pool
from chain.indexer.state import State
from protocol.api.work import HeartbeatRequest
from protocol.errors import ConfigError
from protocol.files import drop_old, write_folder
from runtime.orchestrator_client import Heartbeats, heartbeat
from trainer.config import TrainerConfig
from trainer.data.waiting import StallTimeout, Waiting, count_nodes
from trainer.exits import EXIT_DONE, EXIT_STOPPED
from trainer.model.base_model import base_model
from trainer.model.policy import Policy
from trainer.model.sharding import Placement
from trainer.pool.canaries import CanaryPlan
from trainer.pool.null_models import NullModelLearner
from trainer.pool.publish import StepPublisher
from trainer.train import KEPT_EXPORTS, TrainerServices

log = logging.getLogger("muster.trainer")
_CLOSED = ("closing", "settled")


class DataBuyer:
    """Runs one data pool. `run` returns one of the codes of trainer/exits.py. Raises ConfigError for settings that only
    training uses."""

    def __init__(self, config: TrainerConfig, services: TrainerServices, placement: Placement | None = None) -> None:
        self.config, self.services = config, services
        self.pool_config = pool = services.client.pool_config()
        if pool.data is None:
            raise ConfigError(f"pool {config.pool} trains", "start its trainer")
        if config.decoy is not None:
            raise ConfigError("a data pool has no canaries", "remove `decoy` from the trainer's configuration")
        if placement is not None and placement.ranks.world > 1:
            raise ConfigError("a data pool trains nothing", "set `parallel.ranks` to 1")
        self.wanted_rollouts = pool.data.rollouts
        self.base = config.base or base_model(pool.model, pool.environments[0], config.seed)
        canaries = CanaryPlan(services.account, config.pool, None)
        self.publisher = StepPublisher(services.client, services.bucket, services.account, pool, canaries)
        self.null_models = NullModelLearner(pool, config, services.client, self.publisher)
        self.stopping = threading.Event()
        self._stall = StallTimeout(config.stall_seconds, config.newcomer_seconds)
        self._phase, self._step, self._blocked_by = "starting", 0, ""

    def stop(self) -> None:
        self.stopping.set()
        self.null_models.stopping.set()

    def run(self) -> int:
        heartbeats = Heartbeats(self.services.orchestrator, self._heartbeat, self.config.heartbeat_seconds)
        waiting = Waiting(self.stopping, self.config.poll_seconds, lambda: None)
        heartbeats.start()
        try:
            what = f"{self.wanted_rollouts} rollouts that are accepted for good"
            over = waiting.until(what, self._poll, why=lambda: self._blocked_by)
            return EXIT_STOPPED if over is None else EXIT_DONE
        finally:
            heartbeats.stop()
            self.services.client.close()

    def _poll(self) -> bool | None:
        """Act on the chain's state once; True if the pool is over. Raises MusterError."""
        state = self.services.client.refresh()
        pool = state.pools[self.config.pool]
        if pool.status in _CLOSED:
            self._phase = "finished"
            return True
        self._step = max(0, pool.step)
        now = self.services.client.client.now()
        accepted = sum(sub.rows for sub in state.accepted(self.config.pool) if sub.is_final(now))
        self._phase = f"{accepted} of {self.wanted_rollouts} rollouts are accepted for good"
        if accepted >= self.wanted_rollouts:
            log.info("%s: closing the pool", self._phase)
            self.services.client.suite.pools.close_pool(self.config.pool).send()
        elif not pool.steps or self._late_nodes_due(state, pool, now):
            self._publish(pool)
        able, _ = count_nodes(state, self.config.pool)
        self._blocked_by = f"{accepted} are" if able else self._stall.why
        return None

    def _late_nodes_due(self, state: State, pool: Pool, now: int) -> bool:
        """Whether nodes that joined late get a step to work for: sooner where nobody else may work."""
        stalled = self._stall.check(state, self.config.pool, "", 0)
        due = now >= pool.steps[-1].time + self.config.newcomer_seconds
        return stalled or (due and count_nodes(state, self.config.pool)[1] > 0)

    def _publish(self, pool: Pool) -> None:
        """Publish the model's weights as the pool's next policy step, a folder of hard links to those of step 0."""
        manifests, step = [published.manifest for published in pool.steps], len(pool.steps)
        self._phase = f"publishing step {step}"
        first, folder = self.publisher.folder(0), self.publisher.folder(step)
        if not first.is_dir():
            Policy(self.base, self.pool_config.model.dtype, frozen=True).export(first)
        if not folder.is_dir():
            write_folder(folder, lambda aside: shutil.copytree(first, aside, copy_function=os.link, dirs_exist_ok=True))
        self.null_models.learn(step, same_as=0)
        self.publisher.ensure([*manifests, self.publisher.upload(step, manifests)])
        others = [path for path in sorted(folder.parent.glob("step-*")) if path not in (first, folder)]
        drop_old(others, KEPT_EXPORTS)

    def _heartbeat(self) -> HeartbeatRequest:
        return heartbeat("trainer", self.config.name, phase=self._phase, step=self._step, metrics={})
