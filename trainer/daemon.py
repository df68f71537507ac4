"""The trainer's process: consumes accepted files, takes GRPO steps, publishes every policy step; survives kills.

Order of a step: train → guards → checkpoint and export → records → upload → chain → report. Whatever a kill interrupts
is done again from the checkpoint: training is bit-exact, everything after it idempotent.
"""

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from chain.indexer.records import Submission
from protocol.api.work import HeartbeatRequest
from protocol.errors import MusterError
from protocol.files import drop_old
from protocol.rollout_file.rows import Limits
from runtime.heartbeats import Heartbeats, heartbeat
from trainer.base_model import base_model
from trainer.batch import Group
from trainer.canaries import CanaryOpener, CanaryPlan, unsettled
from trainer.collaborators import TrainerCollaborators
from trainer.config import TrainerConfig
from trainer.curriculum import RestingTables
from trainer.data import FileCollector, Loader, StepFiles
from trainer.evaluate import Candidate, Evaluations
from trainer.exits import (
    EXIT_DONE,
    EXIT_LOST,
    EXIT_STOPPED,
    EXIT_UNSTABLE,
    EXIT_WRONG,
    RanksLostError,
    UnstableError,
)
from trainer.learner import LearnerGroup, lead
from trainer.making import OwnSteps, PolicyAtStep, StepMaker, check_step, step_sites
from trainer.metrics import IdleClock, MetricsSinks, batch_facts, make_sinks
from trainer.model.sharding import Placement
from trainer.progress import TrainingProgress
from trainer.publish import StepPublisher
from trainer.records import Records, Reports, file_id, file_record, step_record
from trainer.sites.policy_steps import SitesGroup, SiteSteps, keep_sites
from trainer.step_metrics import StepMetrics, peak_flops, throughput
from trainer.waiting import Waiting

T = TypeVar("T")
log = logging.getLogger("muster.trainer")
_DISK_RETRY_SECONDS = 15.0


