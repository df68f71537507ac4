"""The processes of a run: `run_worker` and `run_coordinator`, each from a configuration file.

Nothing here imports PyTorch before the environment variables that set its threads are there."""

import logging
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diloco.chain import StepRecorder, connect_runs
from diloco.config import CoordinatorConfig, DilocoRun, MemberConfig, PolicyCoordinatorConfig, Timeouts, WorkerConfig
from diloco.coordinator import Coordinator
from diloco.inner import check_data, data_digest, text_corpus
from diloco.outer import OuterState
from diloco.store import StatusFile, open_home
from diloco.transport import Transport
from protocol.config import PoolConfig
from protocol.encoding import load_document
from protocol.errors import ConfigError
from runtime.process import Daemon, start
from storage.s3 import Bucket
from trainer.config import ParallelConfig
from trainer.exits import EXIT_DONE, EXIT_LOST, RanksLostError
from trainer.main import prepare_torch

if TYPE_CHECKING:
    from diloco.inner import InnerTask
    from diloco.tasks import WorkerLearners
    from diloco.worker import Worker
    from trainer.model.sharding import Placement

log = logging.getLogger("muster.diloco")
_MIN_COLLECTIVE_SECONDS = 60.0  # that the ranks' processes may take to start
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


class MemberDaemon:
    """The process of a worker or of the coordinator. `end` is told the exit code, for the other ranks."""

    def __init__(
        self,
        member: "Worker | Coordinator",
        config: MemberConfig,
        held: ExitStack,
        end: Callable[[int], None] = lambda code: None,
    ) -> None:
        self._member, self._config, self._held, self._end = member, config, held, end
        self._stopping = threading.Event()
        self._status = StatusFile(config.home, member.status)

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> int:
        log.info("timeouts of %s:\n%s", self._member.run.name, self._member.timeouts.table())
        self._status.write()
        try:
            self._member.serve(self._stopping, self._config.poll_seconds, self._status, self._config.steps)
        except RanksLostError as error:
            log.error("%s", error)
            return EXIT_LOST
        self._status.write()
        self._end(EXIT_DONE)
        return EXIT_DONE


class FollowingRank:
    """Every rank's process but the first. `run` returns rank 0's exit code, or 3 if a rank is gone."""

    def __init__(self, learners: "WorkerLearners[Any]") -> None:
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


def load_first_state(model: str) -> OuterState:
    """Return the state that a run starts from: the weights of `model` (folder or Hugging Face id) in float32."""
    prepare_torch(ParallelConfig(), 1)
    from diloco.tasks import model_tensors
    from engines.loading import load_model
    from trainer.model.policy import model_folder

    return OuterState.start(model_tensors(load_model(model_folder(model), "float32").requires_grad_(True)))


def _coordinator(config: CoordinatorConfig) -> Daemon:
    run, account = load_document(config.run, DilocoRun), config.key.open()
    if run.assigned:
        raise ConfigError(f"{run.name} trains a pool's policy", "give the configuration of that pool's trainer")
    if account.address != run.coordinator:
        what = f"the coordinator of {run.name} is {run.coordinator}, this key is {account.address}"
        raise ConfigError(what, "name its key")
    held = open_home(config.home, run)
    first, transport, recorder = load_first_state(config.model), Transport(Bucket(config.s3), run), None
    if (chain := config.chain) is not None:
        seconds = chain.refresh_seconds
        recorder = StepRecorder(lambda: connect_runs(chain, account), chain.run, transport, first, seconds)
    return MemberDaemon(Coordinator(transport, account, first, config.home, recorder), config, held)


def _policy_coordinator(config: PolicyCoordinatorConfig) -> Daemon:
    prepare_torch(ParallelConfig(), config.engine.threads)
    from diloco.policy import policy_trainer
    from trainer.train import TrainerServices

    return policy_trainer(config, TrainerServices.connect(config))


def _worker(config: WorkerConfig) -> Daemon:
    run, task = load_document(config.run, DilocoRun), config.task
    parallel = task.parallel.parallel(max(_MIN_COLLECTIVE_SECONDS, Timeouts.of(run).collective))
    launcher = prepare_torch(parallel, task.threads)
    if launcher is not None:
        return launcher
    from diloco.tasks import check_pool_run
    from diloco.worker import Worker
    from trainer.model.policy import model_folder
    from trainer.model.sharding import make_placement

    try:
        placement = make_placement(parallel, task.memory, task.device)
        if placement.ranks.rank:
            return FollowingRank(_task_of(config, run, placement)[0])
        if config.rl is not None:
            check_pool_run(run, load_document(config.rl.pool, PoolConfig))
        if config.text is not None:
            check_data(run, data_digest(text_corpus(config.text), config.text, model_folder(config.model)))
        account = config.key.open()
        if account.address not in run.workers:
            raise ConfigError(f"{account.address} is no worker of {run.name}", "name one's key, or add it to the run")
        held, transport = open_home(config.home, run), Transport(Bucket(config.s3), run)
        learners, make_task = _task_of(config, run, placement)
        worker = Worker(transport, account, make_task(), config.home)
        return MemberDaemon(worker, config, held, learners.end)
    except RanksLostError as error:
        log.error("%s", error)
        sys.exit(EXIT_LOST)


def _task_of(
    config: WorkerConfig, run: DilocoRun, placement: "Placement"
) -> tuple["WorkerLearners[Any]", Callable[[], "InnerTask"]]:
    """Return the learners of this rank, and what makes the inner task that rank 0 drives them by. Raises ConfigError,
    IntegrityError."""
    from diloco import tasks
    from trainer.model.policy import model_folder

    folder = model_folder(config.model)
    if (rl := config.rl) is not None:
        pool = load_document(rl.pool, PoolConfig)
        policy = tasks.rl_learners(pool, rl.seed, folder, placement)
        return policy, lambda: tasks.RlTask(pool, folder, Bucket(config.s3).get, policy)
    if (text := config.text) is not None:
        readers = tasks.language_learners(text, folder, placement)
        return readers, lambda: tasks.text_task(text, folder, text_corpus(text), run, readers)
    sft = config.sft
    assert sft is not None, "a configuration names one task"
    speakers = tasks.language_learners(sft, folder, placement)
    return speakers, lambda: tasks.sft_task(sft, folder, run, speakers)
