"""The training loop of a pool: consume accepted files, take steps, publish every policy step, survive kills.

Order of a step: train → guards → records → export → upload → chain → report; what comes after the records runs beside
the next step, which is not recorded before. Checkpoints are written beside it too, every `checkpoint_seconds`. Whatever
a kill interrupts is repeated from the last checkpoint with the files that the records name: training is bit-exact, and
everything after it idempotent.
"""

import logging
import math
import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

from safetensors import SafetensorError

from chain.indexer.records import Submission
from protocol.accounts import LocalAccount
from protocol.api.work import HeartbeatRequest
from protocol.errors import MusterError, first_line
from protocol.files import drop_old, remove_leftovers
from protocol.rollout_file.rows import Limits
from runtime.orchestrator_client import Heartbeats, OrchestratorClient, heartbeat
from runtime.pool_client import PoolClient
from runtime.signer import accounts_of
from storage.s3 import Bucket
from storage.weights.manifest import StepWorkers
from trainer.checkpoint import checkpoint_path, checkpoints, resume
from trainer.config import GuardConfig, TrainerConfig
from trainer.data.curriculum import MaskWriter
from trainer.data.files import FileCollector, Loader, StepFiles
from trainer.data.waiting import IdleClock, Waiting
from trainer.exits import EXIT_DONE, EXIT_LOST, EXIT_STOPPED, EXIT_UNSTABLE, EXIT_WRONG, RanksLostError, UnstableError
from trainer.learner import start_learners
from trainer.model.base_model import base_model
from trainer.model.sharding import Placement
from trainer.pool.canaries import CanaryOpener, CanaryPlan, unsettled
from trainer.pool.null_models import NullModelLearner
from trainer.pool.publish import StepPublisher
from trainer.reports.evaluate import Candidate, EvaluationProcess, Evaluations
from trainer.reports.metrics import MetricsSinks, make_sinks
from trainer.reports.records import Records, Reports, file_id, file_record
from trainer.reports.step_metrics import StepMetrics, peak_flops, step_record

T = TypeVar("T")
log = logging.getLogger("muster.trainer")
_DISK_RETRY_SECONDS = 15.0
KEPT_EXPORTS, _KEPT_CHECKPOINTS = 4, 3
_LEAST_HISTORY = 5
_LAST_SECONDS = 10.0

# Raises UnstableError for a step that must not be published, given the records of those before.
Check = Callable[[StepMetrics, Sequence[Mapping[str, Any]]], None]


@dataclass(frozen=True)
class TrainerServices:
    """What the trainer works with outside its process. `account`: the owner's; `decoy`: of its decoy node, if any."""

    client: PoolClient
    bucket: Bucket
    account: LocalAccount
    decoy: LocalAccount | None
    orchestrator: OrchestratorClient
    evaluator: EvaluationProcess

    @classmethod
    def connect(cls, config: TrainerConfig) -> "TrainerServices":
        """Connect to what a configuration names. Raises ConfigError or UnreachableError."""
        account, *decoys = accounts_of(config)
        client = PoolClient(config, account)
        return cls(
            client=client,
            bucket=Bucket(config.s3),
            account=account,
            decoy=decoys[0] if decoys else None,
            orchestrator=OrchestratorClient(config.orchestrator, account, client.pool_id, patience=5.0),
            evaluator=EvaluationProcess(config.evaluation, config.engine),
        )


class PolicyGroup(Protocol):
    """Who holds the policy: `trainer.learner.LearnerGroup`, or the coordinator of a DiLoCo run. Its `learner` has a
    policy `step` and a `placement`; `gather` returns what writes the policy as it is now to a folder, later and on any
    thread (OSError, SafetensorError)."""

    @property
    def learner(self) -> Any: ...

    def start_checkpoint(self, folder: Path, extra: dict[str, Any]) -> None: ...

    def finish_checkpoint(self) -> None: ...

    def load_checkpoint(self, folder: Path) -> dict[str, Any]: ...

    def gather(self) -> Callable[[Path], object]: ...

    def renew(self) -> None: ...

    def end(self, code: int) -> None: ...