class Trainer:
    """One pool's training run, on rank 0. `run` returns one of the codes of trainer/exits.py."""

    def __init__(
        self, config: TrainerConfig, outside: TrainerCollaborators, placement: Placement | None = None
    ) -> None:
        self.config, self.outside = config, outside
        self.pool_config = pool = outside.client.pool_config()
        self.home = outside.client.home
        self.records = Records(self.home)
        self.reports = Reports(outside.orchestrator, self.records)
        base = config.base or base_model(pool.model, pool.environments[0], config.seed)
        placement = placement or Placement(device=config.engine.device, memory=config.memory)
        self.group: LearnerGroup | SitesGroup = (
            lead(config, pool, base, placement)
            if config.sites is None
            else keep_sites(config, outside, base, placement)
        )
        self.progress = TrainingProgress(self.home / "checkpoints", self.group, self.records)
        self.reports.catch_up()
        self.resting = RestingTables(
            pool, config.pool, outside.client.refresh, outside.bucket.get, self.home, config.confirmations,
            config.missing_seconds,
        )  # fmt: skip
        loader = Loader(pool, outside.bucket.get, base, self.resting.note)
        self.canaries = CanaryPlan.of(outside.account, config.pool, outside.carrier)
        self.files = FileCollector(config, pool, outside.client, self.records, loader, self.canaries.node)
        self.publisher = StepPublisher(
            outside.client, outside.bucket, outside.account, pool.model.dtype, pool.weights, self.canaries
        )
        self.evaluations = Evaluations(
            pool, outside.client.pool_id, outside.account, outside.evaluator, self.reports.evaluated
        )
        self.sinks = MetricsSinks(make_sinks(config.metrics, self.home, f"{pool.name}-{config.pool}"))
        self.idle = IdleClock()
        self.stopping = threading.Event()
        self._waiting = Waiting(self.stopping, config.poll_seconds, self._meanwhile)
        self._phase = "starting"
        check = partial(check_step, config.guards)
        self.maker: StepMaker = (
            OwnSteps(self.group, check, self.records, self.files, self.progress.rewind)
            if isinstance(self.group, LearnerGroup)
            else SiteSteps(self.group, pool.train, check, self.records, self._until)
        )

    @property
    def learner(self) -> PolicyAtStep:
        return self.progress.learner

    def stop(self) -> None:
        self.stopping.set()

    def run(self) -> int:
        beats = Heartbeats(self.outside.orchestrator, self._beat, self.config.heartbeat_seconds)
        limits = Limits.of(self.pool_config.work)
        opener = CanaryOpener(self.canaries, self.outside.client, self.outside.bucket.get, limits)
        beats.start()
        opener.start()
        self.evaluations.start()
        self.sinks.start()
        code = EXIT_LOST
        try:
            code = EXIT_DONE if self._train() else EXIT_STOPPED
        except RanksLostError as error:
            log.error("%s", error)
        except UnstableError as error:
            code = self._stop_unstable(error)
        except MusterError:
            code = EXIT_WRONG
            raise
        finally:
            self.publisher.encoder.close()
            self.group.end(code)
            self.evaluations.stop()
            opener.stop()
            beats.stop()
            self.sinks.close()
            self.outside.client.close()
        return code

    def _train(self) -> bool:
        """Every step that is left; False if asked to stop first."""
        for step in range(min(self.learner.step, len(self.progress.manifests))):
            self._offer(step)
        self.publish_step()
        while self.learner.step < self.pool_config.train.steps:
            if self.stopping.is_set():
                return False
            self._step()
        if self._until("confirming the last step", self._confirmed) is None:
            return False
        if self._until("measuring held-out reward", self._measured) is None:
            return False
        self.reports.flush(patience=60.0)
        self._phase = "finished"
        log.info("the run is over at policy step %d", self.learner.step)
        return True

    def _stop_unstable(self, error: UnstableError) -> int:
        """Say so in the log and on the dashboard, where it stays as the last thing heard of the trainer."""
        log.error("%s", error)
        self._phase = f"stopped: {error.what}"
        try:
            self.outside.orchestrator.heartbeat(self._beat())
        except MusterError as failure:
            log.warning("%s", failure)
        return EXIT_UNSTABLE

    def _step(self) -> None:
        started, wanted = time.monotonic(), self.pool_config.train.files_per_step
        what = f"waiting for {wanted} accepted files for step {self.learner.step + 1}"
        self.idle.begin()
        batch = self._until(what, self._next_batch, why=lambda: self.files.held_up)
        if batch is None:
            return
        self.idle.end()
        files, groups, waited = batch.files, batch.groups, time.monotonic() - started
        self._phase = f"training step {self.learner.step + 1}"
        metrics = self.maker.make(batch)
        if metrics is None:
            return
        self.progress.consumed |= {file_id(sub) for sub in files}
        record = step_record(metrics, files, waited) | self._facts(metrics, groups, files)
        entries = [file_record(metrics.step, sub) | self.maker.of_file(file_id(sub)) for sub in files]
        if not self.checkpoint(record, entries):
            return
        self.records.write(record, entries)
        self.publish_step()
        self.sinks.write(record)
        if not files:  # the collector said why
            return
        log.info(
            "step %d: reward %.3f, %d groups used, %d without signal, waited %.1f s, trained %.1f s",
            metrics.step, metrics.reward_mean, metrics.groups_used, metrics.groups_dropped, waited, metrics.seconds,
        )  # fmt: skip

    def _facts(self, metrics: StepMetrics, groups: list[Group], files: list[Submission]) -> dict[str, Any]:
        """What the record of a step says besides the learner's own metrics."""
        peak = peak_flops(self.learner.placement, self.config.metrics.peak_tflops)
        return (
            {"dropped_share": metrics.groups_dropped / max(1, len(groups))}
            | batch_facts(groups, [sub.step for sub in files], metrics.step)
            | throughput(metrics.trained_tokens, metrics.flops, metrics.seconds, peak)
            | self.idle.record()
            | self.maker.facts()
        )

    def checkpoint(self, record: dict[str, Any], files: list[dict[str, Any]]) -> bool:
        """Save the weights with the records of their step, so that a kill after this loses neither, and export them.
        A disk that is full is waited for; False if asked to stop meanwhile."""
        step = self.learner.step

        def attempt() -> bool:
            self.progress.keep(record, files, partial(self._export, step))
            return True

        return bool(self._until(f"writing the checkpoint of step {step}", attempt, _DISK_RETRY_SECONDS))

    def _export(self, step: int) -> None:
        folder = self._policy_folder(step)
        self.group.export(folder)
        try:
            self.resting.write(step, folder)
        except MusterError as error:
            log.debug("the step is prepared later: %s", error)
            return
        self.publisher.encoder.begin(step, self.progress.manifests, step_sites(self.progress.document))

    def _next_batch(self) -> StepFiles | None:
        batch = self.files.batch(self.learner.step + 1, self.progress.consumed, self.maker.given)
        if batch is None:
            self.idle.tick(self.files.awaited.cause)
            self.resting.read_ahead()
            self.publisher.ensure(self.progress.manifests)
        return batch

    def publish_step(self) -> None:
        """Bring the learner's policy step to bucket and chain, trying until it is there or we are stopped."""
        step, started, record = self.learner.step, time.monotonic(), self.progress.document
        self._phase = f"publishing step {step}"
        folder = self._policy_folder(step)
        if not folder.is_dir():
            self.group.export(folder)
        self._until(self._phase, partial(self._upload, step))
        if record:
            record["timings"]["publish"] = round(time.monotonic() - started, 3)
        self.reports.add(step, record)
        self.reports.flush()
        if step < len(self.progress.manifests):
            self._offer(step)
        pinned = self.evaluations.pinned | self.publisher.encoder.needed(step)
        folders = [one for one in sorted((self.home / "policies").glob("step-*")) if one not in pinned]
        drop_old(folders, self.config.keep_exports)

    def _upload(self, step: int) -> bytes:
        manifests = self.progress.manifests
        if self.pool_config.curricula:  # a reorganisation may have removed the step by whose time files count
            self.publisher.ensure(manifests[:step])
        self.resting.write(step, self._policy_folder(step))
        digest = self.publisher.upload(step, manifests, step_sites(self.progress.document))
        manifests[step:] = [digest]
        self.publisher.ensure(manifests)
        return digest

    def _policy_folder(self, step: int) -> Path:
        return self.publisher.encoder.folder(step)

    def _confirmed(self) -> bool | None:
        """Whether the last step is `confirmations` blocks deep and every canary is concluded. Steps that a
        reorganisation removes until then are published again."""
        client, manifests = self.outside.client, self.progress.manifests
        self.publisher.ensure(manifests)
        pool, deep = client.pool(), client.state.head - self.config.confirmations
        done = pool and len(pool.steps) == len(manifests) and pool.steps[-1].block <= deep
        return True if done and not unsettled(client.state, self.config.pool, self.canaries.node) else None

    def _offer(self, step: int) -> None:
        """Have a published step measured, if the pool wants that."""
        self.evaluations.offer(Candidate(step, self._policy_folder(step), self.progress.manifests[step]))

    def _measured(self) -> bool | None:
        """Whether every evaluation is done and kept."""
        self._keep_evaluations()
        return True if self.evaluations.idle else None

    def _keep_evaluations(self) -> None:
        for signed in self.evaluations.collect():
            self.reports.evaluation(signed)

    def _until(
        self, what: str, attempt: Callable[[], T | None], pause: float = 0.0, why: Callable[[], str] = str
    ) -> T | None:
        self._phase = what
        return self._waiting.until(what.removeprefix("waiting for "), attempt, pause, why)

    def _meanwhile(self) -> None:
        self.maker.tend()
        self._keep_evaluations()
        self.reports.flush()

    def _beat(self) -> HeartbeatRequest:
        late = {"late_files": float(len(self.files.late))}
        return heartbeat("trainer", self.config.name, phase=self._phase, step=self.learner.step, metrics=late)
