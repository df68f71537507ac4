"""Memory of training 300 million parameters, on one rank and on four of gloo, beside what the trainer's plan says.

`python -m benchmarks memory [--quick]`. Ranks are processes that load the model and take two steps of two rows each;
bytes are what the worst of them has resident beyond what it has after the same with a model of one small block. Keys:
parameters, row_tokens, and runs [{ranks, lora, once, loaded_mib, step_mib, planned_loaded_mib, planned_step_mib,
loaded_share, step_share, plan_error}]. once: ranks exchange whole gradients once a minibatch, as where they find room,
instead of shards after every row. Shares are of one rank's bytes.
"""

import gc
import multiprocessing
import os
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import torch

from benchmarks.trainer import save_small_llama
from engines.loading import set_threads
from protocol.config import EnvironmentConfig, LoraConfig, ModelConfig, PoolConfig, TrainConfig
from trainer.config import MemoryConfig, ParallelConfig
from trainer.distributed import loopback_store, rendezvous_environment
from trainer.learner import Learner
from trainer.model.loading import empty_model
from trainer.model.sharding import make_placement
from trainer.reports.bench import full_row, peak_bytes, reset_peak
from trainer.reports.plan import accounts

SIZES = {"vocabulary": 32768, "heads": 16, "kv_heads": 4, "intermediate": 2816, "layers": 24}
QUICK_SIZES = {"vocabulary": 1024, "heads": 6, "kv_heads": 2, "intermediate": 1024, "layers": 8}
MEMORY = MemoryConfig(row_tokens=16, head_chunk_mib=4, checkpoint_activations=True)
CPU, PHASES = torch.device("cpu"), ("loaded", "step")
RANKS = 4
TIMEOUT_SECONDS = 1800.0
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["benchmarks.memory", "transformers.models.llama.modeling_llama"])


def run(quick: bool, progress: Callable[[str], None]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="muster-memory-") as name:
        folder = Path(name) / "model"
        save_small_llama(folder, **(QUICK_SIZES if quick else SIZES))
        save_small_llama(folder.with_name("small"), 512, layers=1)
        runs = []
        for lora in (False, True):
            one = measure(folder, 1, lora, False)
            # The gradients of LoRA are too small for their exchange to matter.
            for entry in (one, *(measure(folder, RANKS, lora, once) for once in ((False,) if lora else (False, True)))):
                shares = {f"{name}_share": round(entry[f"{name}_mib"] / one[f"{name}_mib"], 3) for name in PHASES}
                runs.append(entry | shares)
                progress(f"{runs[-1]}")
        parameters = sum(parameter.numel() for parameter in empty_model(folder).parameters())
    return {"parameters": parameters, "row_tokens": MEMORY.row_tokens, "runs": runs}


def measure(folder: Path, ranks: int, lora: bool, once: bool) -> dict[str, Any]:
    """Train on some ranks, in processes of their own; return the worst rank's memory and the plan's, in MiB."""
    store = loopback_store(timedelta(seconds=TIMEOUT_SECONDS))
    shared = rendezvous_environment(store) | ({"WORLD_SIZE": str(ranks)} if ranks > 1 else {})
    with ProcessPoolExecutor(ranks, mp_context=_CONTEXT) as processes:
        work = partial(measure_rank, shared, folder, lora, once)
        measured = list(processes.map(work, range(ranks)))  # none ends before all have begun
    (plan,) = accounts(str(folder), _pool(lora), MEMORY, [ParallelConfig(ranks=ranks)], (1 << 40) * once)
    planned = {"loaded": plan.weights, "step": plan.peak}
    worst = {name: max(entry[name] for entry in measured) for name in PHASES}
    sizes = {f"{name}_mib": worst[name] >> 20 for name in PHASES}
    sizes |= {f"planned_{name}_mib": planned[name] >> 20 for name in PHASES}
    error = round(worst["step"] / planned["step"] - 1, 3)
    return {"ranks": ranks, "lora": lora, "once": once, **sizes, "plan_error": error}


def measure_rank(shared: dict[str, str], folder: Path, lora: bool, once: bool, rank: int) -> dict[str, int]:
    """Return the bytes that a rank takes to load the model, and at most to train it."""
    os.environ |= shared | {"RANK": str(rank)}
    set_threads(1)
    placement = make_placement(ParallelConfig(timeout_seconds=TIMEOUT_SECONDS), MEMORY, "cpu")

    def taken(model: Path) -> dict[str, int]:
        before = psutil.Process().memory_info().rss
        learner = Learner(model, _pool(lora).train, 1.0, placement=placement)
        learner.policy.sums_whole = once
        gc.collect()
        loaded = psutil.Process().memory_info().rss - before
        reset_peak(CPU)
        for _ in range(2):
            learner.train_step(full_row(MEMORY.row_tokens, 256) * (2 * placement.ranks.world))
        return dict(zip(PHASES, (loaded, peak_bytes(CPU) - before), strict=True))

    taken(folder.with_name("small"))
    gc.collect()
    sizes = taken(folder)
    placement.ranks.close()
    return sizes


def _pool(lora: bool) -> PoolConfig:
    train = TrainConfig(lora=LoraConfig(rank=16) if lora else None)
    environment = EnvironmentConfig(name="reasoning_gym/chain_sum")
    return PoolConfig(name="memory", model=ModelConfig(source="m"), environments=(environment,), train=train)
