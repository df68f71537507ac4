"""The processes of a run: `run_worker` and `run_coordinator`, each from a configuration file.

Nothing here imports PyTorch before the environment variables that set its threads are there."""

import logging
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from diloco.chain import StepRecorder, connect_runs
from diloco.config import CoordinatorConfig, DilocoRun, MemberConfig, PolicyCoordinatorConfig, Timeouts, WorkerConfig
from diloco.coordinator import Coordinator
from diloco.outer import OuterState
from diloco.store import StatusFile, open_home
from diloco.transport import Transport
from protocol.encoding import load_document
from protocol.errors import ConfigError, UnreachableError
from protocol.waits import WAITS
from runtime.process import Daemon, start
from storage.s3 import Bucket
from trainer.config import ParallelConfig
from trainer.exits import EXIT_DONE, EXIT_LOST, RanksLostError
from trainer.main import prepare_torch

if TYPE_CHECKING:
    from diloco.worker import Worker

log = logging.getLogger("muster.diloco")
_MIN_COLLECTIVE_SECONDS = 60.0  # that the ranks' processes may take to start


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
            self._member.start(self._stopped)
            self._advance()
            self._member.finish()
        except RanksLostError as error:
            log.error("%s", error)
            return EXIT_LOST
        self._status.write()
        self._end(EXIT_DONE)
        return EXIT_DONE

    def _stopped(self) -> bool:
        self._status()
        return self._stopping.is_set()

    def _advance(self) -> None:
        """Do whatever can be done, until stopped or until there are `steps` outer steps. A bucket that cannot be
        reached is waited for, and longer where bucket or processor are busy."""
        waiting, steps = "", self._config.steps
        while not self._stopped() and not 0 < steps <= self._member.state.step:
            began = time.monotonic()
            try:
                why = self._member.advance()
            except UnreachableError as error:
                why = f"the bucket: {error.what}"
            if why and why != waiting:
                log.info("waiting for %s", why)
            waiting = why
            if why:
                self._status()
                with WAITS.on(why):
                    self._stopping.wait(max(self._config.poll_seconds, min(1.5 * (time.monotonic() - began), 1.0)))


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
        recorder = StepRecorder(lambda: connect_runs(chain, account), chain.run, transport, first)
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
    from diloco.tasks import make_task
    from diloco.worker import Worker
    from trainer.distributed import NonZeroRank
    from trainer.model.sharding import make_placement

    try:
        placement = make_placement(parallel, task.memory, task.device)
        if placement.ranks.rank:
            return NonZeroRank(placement.ranks, lambda: make_task(config, run, placement))
        account = config.key.open()
        if account.address not in run.workers:
            raise ConfigError(f"{account.address} is no worker of {run.name}", "name one's key, or add it to the run")
        held, transport = open_home(config.home, run), Transport(Bucket(config.s3), run)
        inner_task = make_task(config, run, placement)
        return MemberDaemon(Worker(transport, account, inner_task, config.home), config, held, inner_task.end)
    except RanksLostError as error:
        log.error("%s", error)
        sys.exit(EXIT_LOST)
