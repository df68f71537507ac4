"""The processes of a run: `run_worker` and `run_coordinator`, each from a configuration file."""

import logging
import os
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from diloco.chain import StepRecorder, connect_runs
from diloco.config import (
    CoordinatorConfig,
    DilocoRun,
    MemberConfig,
    PolicyCoordinatorConfig,
    Timeouts,
    WorkerConfig,
)
from diloco.coordinator import Coordinator, coordinate
from diloco.outer import OuterState
from diloco.store import StatusFile, open_home
from diloco.transport import Transport
from engines.runtime import torch_environment
from protocol.config import PoolConfig
from protocol.encoding import load_document
from protocol.errors import ConfigError, MusterError
from protocol.files import die_with_parent
from runtime.process import Daemon, start
from storage.s3 import Bucket
from trainer.exits import EXIT_DONE, EXIT_LOST, RanksLostError

if TYPE_CHECKING:
    from diloco.tasks import InnerTask, WorkerLearners
    from diloco.worker import Worker
    from trainer.model.sharding import Placement

log = logging.getLogger("muster.diloco")
_MIN_COLLECTIVE_SECONDS = 60.0
"""That processes may take to start."""
_LAST_SECONDS = 5.0


def run_worker(config_path: Path) -> None:
    """Take part until SIGINT or SIGTERM, or the last outer step."""
    start(config_path, WorkerConfig, _worker, grace=None)


def run_coordinator(config_path: Path) -> None:
    """Write the log until SIGINT or SIGTERM, or the last outer step; of a pool, as its trainer."""
    try:
        load_document(config_path, CoordinatorConfig)
    except ConfigError:
        start(config_path, PolicyCoordinatorConfig, _policy_coordinator, grace=None)
    start(config_path, CoordinatorConfig, _coordinator, grace=None)


class CoordinatorDaemon:
    def __init__(
        self, coordinator: Coordinator, config: MemberConfig, held: ExitStack, recorder: StepRecorder | None = None
    ) -> None:
        self._coordinator, self._config, self._held, self._recorder = coordinator, config, held, recorder
        self._stopping = threading.Event()
        self._status = StatusFile(config.home, coordinator.status)

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> int:
        log.info("timeouts of %s:\n%s", self._coordinator.run.name, self._coordinator.timeouts.table())
        self._status.write()
        self._coordinator.start()
        if self._recorder is not None:
            self._recorder.start()
        coordinate(self._coordinator, self._stopping, self._config.poll_seconds, self._status, self._config.steps)
        self._coordinator.finish()
        if self._recorder is not None:
            self._recorder.finish()
        self._status.write()
        return EXIT_DONE


class WorkerDaemon:
    """`end` is told the exit code, for the other ranks."""

    def __init__(
        self, worker: "Worker", config: MemberConfig, held: ExitStack, end: Callable[[int], None] = lambda _: None
    ) -> None:
        self._worker, self._config, self._held, self._end = worker, config, held, end
        self._stopping = threading.Event()
        self._status = StatusFile(config.home, worker.status)

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> int:
        from diloco.worker import take_part

        log.info("timeouts of %s:\n%s", self._worker.run.name, self._worker.timeouts.table())
        self._status.write()
        try:
            self._worker.start(self._stopped)
            take_part(self._worker, self._stopping, self._config.poll_seconds, self._status, self._config.steps)
            self._worker.leave()
            self._worker.finish()
        except RanksLostError as error:
            log.error("%s", error)
            return EXIT_LOST
        self._status.write()
        self._end(EXIT_DONE)
        return EXIT_DONE

    def _stopped(self) -> bool:
        self._status()
        return self._stopping.is_set()


class FollowingRank:
    """Every rank's process but the first. `run` returns rank 0's exit code, or 3 if a rank is gone."""

    def __init__(self, learners: "WorkerLearners") -> None:
        self._learners = learners

    def run(self) -> int:
        try:
            return self._learners.follow()
        except RanksLostError as error:
            log.error("%s", error)
            return EXIT_LOST

    def stop(self) -> None:
        """Rank 0 is asked too and decides; should it be gone, do not wait for it much longer."""
        self._learners.ranks.shorten_wait(_LAST_SECONDS)


def prepare_torch(threads: int) -> None:
    """Set the environment that PyTorch reads at its first import."""
    for name, value in torch_environment(threads).items():
        os.environ.setdefault(name, value)


def load_first_state(model: str) -> OuterState:
    """Return the state that a run starts from: the weights of `model` (folder or Hugging Face id) in float32."""
    prepare_torch(1)
    from diloco.tasks import model_tensors
    from engines.loading import load_model
    from trainer.model.policy import model_folder

    return OuterState.start(model_tensors(load_model(model_folder(model), "float32").requires_grad_(True)))


