"""The processes behind `muster pool train`, with `--sft` or `--bench`, or one of their ranks.

Nothing here imports PyTorch before the environment variables that set its threads are there.
"""

import logging
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from chain.contracts import CANARIES_DOMAIN, DECOY_CONSENT
from chain.deployment import Deployment
from engines.torch_process import torch_environment
from protocol.api.work import EVALUATION_DOMAIN, EVALUATION_STRUCT
from protocol.config import PoolConfig
from protocol.encoding import load_document
from protocol.files import die_with_parent
from protocol.http.signing import service_url
from runtime.entry import run_role
from runtime.isolation import enter
from runtime.process import Daemon, start
from runtime.signer import SigningRules
from storage.weights.manifest import DOMAIN as MANIFEST_DOMAIN
from storage.weights.manifest import STRUCT as MANIFEST_STRUCT
from trainer.config import CANARY_SECRET, ComputeConfig, ParallelConfig, SftConfig, TrainerConfig
from trainer.exits import EXIT_LOST, RanksLostError

log = logging.getLogger("muster.trainer")


_PATHS = ("/v1/steps", "/v1/heartbeats", "/v1/sources")


def signing_rules(config: TrainerConfig, deployment: Deployment, addresses: list[str]) -> SigningRules:
    """Return what a trainer may have signed: as the owner, its pool's steps, manifests, evaluations and canaries, the
    deposits of canaries among them; as the decoy, that its files are canaries."""
    owner, decoy = addresses[0], (addresses[1:] or [""])[0]

    def of_pool(address: str, named: Any, *_: object) -> bool:
        pool = named["pool"] if isinstance(named, dict) else named
        return (address, pool) == (owner, config.pool)

    def to_canaries(address: str, named: dict[str, Any]) -> bool:
        return (address, named["spender"]) == (owner, deployment.address("Canaries"))

    structs = {
        ("Pools", MANIFEST_DOMAIN, MANIFEST_STRUCT): of_pool,
        ("Pools", EVALUATION_DOMAIN, EVALUATION_STRUCT): of_pool,
        ("Canaries", CANARIES_DOMAIN, DECOY_CONSENT): lambda address, _: address == decoy,
    }
    calls = {"MusterToken.approve": to_canaries} | dict.fromkeys(
        ("Pools.publishStep", "Pools.unpack", "Pools.closePool", "Canaries.open"), of_pool
    )
    service = service_url(config.orchestrator)
    return SigningRules(config, deployment, _PATHS, structs, calls, service, (CANARY_SECRET,), most_gas=1 << 24)


def run(config_path: Path) -> None:
    """Train a pool until its last step, a signal, or an error; trainer/exits.py has the exit codes."""
    if "WORLD_SIZE" not in os.environ:  # ranks on several machines talk in ways that no isolation allows
        enter(config_path, TrainerConfig, "trainer", signing_rules, grace=None)
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
