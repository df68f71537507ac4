"""The trainer's process: consumes accepted files, takes GRPO steps, publishes every policy step; survives kills.

Order of a step: train → checkpoint → records → upload → chain → report. Whatever a kill interrupts is done again from
the checkpoint: training is bit-exact, everything after it idempotent.
"""

import logging
import threading
import time
from pathlib import Path
from typing import Any

from chain.records import Submission
from engines.factory import make_engine
from protocol.api.work import HeartbeatRequest
from protocol.errors import ConfigError, IntegrityError, MusterError
from protocol.rollouts.schema import MalformedFile
from protocol.waits import WAITS
from runtime.heartbeats import Heartbeats, heartbeat
from runtime.orchestrator_client import OrchestratorClient
from runtime.pool_client import PoolClient
from storage.bucket import Bucket
from storage.missing import MissingObjectError
from trainer.basemodel import base_model
from trainer.canaries import CanaryKeeper, unsettled
from trainer.checkpoint import checkpoint_path, checkpoints
from trainer.config import TrainerConfig
from trainer.evaluate import evaluate
from trainer.folders import remove_leftovers
from trainer.inbox import Inbox, file_id, look, overturned
from trainer.learner import Learner
from trainer.loader import Loader
from trainer.publisher import StepPublisher
from trainer.records import Records
from trainer.reports import Reports
from trainer.retention import drop_old
from trainer.rollouts import Group

log = logging.getLogger("muster.trainer")
EXIT_DONE, EXIT_STOPPED = 0, 4
_REMIND_SECONDS = 10.0
_KEPT_CHECKPOINTS = 3
_MISSING_SECONDS = 60.0


