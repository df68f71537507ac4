"""Honest rollouts against reject thresholds: how many files of 64 rollouts calibrated bounds refuse.

Pairs of engines (worker to verifier), each in fp32 and in bf16, on the demo's tiny model with random weights: prompts
of 1 to 40 tokens, outputs of 1 to 96 tokens, one-token outputs included, decode batches from 1 to 64. Thresholds of a
pair come from files of their own (calibration, one false reject in a million files asked for); fresh files are
then judged by them with the validator's own checks, and in fp32 by the default thresholds of `ChecksConfig` too.
Keys: rollouts, rejected (fresh files, by either), pairs {pair: {rollouts, files, rejected, rejected_default, tokens,
calibration_files, thresholds, and the largest measurements of fresh files}}.
"""

import multiprocessing
import random
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.offline_pool import work_of
from benchmarks.rollouts import BareContext, save_random, unscored
from calibration.means import Design
from calibration.process import row_samples
from calibration.sample import FileSample
from calibration.summary import file_measurements, summarise
from calibration.thresholds import thresholds
from engines.base import Engine, Request, Sampling
from engines.factory import make_engine
from engines.runtime import vllm_installed
from protocol.config import ChecksConfig, ModelConfig, PoolConfig, WorkConfig
from protocol.environments import EnvironmentConfig
from protocol.rollout_file.rows import Rollout
from protocol.seeds import noise_key
from validator.checks import PREFILL_CHECKS
from validator.context import CheckContext
from validator.measurements import measure

VOCABULARY, EOS = 265, 263
PROBLEMS, SAMPLES = 32, 2
ROWS = PROBLEMS * SAMPLES
SAMPLING = Sampling(1.0, (EOS,))
CONFIG = PoolConfig(
    name="honest",
    model=ModelConfig(source="none"),
    environments=(EnvironmentConfig(name="none"),),
    work=WorkConfig(problems_per_file=PROBLEMS, samples_per_problem=SAMPLES, max_new_tokens=96),
)
FALSE_REJECT, SAFETY = 1e-6, 1.5
PAIRS = tuple(
    (worker, verifier, dtype)
    for worker, verifier in (("transformers", "transformers"), ("vllm", "transformers"), ("transformers", "vllm"))
    for dtype in ("float32", "bfloat16")
)


def run(quick: bool, progress: Callable[[str], None]) -> dict[str, Any]:
    """Each pair in a process of its own: vLLM keeps global state."""
    pairs = [pair for pair in PAIRS if "vllm" not in pair or vllm_installed()]
    pairs = [pair for pair in pairs if pair[2] == "float32" or pair[1] != "vllm"][:3] if quick else pairs
    fresh, own = (2, 6) if quick else (-(-20_000 // (ROWS * len(pairs))), 40)
    out: dict[str, Any] = {"rollouts": 0, "rejected": 0, "pairs": {}}
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, spawn, max_tasks_per_child=1) as processes:
        for worker, verifier, dtype in pairs:
            name = f"{worker} to {verifier}, {dtype}"
            found = processes.submit(_pair, (worker, verifier), dtype, fresh, own).result()
            out["pairs"][name] = found
            out["rollouts"] += found["rollouts"]
            out["rejected"] += found["rejected"] + found["rejected_default"]
            progress(f"{name}: {found}")
    return out


def _pair(names: tuple[str, str], dtype: str, fresh: int, own: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        save_tiny(Path(folder))
        worker, judge = (make_engine(name, dtype, max_batch=64) for name in names)
        worker.load(Path(folder))
        judge.load(Path(folder))
        seed = f"{names[0]} {names[1]} {dtype}"
        # The last quarter of a calibration's files only judges its thresholds.
        mine = [sample for _, sample in _files(worker, judge, f"{seed} calibrate", own)]
        kept = own - max(1, own // 4)
        summary = summarise(worker.info, judge.info, mine[:kept], mine[kept:])
        bounds = thresholds([summary], Design(PROBLEMS, SAMPLES, 1.0), FALSE_REJECT, SAFETY)
        calibrated = ChecksConfig().model_copy(update=bounds)
        out: dict[str, Any] = {"rollouts": 0, "files": fresh, "rejected": 0, "rejected_default": 0, "tokens": 0}
        samples = []
        for context, sample in _files(worker, judge, f"{seed} fresh", fresh):
            samples.append(sample)
            out["rollouts"] += len(sample.rows)
            out["tokens"] += sum(row.tokens for row in sample.rows)
            out["rejected"] += _rejected(context, calibrated)
            out["rejected_default"] += dtype == "float32" and _rejected(context, ChecksConfig())
    largest = {name: float(f"{max(values):.4g}") for name, values in file_measurements(samples).items()}
    return out | {"calibration_files": own, "thresholds": bounds, "largest": largest}


def _rejected(context: CheckContext, checks: ChecksConfig) -> bool:
    """Whether a check on the prefill gives a reject code."""
    judged = replace(context, config=CONFIG.model_copy(update={"checks": checks}))
    return any(check(judged).code.is_reject for check in PREFILL_CHECKS)


def save_tiny(folder: Path) -> None:
    """The demo's architecture with random weights, spread so that distributions are neither flat nor sharp."""
    from trainer.tiny_model import tiny_qwen2

    config = tiny_qwen2(VOCABULARY, EOS, VOCABULARY - 1)
    config.initializer_range = 0.08
    save_random(config, folder, torch.float32)


def _files(worker: Engine, judge: Engine, seed: str, count: int) -> Iterator[tuple[CheckContext, FileSample]]:
    """Files as checks see them, and what each gives a calibration."""
    for number in range(count):
        source = random.Random(f"{seed} {number}")
        context = _context(worker, source, number)
        measurements = measure(context, judge)
        rows = row_samples(context.rollouts, measurements)
        yield replace(context, measurements=measurements), FileSample(1, rows)


def _context(worker: Engine, source: random.Random, number: int) -> CheckContext:
    """Rollouts of random prompts and lengths, in batches of random sizes; only what `measure` reads is there."""
    work = replace(work_of(number), step_seed=source.randbytes(32))
    asked = []
    for slot in range(PROBLEMS):
        prompt = tuple(source.randrange(260) for _ in range(source.randint(1, 40)))
        limit = source.choice([1, 2, source.randint(1, 96), source.randint(16, 64)])
        asked += [(slot, sample, Request(prompt, noise_key(work, slot, sample), limit)) for sample in range(SAMPLES)]
    rollouts: list[Rollout] = []
    while len(rollouts) < len(asked):
        part = asked[len(rollouts) : len(rollouts) + source.choice([1, 3, 8, 17, 64])]
        for (slot, sample, request), done in zip(
            part, worker.generate([request for _, _, request in part], SAMPLING), strict=True
        ):
            rollouts.append(unscored(slot, sample, request, done))
    return BareContext.of(work, CONFIG, EOS, rollouts)
