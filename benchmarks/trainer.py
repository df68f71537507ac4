"""Our training step against TRL's GRPO step: the same model, long-tailed rollouts, threads, precision, one run.

`python -m benchmarks trainer [--quick]`; TRL comes from `make peers`. Each case is a process of its own, the two in
turn (benchmarks/trainer_case.py, benchmarks/trainer_trl.py). Both with activation checkpointing, which is TRL's
default; its trainer is given our rollouts and is otherwise left alone. Processor seconds of one thread, which other
work on the machine disturbs less than time.

Keys: tokens_ratio (tokens per second, ours over TRL's, medians), memory_ratio (peak of resident memory, ours over
TRL's), packing_waste (share of eight ranks' time spent waiting, by estimated work), mfu (of our step, over what plain
matrix products reach), `runs`, `memory` (peaks at several sizes of row and of head chunk) and `gpu` (empty without
one). A quick run has one problem and one step.
"""

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.trainer_case import CaseSettings, Measured
from benchmarks.trainer_gpu import gpu_rows
from benchmarks.trainer_mix import Mix, save_small_llama
from engines.runtime import torch_environment
from trainer.batch import WorkEstimate, idle_share, plan_rows

ROOT = Path(__file__).parents[1]
PEER = ROOT / "build" / "peers-trl"
RANKS = 8
# (row tokens, MiB of logits at a time); the last is more than any row's: the whole logits at once.
SIZES = ((1024, 8), (2048, 8), (4096, 8), (4096, 64), (4096, 1024))


def run(quick: bool, progress: Callable[[str], None]) -> dict[str, Any]:
    if not (PEER / "trl").is_dir():
        sys.exit("benchmarks: trainer compares with TRL, which is not there; run `make peers`")
    mix = Mix(groups=1) if quick else Mix()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        save_small_llama(folder / "model", mix.vocabulary)
        settings = CaseSettings(folder, mix, steps=1 if quick else 2)
        order = ("trainer_case", "trainer_trl") * (1 if quick else 2)
        runs = [(name, _case(name, settings, progress)) for name in order]
        memory = [] if quick else [_memory(settings, *sizes, progress) for sizes in SIZES]
    ours, trl = ([found for name, found in runs if name == wanted] for wanted in ("trainer_case", "trainer_trl"))
    seconds, theirs = (statistics.median(s for one in many for s in one.seconds) for many in (ours, trl))
    return {
        "tokens_ratio": round(theirs / seconds, 2),
        "memory_ratio": round(max(one.peak for one in ours) / min(one.peak for one in trl), 3),
        "packing_waste": round(packing_waste(), 4),
        "mfu": round(statistics.median(one.flops / one.peak_flops for one in ours) / seconds, 3),
        "tokens": ours[0].tokens,
        "tokens_per_second": {"ours": round(ours[0].tokens / seconds, 1), "trl": round(ours[0].tokens / theirs, 1)},
        "peak_mib": {"ours": ours[0].peak >> 20, "trl": trl[0].peak >> 20},
        "runs": [{"trainer": name} | found.document() for name, found in runs],
        "memory": memory,
        "gpu": gpu_rows(quick, progress),
    }


def packing_waste(count: int = 2048, longest: int = 16384, row_tokens: int = 32768) -> float:
    """Of a step of long-tailed sequences with a model as heavy in attention as one of half a billion parameters."""
    dice = random.Random(0)
    lengths = [min(longest, 1 + int(dice.lognormvariate(7.0, 1.2))) for _ in range(count)]
    work = WorkEstimate(1e9, ((0, 9e4),)).of_sequence
    return idle_share(plan_rows(lengths, row_tokens, RANKS, work), lengths, work)


def _memory(settings: CaseSettings, row: int, chunk: int, progress: Callable[[str], None]) -> dict[str, Any]:
    """The peak of a step on one full row."""
    one_row = replace(settings, row_tokens=row, head_chunk_mib=chunk, steps=1, one_row=True)
    found = _case("trainer_case", one_row, progress)
    return {"row_tokens": row, "head_chunk_mib": chunk, "step_mib": found.peak - found.before >> 20}


def _case(name: str, settings: CaseSettings, progress: Callable[[str], None]) -> Measured:
    path = settings.save(settings.folder / "settings.json")
    environment = os.environ | torch_environment(settings.threads)
    environment["PYTHONPATH"] = os.pathsep.join([str(PEER), str(ROOT)] if name == "trainer_trl" else [str(ROOT)])
    command = [sys.executable, "-m", f"benchmarks.{name}", str(path)]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{name} failed:\n{done.stderr[-2000:]}")
    found = Measured(**json.loads(done.stdout.splitlines()[-1]))
    progress(f"{name}: {found.tokens} tokens in {found.seconds} s, peak {found.peak >> 20} MiB")
    return found