class Trainer:
    """One pool's training run. `run` returns 0 when the last step is published, 4 when stopped before."""

    def __init__(self, config: TrainerConfig) -> None:
        self.config = config
        account = config.key.open()
        self.link = PoolClient(config, account)
        self.pool_config = self.link.pool_config()
        self.home = self.link.home
        self.records = Records(self.home)
        self.bucket = Bucket(config.s3)
        dtype = self.pool_config.model.dtype
        self.publisher = StepPublisher(self.link, self.bucket, account, dtype, config.carrier)
        self.service = OrchestratorClient(config.orchestrator, account, self.link.pool_id, patience=5.0)
        self.reports = Reports(self.service, self.records)
        self.stopping = threading.Event()
        self.consumed: set[str] = set()
        self.refused: set[str] = set()
        self._missing: dict[str, float] = {}
        self.manifests: list[bytes] = []
        # What was said of the checkpoint's own step: a restart must not report it as empty.
        self.document: dict[str, Any] = {}
        self._phase = "starting"
        self._told_stale: set[str] = set()
        self._told_overturned: set[str] = set()
        self._restore()

    def stop(self) -> None:
        self.stopping.set()

    def run(self) -> int:
        beats = Heartbeats(self.service, self._beat, self.config.heartbeat_seconds)
        beats.start()
        canaries = CanaryKeeper(self.publisher, self.pool_config)
        canaries.start()
        try:
            self._publish(self.document)
            self._hold_out()
            while self.learner.step < self.pool_config.train.steps:
                if self.stopping.is_set():
                    return EXIT_STOPPED
                self._step()
            self._hold_out()
            self._bury()
            self.reports.flush(patience=60.0)
            self._phase = "finished"
            log.info("the run is over at policy step %d", self.learner.step)
            return EXIT_DONE
        finally:
            canaries.stop()
            beats.stop()
            self.link.close()

    # ---- Starting and restarting

    def _restore(self) -> None:
        """The newest intact checkpoint, or the base model as policy step 0."""
        pool = self.pool_config
        base = self.config.base or base_model(pool.model, pool.task, self.config.seed)
        remove_leftovers(self._checkpoints)
        self.learner = self._learner(base)
        for path in reversed(checkpoints(self._checkpoints)):
            try:
                extra = self.learner.load_checkpoint(path)
            except IntegrityError as error:
                log.warning("%s", error)
                continue
            self.consumed = set(extra["consumed"])
            self.manifests = [bytes.fromhex(digest) for digest in extra["manifests"]]
            self.document = extra["document"]
            if extra["document"]:
                self.records.write(extra["document"], extra["files"])
            log.info("resumed at policy step %d with %d consumed files", self.learner.step, len(self.consumed))
            break
        else:
            self.learner = self._learner(base)
        self.loader = Loader(pool, self.bucket, base, self.learner.policy.vocabulary)
        self.reports.catch_up()

    def _learner(self, base: Path) -> Learner:
        pool, device = self.pool_config, self.config.engine.device
        return Learner(base, pool.train, pool.work.temperature, pool.model.dtype, device, self.config.seed)

    @property
    def _checkpoints(self) -> Path:
        return self.home / "checkpoints"

    def _export_path(self, step: int) -> Path:
        return self.home / "policies" / f"step-{step:06d}"

    # ---- One step

    def _step(self) -> None:
        waited = time.monotonic()
        groups, files = self._collect()
        if not files:
            return
        waited = time.monotonic() - waited
        self._phase = f"training step {self.learner.step + 1}"
        metrics = self.learner.train_step(groups)
        step = self.learner.step
        self.consumed |= {file_id(sub) for sub in files}
        timings = {"wait": round(waited, 3), "train": round(metrics.seconds, 3)}
        document = metrics.as_dict() | {
            "step": step,
            "timings": timings,
            "time": round(time.time(), 3),
            "consumed": [sub.sequence for sub in files],
            "policy_steps": [sub.step for sub in files],
        }
        entries = [_trained(step, sub) for sub in files]
        self._checkpoint(document, entries)
        self.records.write(document, entries)
        self._publish(document)
        log.info(
            "step %d: reward %.3f, %d groups used, %d without signal, waited %.1f s, trained %.1f s",
            step, metrics.reward_mean, metrics.groups_used, metrics.groups_dropped, waited, metrics.seconds,
        )  # fmt: skip

    def _collect(self) -> tuple[list[Group], list[Submission]]:
        """Wait for a batch of accepted files and read them; empty when asked to stop.

        A step that was trained before a kill, but whose checkpoint is gone, takes the files its record names.
        """
        wanted = self.pool_config.train.files_per_step
        self._phase = f"waiting for {wanted} accepted files for step {self.learner.step + 1}"
        groups: dict[str, list[Group]] = {}
        reminded = time.monotonic()
        with WAITS.on(self._phase):
            while not self.stopping.is_set():
                try:
                    files = self._due(wanted)
                    for sub in files:
                        if file_id(sub) not in groups:
                            self._load(sub, groups)
                    if len(files) == wanted and all(file_id(sub) in groups for sub in files):
                        return [group for sub in files for group in groups[file_id(sub)]], files
                    self.publisher.ensure(self.manifests)
                except (ConfigError, IntegrityError):
                    raise
                except MusterError as error:
                    log.warning("%s; trying again", error)
                self.reports.flush()
                if time.monotonic() - reminded > _REMIND_SECONDS:
                    reminded = time.monotonic()
                    log.info("%s: %d there", self._phase, len(groups))
                self.stopping.wait(self.config.poll_seconds)
        return [], []

    def _load(self, sub: Submission, groups: dict[str, list[Group]]) -> None:
        """Read a file; one that cannot be used is passed over, one that is absent after a while too."""
        try:
            groups[file_id(sub)] = self.loader.groups(sub)
        except MissingObjectError as error:
            since = self._missing.setdefault(file_id(sub), time.monotonic())
            if time.monotonic() - since < _MISSING_SECONDS:
                return
            self._refuse(sub, error)
        except (MalformedFile, IntegrityError) as error:
            self._refuse(sub, error)

    def _refuse(self, sub: Submission, error: MusterError) -> None:
        self.refused.add(file_id(sub))
        log.warning("accepted file %d of %s is not trained on: %s", sub.sequence, sub.node, error.what)

    def _due(self, wanted: int) -> list[Submission]:
        state = self.link.refresh()
        recorded = self.records.trained_in(self.learner.step + 1)
        if recorded:
            by_id = {file_id(sub): sub for sub in state.submissions_of(self.config.pool)}
            return [by_id[entry["sha256"]] for entry in recorded if entry["sha256"] in by_id]
        inbox = look(
            state,
            self.config.pool,
            self.learner.step,
            self.pool_config.train.async_level,
            self.config.confirmations,
            self.consumed | self.refused,
            {self.config.carrier} if self.config.carrier else (),
        )
        self._tell(inbox)
        return list(inbox.files[:wanted])

    def _tell(self, inbox: Inbox) -> None:
        for sub in inbox.stale:
            if file_id(sub) not in self._told_stale:
                self._told_stale.add(file_id(sub))
                log.warning("file %d of step %d came too late to be trained on", sub.sequence, sub.step)
        for sub in overturned(self.link.state, self.config.pool, self.consumed):
            if file_id(sub) not in self._told_overturned:
                self._told_overturned.add(file_id(sub))
                log.warning("file %d was trained on and then rejected (trained_then_rejected)", sub.sequence)

    # ---- What a step leaves

    def _checkpoint(self, document: dict[str, Any], files: list[dict[str, Any]]) -> None:
        extra = {
            "consumed": sorted(self.consumed),
            "manifests": [digest.hex() for digest in self.manifests],
            "document": document,
            "files": files,
        }
        self.learner.save_checkpoint(checkpoint_path(self._checkpoints, self.learner.step), extra)
        drop_old(checkpoints(self._checkpoints), _KEPT_CHECKPOINTS)

    def _publish(self, document: dict[str, Any]) -> None:
        """Bring the learner's policy step to bucket and chain, trying until it is there or we are stopped."""
        step, started = self.learner.step, time.monotonic()
        self._phase = f"publishing step {step}"
        folder = self._export_path(step)
        if not folder.is_dir():
            self.learner.export(folder)
        while not self.stopping.is_set():
            try:
                parent = self.manifests[step - 1] if step else None
                digest = self.publisher.upload(folder, step, parent)
                self.manifests[step:] = [digest]
                self.publisher.ensure(self.manifests)
                break
            except (ConfigError, IntegrityError):
                raise
            except MusterError as error:
                log.warning("%s; trying again", error)
                self.stopping.wait(1.0)
        if document:
            document["timings"]["publish"] = round(time.monotonic() - started, 3)
        self.reports.add(step, document)
        self.reports.flush()
        drop_old(sorted((self.home / "policies").glob("step-*")), self.config.keep_exports)

    def _bury(self) -> None:
        """Wait until the last step is `confirmations` blocks deep and every canary is concluded; a reorganisation until
        then is made good."""
        self._phase = "confirming the last step"
        with WAITS.on(self._phase):
            while not self.stopping.is_set():
                try:
                    self.publisher.ensure(self.manifests)
                    pool = self.link.pool()
                    deep = self.link.state.head - self.config.confirmations
                    done = pool and len(pool.steps) == len(self.manifests) and pool.steps[-1].block <= deep
                    if done and not unsettled(self.link.state, self.config.pool, self.config.carrier):
                        return
                except (ConfigError, IntegrityError):
                    raise
                except MusterError as error:
                    log.warning("%s; trying again", error)
                self.stopping.wait(self.config.poll_seconds)

    def _hold_out(self) -> None:
        """Mean task reward on held-out problems, before the first and after the last step; measured once."""
        step = self.learner.step
        if (
            step not in (0, self.pool_config.train.steps)
            or self.stopping.is_set()
            or self.reports.heldout(step) is not None
        ):
            return
        self._phase = "measuring held-out reward"
        engine = make_engine(
            "transformers", self.pool_config.model.dtype, self.config.engine.device, self.config.engine.threads
        )
        result = evaluate(engine, self.pool_config, self._export_path(step), step)
        log.info("held-out task reward at step %d: %.3f", step, result.task_reward)
        self.reports.measured(step, result.task_reward)

    def _beat(self) -> HeartbeatRequest:
        late = {"late_files": float(len(self._told_stale))}
        return heartbeat("trainer", self.config.name, phase=self._phase, step=self.learner.step, metrics=late)


def _trained(step: int, sub: Submission) -> dict[str, Any]:
    return {"step": step, "sequence": sub.sequence, "sha256": file_id(sub), "node": sub.node, "policy_step": sub.step}
