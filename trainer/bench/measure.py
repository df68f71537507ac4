"""`muster trainer bench`: how fast a machine trains a pool's model and what fits into its memory, before it costs
anything."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass

import torch

from protocol.config import WorkConfig
from trainer.batches.packing import idle_share, plan_rows
from trainer.bench.machine import PeakMemory, matrix_flops
from trainer.metrics.peak import data_sheet_flops
from trainer.bench.rollouts import full_row, synthetic_groups
from trainer.learner import Learner

_HEADROOM = 0.9


@dataclass(frozen=True)
class BenchReport:
    """Per step over all ranks, medians of `steps` steps; bytes and fitting rows are of this rank alone.

    `mfu`: operations that the step needs (forward and backward, nothing counted twice) per second, over the device's
    peak, which is the data sheet's or, where `peak_measured`, what plain matrix products reach. `idle_share`: time
    that ranks wait for one another by the estimate that packing levels. `bytes_per_token` is what another token in a
    row costs, `row_tokens_fit` how many fit, 0 where that cannot be told.
    """

    device: str
    dtype: str
    ranks: int
    parameters: int
    rollouts: int
    tokens: int
    steps: int
    seconds: float
    tokens_per_second: float
    mfu: float
    peak_flops: float
    peak_measured: bool
    idle_share: float
    row_tokens: int
    peak_bytes: int
    bytes_per_token: float
    row_tokens_fit: int


def bench(learner: Learner, work: WorkConfig, rows: int, steps: int, say: Callable[[str], None]) -> BenchReport:
    """Train `steps` steps on `rows` packed rows for each rank; every rank must call it. The weights change."""
    policy, placement = learner.policy, learner.placement
    row_tokens, world = placement.memory.row_tokens, placement.ranks.world
    vocabulary = policy.model.config.get_text_config().vocab_size
    memory = PeakMemory(policy.device)
    say("measuring memory with rows of two sizes")
    half, whole = (_peak(learner, memory, size, vocabulary) for size in (row_tokens // 2, row_tokens))
    per_token = max(0.0, (whole - half) / (row_tokens - row_tokens // 2))
    groups = synthetic_groups(work, vocabulary, rows * row_tokens * world)
    lengths = [one.length for group in groups for one in group]
    memory.reset()
    seconds = []
    for number in range(steps + 1):
        taken = learner.train_step(groups).seconds
        say(f"step {number + 1} of {steps + 1}: {sum(lengths)} tokens in {taken:.2f} s")
        seconds.append(taken)
    median = statistics.median(seconds[1:])
    known = data_sheet_flops(policy.device) if policy.dtype == torch.bfloat16 else None
    flops = known or matrix_flops(policy.device, policy.dtype)
    fit = int(row_tokens + (_HEADROOM * memory.limit() - whole) / per_token) if per_token else 0
    plan = plan_rows(lengths, row_tokens, world, policy.work.of_sequence, policy.packs)
    return BenchReport(
        device=_name(policy.device),
        dtype=str(policy.dtype).removeprefix("torch."),
        ranks=world,
        parameters=sum(parameter.numel() for parameter in policy.model.parameters()),
        rollouts=len(lengths),
        tokens=sum(lengths),
        steps=steps,
        seconds=round(median, 4),
        tokens_per_second=round(sum(lengths) / median, 1),
        mfu=round(policy.work.training(lengths) / median / (flops * world), 4),
        peak_flops=flops,
        peak_measured=known is None,
        idle_share=round(idle_share(plan, lengths, policy.work.of_sequence), 4),
        row_tokens=row_tokens,
        peak_bytes=max(memory.read(), whole),
        bytes_per_token=round(per_token, 1),
        row_tokens_fit=max(0, fit),
    )


def _peak(learner: Learner, memory: PeakMemory, tokens: int, vocabulary: int) -> int:
    """The most that a step on one row of `tokens` takes; the optimizer's state exists afterwards."""
    groups = full_row(tokens, vocabulary)
    learner.train_step(groups)
    memory.reset()
    learner.train_step(groups)
    return memory.read()


def _name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"cpu, {torch.get_num_threads()} threads"