class Publication(NamedTuple):
    """A policy step on its way to bucket and chain, when that began, and what results in its manifest's digest."""

    step: int
    started: float
    work: "Future[bytes | None]"


class _StoppedError(Exception):
    """The trainer is asked to stop while its learners are behind its records."""


class StepRunner:
    """Advances the policy by one step. `bound`: ids of the files that the next step has to take, none if it is free."""

    @property
    def bound(self) -> Sequence[str]:
        return ()

    def train_step(self, batch: StepFiles) -> StepMetrics | None:
        """Train a step on these files; None if it was not taken, and is to be retried with what files there are then.
        Raises UnstableError for one that must not be published."""
        raise NotImplementedError

    def step_fields(self) -> dict[str, Any]:
        """Return what the step's record says of who trained it."""
        return {}

    def file_fields(self, file: str) -> dict[str, Any]:
        """Return what the record of a file says of who trained on it."""
        return {}

    def poll(self) -> None:
        """Advance whatever runs beside, while the trainer waits."""


class LocalSteps(StepRunner):
    """Steps trained by the trainer's own ranks."""

    def __init__(self, trainer: "Trainer") -> None:
        self._trainer = trainer

    def train_step(self, batch: StepFiles) -> StepMetrics | None:
        """Train a step. Files that made it unstable are refused for good and the learners rewound, unless more than
        half of the files are to blame or none is by itself."""
        trainer, step = self._trainer, self._trainer.step
        try:
            return self._checked_step(batch, step)
        except UnstableError as error:
            blamed = self._blame(batch, step)
            trainer.rewind(step)
            if not 0 < len(blamed) <= len(batch.files) / 2:
                raise
            for sub in blamed:
                trainer.files.refuse(sub, error)
                trainer.records.refuse(sub, error.what)
            return None

    def _checked_step(self, batch: StepFiles, step: int) -> StepMetrics:
        metrics: StepMetrics = self._trainer.group.train_step(batch.groups)
        self._trainer.check(metrics, self._trainer.records.before(step + 1))
        return metrics

    def _blame(self, batch: StepFiles, step: int) -> list[Submission]:
        """The files of an unstable batch that are unstable by themselves, found by halving: a mean is never further out
        than all its parts. One bad file of n takes about 2·log2(n) passes."""
        if len(batch.files) == 1:
            return batch.files
        middle, blamed = len(batch.files) // 2, []
        for part in (slice(0, middle), slice(middle, None)):
            half = StepFiles(batch.files[part], batch.groups_of[part])
            self._trainer.rewind(step)
            try:
                self._checked_step(half, step)
            except UnstableError:
                blamed += self._blame(half, step)
        return blamed


def check_step(config: GuardConfig, metrics: StepMetrics, earlier: Sequence[Mapping[str, Any]]) -> None:
    """Raise UnstableError if a step's loss, entropy or gradient is not a number, if its gradient norm is far above
    those of `earlier` steps' records, or if its entropy has suddenly gone. A step without signal is never unstable."""
    if not metrics.groups_used:
        return
    values = {"loss": metrics.loss, "entropy": metrics.entropy, "gradient norm": metrics.grad_norm}
    norm = _median([entry["grad_norm"] for entry in earlier if entry["grad_norm"] > 0][-config.norm_window :])
    entropy = _median([entry["entropy"] for entry in earlier if entry["tokens"]][-_LEAST_HISTORY:])
    if wrong := [f"{name} {value}" for name, value in values.items() if not math.isfinite(value)]:
        sign = ", ".join(wrong)
    elif norm and metrics.grad_norm > config.norm_factor * norm:
        sign = f"a gradient norm of {metrics.grad_norm:.4g}, {metrics.grad_norm / norm:.0f} times that of earlier steps"
    elif metrics.entropy < config.entropy_floor:
        sign = f"an entropy of {metrics.entropy:.4g}, below `guards.entropy_floor`"
    elif entropy and metrics.entropy < config.entropy_share * entropy:
        sign = f"an entropy of {metrics.entropy:.4g}, after {entropy:.4g} in the steps before"
    else:
        return
    raise UnstableError(
        f"training has become unstable: step {metrics.step} has {sign}; it is not published, and the checkpoint "
        f"of step {metrics.step - 1} is kept",
        "look at the rollouts of its files, then name bad ones in `exclude` or change `guards`, and start again",
    )


