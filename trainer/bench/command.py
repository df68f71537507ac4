"""`run_bench(…)`: the process behind `muster trainer bench`, or one for each of its ranks."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from engines.runtime import torch_environment
from protocol.config import PoolConfig
from protocol.documents import load_document
from trainer.config import ComputeConfig

if TYPE_CHECKING:
    from trainer.bench.measure import BenchReport


def run_bench(
    config: Path, pool_config: Path, weights: Path | None, rows: int, steps: int, say: Callable[[str], None]
) -> "BenchReport | None":
    """What rank 0 measured, None on the others. With `parallel.ranks` it runs this very command once for each, and
    ends the process when they have ended. Raises ConfigError, RanksLostError."""
    compute, pool = load_document(config, ComputeConfig), load_document(pool_config, PoolConfig)
    for name, value in torch_environment(compute.engine.threads).items():
        os.environ.setdefault(name, value)  # before torch is imported
    if compute.parallel.ranks > 1 and "WORLD_SIZE" not in os.environ:
        from trainer.launch import Launcher

        sys.exit(Launcher(compute.parallel.model_copy(update={"max_restarts": 0}), sys.orig_argv[1:]).run())
    from engines.loading import set_threads
    from trainer.basemodel import base_model
    from trainer.bench.measure import bench
    from trainer.learner import Learner
    from trainer.model.sharding import make_placement

    set_threads(compute.engine.threads)
    folder = weights or base_model(pool.model, pool.environments[0], 0, progress=say)
    placement = make_placement(compute.parallel, compute.memory, compute.engine.device)
    learner = Learner(folder, pool.train, pool.work.temperature, pool.model.dtype, placement)
    first = placement.ranks.rank == 0
    report = bench(learner, pool.work, rows, steps, say if first else lambda _: None)
    placement.ranks.close()
    return report if first else None