def _coordinator(config: CoordinatorConfig) -> Daemon:
    run, account = load_document(config.run, DilocoRun), config.key.open()
    if run.assigned:
        raise ConfigError(f"{run.name} trains a pool's policy", "give the configuration of that pool's trainer")
    if account.address != run.coordinator:
        raise ConfigError(
            f"the coordinator of {run.name} is {run.coordinator}, this key is {account.address}", "name its key"
        )
    held = open_home(config.home, run)
    first, transport = load_first_state(config.model), Transport(Bucket(config.s3), run)
    recorder, chain = None, config.chain
    if chain is not None:
        recorder = StepRecorder(
            lambda: connect_runs(chain, account), chain.run, transport, first, chain.refresh_seconds
        )
    on_step = None if recorder is None else recorder.committed
    return CoordinatorDaemon(Coordinator(transport, account, first, config.home, on_step), config, held, recorder)


def _policy_coordinator(config: PolicyCoordinatorConfig) -> Daemon:
    prepare_torch(config.engine.threads)
    from diloco.policy import policy_trainer
    from engines.loading import set_threads
    from trainer.train import TrainerServices

    set_threads(config.engine.threads)
    return policy_trainer(config, TrainerServices.connect(config))


def _worker(config: WorkerConfig) -> Daemon:
    task = config.task
    prepare_torch(task.threads)
    from engines.loading import set_threads
    from trainer.distributed import Launcher, launched
    from trainer.model.sharding import make_placement

    run = load_document(config.run, DilocoRun)
    parallel = task.parallel.parallel(max(_MIN_COLLECTIVE_SECONDS, Timeouts.of(run).collective))
    if parallel.ranks > 1 and not launched():
        return Launcher(parallel, sys.orig_argv[1:])
    set_threads(task.threads)
    if launched():
        die_with_parent()
    try:
        placement = make_placement(parallel, task.memory, task.device)
        if placement.ranks.rank:
            return FollowingRank(build_learners(config, placement))
        return _first_rank(config, run, placement)
    except RanksLostError as error:
        log.error("%s", error)
        sys.exit(EXIT_LOST)


def _first_rank(config: WorkerConfig, run: DilocoRun, placement: "Placement") -> Daemon:
    from diloco.worker import Worker

    check_task(config, run)
    account = config.key.open()
    if account.address not in run.workers:
        raise ConfigError(f"{account.address} is no worker of {run.name}", "name the key of one, or add it to the run")
    held, bucket = open_home(config.home, run), Bucket(config.s3)
    learners = build_learners(config, placement)
    worker = Worker(Transport(bucket, run), account, build_task(config, run, bucket, learners), config.home)
    return WorkerDaemon(worker, config, held, learners.end)


def check_task(config: WorkerConfig, run: DilocoRun) -> None:
    """Raise ConfigError where the run is for other work, or for other data, before anything is loaded or claimed."""
    from diloco.corpus import check_data, data_digest, text_corpus
    from diloco.rl_task import check_pool_run
    from trainer.model.policy import model_folder

    if config.rl is not None:
        check_pool_run(run, load_document(config.rl.pool, PoolConfig))
    if config.text is not None:
        corpus = text_corpus(config.text, config.home)
        check_data(run, data_digest(corpus, config.text, model_folder(config.model)))


def build_learners(config: WorkerConfig, placement: "Placement") -> "WorkerLearners":
    """Return the learners of this rank. Raises ConfigError, IntegrityError."""
    from diloco.language_task import language_learners
    from diloco.rl_task import rl_learners
    from trainer.model.policy import model_folder

    folder = model_folder(config.model)
    if config.rl is not None:
        return rl_learners(config.rl, folder, placement)
    language = config.text or config.sft
    assert language is not None, "a configuration names one task"
    return language_learners(language, folder, placement)


def build_task(config: WorkerConfig, run: DilocoRun, bucket: Bucket, learners: "WorkerLearners") -> "InnerTask":
    """Return the inner task that rank 0 drives the learners by. Raises ConfigError."""
    from diloco.corpus import text_corpus
    from diloco.language_task import SftTask, TextTask
    from diloco.rl_task import RlTask
    from diloco.tasks import LanguageLearners, RlLearners
    from trainer.model.policy import model_folder

    folder = model_folder(config.model)
    if config.rl is not None and isinstance(learners, RlLearners):
        return RlTask(load_document(config.rl.pool, PoolConfig), folder, bucket.get, learners)
    if config.text is not None and isinstance(learners, LanguageLearners):
        return TextTask(config.text, folder, text_corpus(config.text, config.home), run, learners)
    if config.sft is not None and isinstance(learners, LanguageLearners):
        return SftTask(config.sft, folder, run, learners)
    raise MusterError("the learners are of another task")
