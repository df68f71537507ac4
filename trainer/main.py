"""The processes behind `muster pool train`, with `--sft` or `--bench`, or one of their ranks.

Nothing here imports PyTorch before the environment variables that set its threads are there.
"""

import logging
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from engines.torch_process import torch_environment
from protocol.config import PoolConfig
from protocol.encoding import load_document
from protocol.files import die_with_parent
from runtime.entry import run_role
from runtime.process import Daemon, start
from trainer.config import ComputeConfig, ParallelConfig, SftConfig, TrainerConfig
from trainer.exits import EXIT_LOST, RanksLostError

log = logging.getLogger("muster.trainer")


def run(config_path: Path) -> None:
    """Train a pool until its last step, a signal, or an error; trainer/exits.py has the exit codes."""
    start(config_path, TrainerConfig, _trainer, grace=None)


def run_sft(config_path: Path) -> None:
    """Fine-tune until the model is written (exit code 0) or until a signal (4: start again to continue)."""
    start(config_path, SftConfig, _sft, grace=None)


def run_bench(
    config: Path, pool_config: Path, weights: Path | None, rows: int, steps: int, say: Callable[[str], None]
) -> dict[str, Any] | None:
    """Return what rank 0 measured, None on the other ranks. With `parallel.ranks` > 1 the process starts this very
    command once for each rank and exits when they have ended. Raises ConfigError, RanksLostError."""
    compute, pool = load_document(config, ComputeConfig), load_document(pool_config, PoolConfig)
    launcher = prepare_torch(compute.parallel.model_copy(update={"max_restarts": 0}), compute.engine.threads)
    if launcher is not None:
        sys.exit(launcher.run())
    from trainer.learner import Learner
    from trainer.model.base_model import base_model
    from trainer.model.sharding import make_placement
    from trainer.reports.bench import bench

    folder = weights or base_model(pool.model, pool.environments[0], 0, progress=say)
    placement = make_placement(compute.parallel, compute.memory, compute.engine.device)
    learner = Learner(folder, pool.train, pool.work.temperature, pool.model.dtype, placement)
    first = placement.ranks.rank == 0
    report = bench(learner, pool.work, rows, steps, say if first else lambda _: None)
    placement.ranks.close()
    return report if first else None


def run_plan(
    config: Path | None, pool_config: Path, weights: Path | None, ranks: Sequence[int], gib: float
) -> dict[str, Any]:
    """Return what a pool's training takes of memory; nothing is loaded but the model's configuration. Raises
    ConfigError."""
    compute = load_document(config, ComputeConfig) if config else ComputeConfig()
    pool = load_document(pool_config, PoolConfig)
    prepare_torch(compute.parallel.model_copy(update={"ranks": 1}), 1)
    from trainer.reports.plan import plan

    return plan(pool, weights, compute, ranks, gib)


def _trainer(config: TrainerConfig) -> Daemon:
    launcher = prepare_torch(config.parallel, config.engine.threads)
    if launcher is not None:
        return launcher
    from trainer.distributed import NonZeroRank
    from trainer.learner import start_learners
    from trainer.model.sharding import make_placement
    from trainer.pool.data_pool import DataBuyer
    from trainer.train import Trainer, TrainerServices

    try:
        placement = make_placement(config.parallel, config.memory, config.engine.device)
        if placement.ranks.rank:
            return NonZeroRank(placement.ranks, lambda: start_learners(config, placement))
        services = TrainerServices.connect(config)
        buys_data = services.client.pool_config().data is not None
        if buys_data:
            return DataBuyer(config, services, placement)
        return Trainer(config, services, placement)
    except RanksLostError as error:
        log.error("%s", error)
        sys.exit(EXIT_LOST)


def _sft(config: SftConfig) -> Daemon:
    launcher = prepare_torch(config.parallel, config.threads)
    if launcher is not None:
        return launcher
    from trainer.model.sharding import make_placement
    from trainer.sft import SftRun

    try:
        return SftRun(config, make_placement(config.parallel, config.memory, config.device))
    except RanksLostError as error:
        log.error("%s", error)
        sys.exit(EXIT_LOST)


def prepare_torch(parallel: ParallelConfig, threads: int) -> Daemon | None:
    """Set PyTorch's threads, import it, and return the launcher of the ranks if this process is not one of them."""
    for name, value in torch_environment(threads).items():
        os.environ.setdefault(name, value)
    from engines.loading import set_threads
    from trainer.distributed import Launcher, launched

    if parallel.ranks > 1 and not launched():
        return Launcher(parallel, sys.orig_argv[1:])
    set_threads(threads)
    if launched():
        die_with_parent()
    return None


if __name__ == "__main__":
    run_role(run)