def _export(folder: Path, write: Callable[[Path], object]) -> bool:
    """Have `write` make a folder unless it is there; return True. Raises MusterError if the disk does not take it."""
    try:
        if not folder.is_dir():
            write(folder)
    except (OSError, SafetensorError) as error:
        raise MusterError(f"cannot write {folder}: {first_line(error)}", "free or mend the disk") from None
    return True


def _median(values: Sequence[float]) -> float:
    """The median, 0 where there are too few values to compare with."""
    return statistics.median(values) if len(values) >= _LEAST_HISTORY else 0.0


class TrainingProgress:
    """The learner's state on disk. Starts from the newest intact checkpoint in `folder`, or with the fresh learners of
    `group` at policy step 0. As old as the weights are: `consumed`, the ids of the files trained on; `manifests`,
    digests of the policy steps published so far; `document` and `files`, the records of the learner's own step, empty
    for step 0. `seconds`: least time from one checkpoint to the next."""

    def __init__(self, folder: Path, group: PolicyGroup, records: Records, seconds: float = 0.0) -> None:
        self._folder, self._group, self._records, self._seconds = folder, group, records, seconds
        self._last, self._pending = time.monotonic(), False
        self.consumed: set[str] = set()
        self.manifests: list[bytes] = []
        self.document: dict[str, Any] = {}
        self.files: list[dict[str, Any]] = []
        remove_leftovers(folder)
        if (extra := resume(folder, group.load_checkpoint)) is not None:
            self._restore(extra)
        elif checkpoints(folder):
            group.renew()  # a damaged checkpoint may have left some of its weights

    @property
    def step(self) -> int:
        """The policy step that the learner is at."""
        return int(self._group.learner.step)

    def advance(self) -> None:
        """Finish the checkpoint under way, and begin one if one is due. Raises MusterError if one cannot be written; it
        may be retried."""
        self.finish()
        if time.monotonic() - self._last >= self._seconds:
            self.begin()
            if not self._seconds:
                self.finish()

    def begin(self) -> None:
        """Begin to write a checkpoint of the learner as it is; it counts once it is finished."""
        extra = {
            "consumed": sorted(self.consumed),
            "manifests": [digest.hex() for digest in self.manifests],
            "document": self.document,
            "files": self.files,
        }
        self._group.start_checkpoint(checkpoint_path(self._folder, self.step), extra)
        self._last, self._pending = time.monotonic(), True

    def finish(self) -> None:
        """Wait for the checkpoint that was begun, if one was. Raises MusterError if it cannot be written."""
        if not self._pending:
            return
        self._pending = False
        try:
            self._group.finish_checkpoint()
        except MusterError:
            self._last = -math.inf
            raise
        drop_old(checkpoints(self._folder), _KEPT_CHECKPOINTS)

    def save(self) -> None:
        """Have a checkpoint of the learner, if its step was recorded; log why there is none."""
        try:
            self.finish()
            if self.document.get("step") == self.step and not checkpoint_path(self._folder, self.step).is_dir():
                self.begin()
                self.finish()
        except MusterError as error:
            log.warning("%s", error)

    def rewind(self, step: int) -> None:
        """Take the learners back to policy step `step`, or to the last one before it that has a checkpoint. Raises
        IntegrityError if that is damaged."""
        self.finish()
        earlier = [path for path in checkpoints(self._folder) if path <= checkpoint_path(self._folder, step)]
        if earlier:
            self._group.load_checkpoint(earlier[-1])
        else:
            self._group.renew()

    def _restore(self, extra: Mapping[str, Any]) -> None:
        self.consumed = set(extra["consumed"])
        self.manifests = [bytes.fromhex(digest) for digest in extra["manifests"]]
        self.document, self.files = extra["document"], extra["files"]
        if self.document:
            self._records.write(self.document, self.files)
        log.info("resumed at policy step %d with %d consumed files", self.step, len(self.consumed))


