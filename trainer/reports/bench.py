"""`muster pool train --bench`: how fast a machine trains a pool's model, and in how much memory, before it costs
money."""

import contextlib
import random
import re
import resource
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from protocol.config import WorkConfig
from trainer.data.batch import Group, TrainRollout, idle_share
from trainer.learner import Learner
from trainer.reports.step_metrics import data_sheet_flops

_CLEAR, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


def matrix_flops(device: torch.device, dtype: torch.dtype, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the best of a few products of square matrices, in operations a second of `clock`."""
    wait: Callable[[], object] = partial(torch.cuda.synchronize, device) if device.type == "cuda" else int
    size = 8192 if device.type == "cuda" else 1024
    left, right = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    best = 0.0
    for _ in range(6):
        wait()
        start = clock()
        left @ right
        wait()
        best = max(best, 2.0 * size**3 / (clock() - start))
    return best


def reset_peak(device: torch.device) -> None:
    """Forget the peak so far, where the system can."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    else:
        with contextlib.suppress(OSError):
            _CLEAR.write_text("5")


def peak_bytes(device: torch.device) -> int:
    """Return the most memory since `reset_peak`: of a GPU what torch holds, else what the process has resident."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    match = re.search(r"VmHWM:\s+(\d+) kB", _STATUS.read_text()) if _STATUS.exists() else None
    return 1024 * (int(match[1]) if match else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def synthetic_groups(work: WorkConfig, vocabulary: int, tokens: int, seed: int = 0) -> list[Group]:
    """Return groups with a signal, of at least `tokens` tokens altogether, in the shape of a pool's work: prompts up to
    a quarter of the longest allowed, outputs log-normal around a sixth of it: many short, some as long as can be."""
    dice = random.Random(seed)
    groups: list[Group] = []
    total = 0
    while total < tokens:
        prompt = _tokens(dice, vocabulary, dice.randint(1, max(1, work.max_prompt_tokens // 4)))
        group = []
        for number in range(max(2, work.samples_per_problem)):
            length = int(work.max_new_tokens / 6 * dice.lognormvariate(0.0, 1.0))
            output = _tokens(dice, vocabulary, min(work.max_new_tokens, max(1, length)))
            group.append(TrainRollout(prompt, output, float(number % 2), logprobs=(-1.0,) * len(output)))
        groups.append(tuple(group))
        total += sum(sample.length for sample in group)
    return groups


def full_row(tokens: int, vocabulary: int) -> list[Group]:
    """Return one group of two rollouts that fill a row of `tokens`."""
    dice = random.Random(tokens)
    halves = [_tokens(dice, vocabulary, max(2, tokens // 2)) for _ in range(2)]
    return [tuple(TrainRollout(half[:1], half[1:], float(number)) for number, half in enumerate(halves))]


def _tokens(dice: random.Random, vocabulary: int, count: int) -> tuple[int, ...]:
    return tuple(dice.randrange(vocabulary) for _ in range(count))


def bench(learner: Learner, work: WorkConfig, rows: int, steps: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Train `steps` steps on `rows` packed rows for each rank; every rank must call it. The weights change.

    Return figures per step over all ranks, medians of `steps` steps; bytes are of this rank alone.
    `mfu`: operations that the step needs per second, over the device's peak, which is the data sheet's or, where
    `peak_measured`, what plain matrix products reach. `idle_share`: time that ranks wait for one another by the
    estimate that packing levels."""
    policy, placement = learner.policy, learner.placement
    device, row_tokens, world = policy.device, placement.memory.row_tokens, placement.ranks.world
    vocabulary = policy.model.config.get_text_config().vocab_size
    groups = synthetic_groups(work, vocabulary, rows * row_tokens * world)
    lengths = [sample.length for group in groups for sample in group]
    reset_peak(device)
    seconds = []
    for number in range(steps + 1):
        taken = learner.train_step(groups).seconds
        say(f"step {number + 1} of {steps + 1}: {sum(lengths)} tokens in {taken:.2f} s")
        seconds.append(taken)
    median = statistics.median(seconds[1:])
    known = data_sheet_flops(device) if policy.dtype == torch.bfloat16 else None
    flops = known or matrix_flops(device, policy.dtype)
    cpu = f"cpu, {torch.get_num_threads()} threads"
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else cpu,
        "dtype": str(policy.dtype).removeprefix("torch."),
        "ranks": world,
        "parameters": sum(parameter.numel() for parameter in policy.model.parameters()),
        "rollouts": len(lengths),
        "tokens": sum(lengths),
        "steps": steps,
        "seconds": round(median, 4),
        "tokens_per_second": round(sum(lengths) / median, 1),
        "mfu": round(policy.work.training(lengths) / median / (flops * world), 4),
        "peak_flops": flops,
        "peak_measured": known is None,
        "idle_share": round(idle_share(policy.plan(lengths), lengths, policy.work.of_sequence), 4),
        "row_tokens": row_tokens,
        "peak_bytes": peak_bytes(device),
    }