class Trainer:
    """One pool's training run, on rank 0. `group` and `make_steps` replace this trainer's own learners and steps, as
    the coordinator of a DiLoCo run does."""

    def __init__(
        self,
        config: TrainerConfig,
        services: TrainerServices,
        placement: Placement | None = None,
        group: PolicyGroup | None = None,
        make_steps: Callable[["Trainer"], StepRunner] = LocalSteps,
    ) -> None:
        self.config, self.services = config, services
        self.pool_config = pool = services.client.pool_config()
        self.home = services.client.home
        self.records = Records(self.home)
        self.reports = Reports(services.orchestrator, self.records)
        base = config.base or base_model(pool.model, pool.environments[0], config.seed)
        placement = placement or Placement(device=config.engine.device, memory=config.memory)
        self.group: Any = group or start_learners(config, placement, (pool, base.resolve()))
        self._repeatable = group is None  # what DiLoCo workers train cannot be repeated here
        seconds = config.checkpoint_seconds if self._repeatable else 0.0
        self.progress = TrainingProgress(self.home / "checkpoints", self.group, self.records, seconds)
        self._recorded = self.records.last
        if self.reports.reached(pool.evaluation.stop_at):  # over: nobody gets a lease while this is repeated
            self.reports.finish(self.records.last)
        self.reports.catch_up()
        waits = config.confirmations, config.missing_seconds
        self.mask_writer = MaskWriter(pool, config.pool, services.client.refresh, services.bucket.get, *waits)
        loader = Loader(pool, services.bucket.get, base, self.mask_writer.on_read)
        self.canaries = CanaryPlan(services.account, config.pool, services.decoy)
        self.files = FileCollector(config, pool.train, services.client, self.records, loader, self.canaries.node)
        self.publisher = StepPublisher(services.client, services.bucket, services.account, pool, self.canaries)
        self.null_models = NullModelLearner(pool, config, services.client, self.publisher)
        self.evaluations = Evaluations(
            pool, services.client.pool_id, services.account, services.evaluator, self.reports.evaluated
        )
        self.sinks = MetricsSinks(make_sinks(config.metrics, self.home, f"{pool.name}-{config.pool}"))
        self.idle = IdleClock()
        self.stopping = threading.Event()
        self._waiting = Waiting(self.stopping, config.poll_seconds, self._meanwhile)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="publisher")
        self._publication: Publication | None = None
        self._phase = "starting"
        self.check: Check = partial(check_step, config.guards)
        self.steps = make_steps(self)

    @property
    def step(self) -> int:
        """The policy step that the learner is at."""
        return self.progress.step

    def stop(self) -> None:
        self.stopping.set()
        self.null_models.stopping.set()

    def run(self) -> int:
        heartbeats = Heartbeats(self.services.orchestrator, self._heartbeat, self.config.heartbeat_seconds)
        limits = Limits.of(self.pool_config.work)
        opener = CanaryOpener(self.canaries, self.services.client, self.services.bucket.get, limits)
        heartbeats.start()
        opener.start()
        self.sinks.start()
        code = EXIT_LOST
        try:
            code = EXIT_DONE if self._train() else EXIT_STOPPED
        except RanksLostError as error:
            log.error("%s", error)
        except UnstableError as error:
            log.error("%s", error)
            code, self._phase = EXIT_UNSTABLE, f"stopped: {error.what}"
            with suppress(MusterError):  # the dashboard shows it
                self.services.orchestrator.heartbeat(self._heartbeat())
        except MusterError:
            code = EXIT_WRONG
            raise
        finally:
            self.stopping.set()
            if self._publication is not None:  # bounded: an upload that is cut off is repeated after a restart
                wait([self._publication.work], _LAST_SECONDS)
            self._thread.shutdown(wait=False, cancel_futures=True)
            self.group.end(code)
            self.evaluations.stop()
            opener.stop()
            heartbeats.stop()
            self.sinks.close()
            self.services.client.close()
        return code

    def wait_until(
        self, what: str, attempt: Callable[[], T | None], pause: float = 0.0, why: Callable[[], str] = str
    ) -> T | None:
        """Repeat `attempt` until it returns a value, and show `what` as the trainer's phase; see Waiting."""
        self._phase = what
        return self._waiting.until(what.removeprefix("waiting for "), attempt, pause, why)

    def checkpoint(self, record: dict[str, Any], files: list[dict[str, Any]]) -> bool:
        """Once the step before is published, record one, so that a kill after this can repeat it, and begin a
        checkpoint if one is due. Return False if asked to stop meanwhile."""
        if not self._settle():
            return False
        self.progress.document, self.progress.files = record, files

        def write() -> bool:
            self.progress.advance()
            self.records.write(record, files)
            return True

        what = f"writing the checkpoint of step {self.step}"
        return bool(self.wait_until(what, write, _DISK_RETRY_SECONDS))

    def publish_step(self) -> None:
        """Bring the learner's policy step to bucket and chain, retrying until it is there or we are stopped."""
        self._begin_publishing()
        self._settle()

    def _begin_publishing(self) -> None:
        """Begin the same on a thread. Until it has ended, `progress.document` stays the step's record."""
        step, folder = self.step, self.publisher.folder(self.step)
        write = None if folder.is_dir() else self.group.gather()
        if write and not self._repeatable:  # before the workers begin the next step
            self.wait_until(f"exporting step {step}", partial(_export, folder, write), _DISK_RETRY_SECONDS)
        work = self._thread.submit(self._publish, step, write)
        self._publication = Publication(step, time.monotonic(), work)

    def _settle(self) -> bool:
        """Wait for the policy step under way, if there is one, and report it; return False if asked to stop first."""
        if self._publication is not None:
            self.wait_until(f"publishing step {self._publication.step}", self._report)
        return self._publication is None

    def _report(self) -> bool | None:
        """Report the step that the thread is done with; return True if there is none that it works on."""
        if self._publication is None:
            return True
        record, (step, started, work) = self.progress.document, self._publication
        if not work.done() or work.result() is None:
            return None
        self._publication = None
        if record:
            record["timings"]["publish"] = round(time.monotonic() - started, 3)
            self.sinks.write(record)
        self.reports.add(step, record)
        self.reports.flush()
        self._offer(step)
        pinned = self.evaluations.pinned | self.publisher.needed(step)
        folders = [folder for folder in sorted((self.home / "policies").glob("step-*")) if folder not in pinned]
        drop_old(folders, KEPT_EXPORTS)
        return True

    def _train(self) -> bool:
        """Train every step that is left; False if asked to stop first."""
        for step in range(min(self.step, len(self.progress.manifests))):
            self._offer(step)
        self.publish_step()
        while not (self._over or self.stopping.is_set()):
            try:
                self._step()
            except _StoppedError:
                return False  # the learners are behind the records
        over = self._settle() and self._over
        self.progress.save()
        if not over:
            return False
        self.reports.finish(self.step)
        if self.wait_until("confirming the last step", self._confirmed) is None:
            return False
        if self.wait_until("measuring held-out reward", self._record_evaluations) is None:
            return False
        self.reports.flush(patience=60.0)
        self._phase = "finished"
        log.info("the run is over at policy step %d", self.step)
        return True

    def _step(self) -> None:
        started, wanted = time.monotonic(), self.pool_config.train.files_per_step
        what = f"waiting for {wanted} accepted files for step {self.step + 1}"
        self.idle.begin()
        batch: StepFiles | Literal[True] | None = self.wait_until(what, self._next_batch, why=self.files.blocked_by)
        if batch is None or batch is True:
            return
        self.idle.tick()
        files, groups, waited = batch.files, batch.groups, time.monotonic() - started
        self._phase = f"training step {self.step + 1}"
        metrics = self.steps.train_step(batch)
        if metrics is None:
            return
        self.progress.consumed |= {file_id(sub) for sub in files}
        record = step_record(metrics, files, groups, waited, peak_flops(self.group.learner.placement))
        record |= self.idle.record() | self.steps.step_fields()
        entries = [file_record(metrics.step, sub) | self.steps.file_fields(file_id(sub)) for sub in files]
        if not self.checkpoint(record, entries):
            return
        self._begin_publishing()
        if not files:  # the collector logged why
            return
        log.info(
            "step %d: reward %.3f, %d groups used, %d without signal, waited %.1f s, trained %.1f s",
            metrics.step, metrics.reward_mean, metrics.groups_used, metrics.groups_dropped, waited, metrics.seconds,
        )  # fmt: skip

    def rewind(self, step: int) -> None:
        """Take the learners back to policy step `step`: what was trained since the last checkpoint is repeated once."""
        self.progress.rewind(step)
        if self.step == step:
            return
        while self.step < step:
            recorded = partial(self.files.batch, self.step + 1, self.progress.consumed)
            batch = self.wait_until(f"repeating step {self.step + 1}", recorded)
            if batch is None:
                raise _StoppedError
            self.group.train_step(batch.groups)
        self.progress.save()

    def _repeated(self, step: int) -> bytes | None:
        """The digest of a step that was recorded before a kill, and that the chain has: its weights are published."""
        if not 0 < step <= self._recorded:
            return None
        steps = self.services.client.refresh().pools[self.config.pool].steps
        return steps[step].manifest if step < len(steps) else None

    def _publish(self, step: int, write: Callable[[Path], object] | None) -> bytes | None:
        """Publish a step, on the thread; return its manifest's digest, None if asked to stop first."""
        waiting = Waiting(self.stopping, self.config.poll_seconds, lambda: None)
        return waiting.until(f"publishing step {step}", partial(self._upload, step, write))

    @property
    def _over(self) -> bool:
        """Whether no further step will be trained: the last one is, or a measured one has the reward to stop at."""
        self._record_evaluations()
        stop = self.step >= self.records.last and self.reports.reached(self.pool_config.evaluation.stop_at)
        return stop or self.step >= self.pool_config.train.steps

    def _next_batch(self) -> StepFiles | Literal[True] | None:
        """The files of the next step, if they are there; True if there will be none."""
        if self._over:
            return True
        batch = self.files.batch(self.step + 1, self.progress.consumed, self.steps.bound)
        if batch is None:
            self.idle.tick(self.files.awaited.cause)
            self.mask_writer.read_ahead()
            self.publisher.ensure(self.progress.manifests)
        return batch

    def _upload(self, step: int, write: Callable[[Path], object] | None) -> bytes:
        manifests, folder = self.progress.manifests, self.publisher.folder(step)
        digest = self._repeated(step)
        if digest is None:
            if write is not None:
                _export(folder, write)
            if self.pool_config.curricula:  # a reorganisation may have removed the step by whose time files count
                self.publisher.ensure(manifests[:step])
            self.mask_writer.write(step, folder)
            self.null_models.learn(step)
            digest = self.publisher.upload(step, manifests, self._made_by())
        manifests[step:] = [digest]
        self.publisher.ensure(manifests)
        return digest

    def _made_by(self) -> StepWorkers | None:
        """The DiLoCo workers that trained the step, if any did."""
        fields = self.progress.document.get("made_by")
        return StepWorkers.model_validate({name: fields[name] for name in StepWorkers.model_fields}) if fields else None

    def _confirmed(self) -> bool | None:
        """Whether the last step is `confirmations` blocks deep and every canary is concluded. Steps that a
        reorganisation removes until then are published again."""
        client, manifests = self.services.client, self.progress.manifests
        self.publisher.ensure(manifests)
        pool, deep = client.pool(), client.state.head - self.config.confirmations
        done = pool and len(pool.steps) == len(manifests) and pool.steps[-1].block <= deep
        return True if done and not unsettled(client.state, self.config.pool, self.canaries.node) else None

    def _offer(self, step: int) -> None:
        """Have a published step measured, if the pool wants that."""
        self.evaluations.offer(Candidate(step, self.publisher.folder(step), self.progress.manifests[step]))

    def _record_evaluations(self) -> bool | None:
        """Whether every evaluation is done and recorded."""
        for signed in self.evaluations.collect():
            self.reports.evaluation(signed)
        return True if self.evaluations.idle else None

    def _meanwhile(self) -> None:
        self.steps.poll()
        self._report()
        self._record_evaluations()
        self.reports.flush()

    def _heartbeat(self) -> HeartbeatRequest:
        """Say what the trainer does; `step` is the newest published policy step, for the learner may be renewed now."""
        step, late = max(0, len(self.progress.manifests) - 1), {"late_files": float(len(self.files.late))}
        return heartbeat("trainer", self.config.name, phase=self._phase, step=step, metrics=late)
