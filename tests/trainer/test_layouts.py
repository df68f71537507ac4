"""Training on several ranks: what one process makes, whatever the layout, and resumed on any other number of them."""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist

from engines.loading import set_threads
from protocol.config import (
    AdamWConfig,
    AlgorithmConfig,
    KlConfig,
    MuonConfig,
    OptimizerConfig,
    ScheduleConfig,
    TrainConfig,
)
from tests.trainer.crew import on_ranks
from tests.trainer.helpers import largest_difference, some_groups, weights_of
from trainer.checkpoint import checkpoint_path
from trainer.config import MemoryConfig, ParallelConfig
from trainer.distributed import Ranks
from trainer.learner import Learner
from trainer.model.sharding import make_placement
from trainer.reports.step_metrics import StepMetrics

ALGORITHM = AlgorithmConfig(kl=KlConfig(coefficient=1e-3), entropy_coefficient=1e-3)
WHOLE, ROWS = ParallelConfig(), MemoryConfig(row_tokens=40)
SCHEDULE = ScheduleConfig(warmup_updates=0)
ADAMW = OptimizerConfig(method=AdamWConfig(learning_rate=1e-3), schedule=SCHEDULE)
MUON = OptimizerConfig(method=MuonConfig(learning_rate=1e-3), schedule=SCHEDULE)
STEPS = 10
# Muon makes small directions large: one process with other micro-batches differs as much.
TOLERANCE = {"adamw": 1e-5, "muon": 1e-4}


@dataclass(frozen=True)
class LayoutRun:
    """What is trained and how; `save` and `load` name a checkpoint."""

    base: Path
    optimizer: OptimizerConfig = ADAMW
    parallel: ParallelConfig = WHOLE
    memory: MemoryConfig = ROWS
    steps: int = STEPS
    dtype: str = "float32"
    save: Path | None = None
    load: Path | None = None


class LayoutResult(NamedTuple):
    """Weights, whole, and the metrics of every step."""

    weights: dict[str, torch.Tensor]
    metrics: list[StepMetrics]


def train(ranks: Ranks, run: LayoutRun) -> LayoutResult:
    config = TrainConfig(steps=STEPS, minibatches=2, algorithm=ALGORITHM, optimizer=run.optimizer)
    placement = make_placement(run.parallel, run.memory, "cpu", ranks)
    learner = Learner(run.base, config, 0.9, run.dtype, placement, seed=3)
    if run.load:
        learner.load_checkpoint(run.load)
    metrics = [learner.train_step(some_groups(number, logprobs=True)) for number in range(learner.step, run.steps)]
    if run.save:
        learner.start_checkpoint(run.save).wait()
    return LayoutResult(weights_of(learner), metrics)


def error(left: LayoutResult, right: LayoutResult) -> float:
    """The largest difference of any weight."""
    return largest_difference(left.weights, right.weights)


def same(left: LayoutResult, right: LayoutResult) -> bool:
    return all(torch.equal(left.weights[name], right.weights[name]) for name in left.weights)


def metric_error(left: Sequence[StepMetrics], right: Sequence[StepMetrics]) -> float:
    """The largest relative difference of loss, entropy and gradient norm."""
    pairs: list[tuple[float, float]] = [
        (getattr(one, name), getattr(other, name))
        for one, other in zip(left, right, strict=True)
        for name in ("loss", "entropy", "grad_norm", "kl")
    ]
    return max(abs(one - other) / max(1e-3, abs(one)) for one, other in pairs)


@cache
def trained(world: int, run: LayoutRun) -> list[LayoutResult]:
    """Every rank's, or this process' for a world of 0; what several tests compare with is trained once."""
    set_threads(1)
    return on_ranks(world, train, run) if world else [train(Ranks(), run)]


def alone(base: Path, **what: Any) -> LayoutResult:
    return trained(0, LayoutRun(base, **what))[0]


def together(world: int, base: Path, **what: Any) -> list[LayoutResult]:
    return trained(world, LayoutRun(base, **what))


def half(world: int, base: Path, optimizer: OptimizerConfig) -> Path:
    """The checkpoint of half of a run on `world` ranks."""
    folder = checkpoint_path(base.parent / f"{optimizer.method.name}-{world}", STEPS // 2)
    together(world, base, optimizer=optimizer, steps=STEPS // 2, save=folder)
    return folder


@pytest.mark.parametrize(
    ("world", "shard", "context"),
    [
        (2, 0, 1),
        (2, 1, 1),
        (4, 2, 2),  # shards, replicas and parts of rows at once
        pytest.param(4, 0, 1, marks=pytest.mark.slow),
        pytest.param(4, 2, 1, marks=pytest.mark.slow),
        pytest.param(2, 0, 2, marks=pytest.mark.slow),
    ],
)
def test_ten_steps_on_several_ranks_are_those_of_one_process(base: Path, world: int, shard: int, context: int) -> None:
    whole_run, made = alone(base), together(world, base, parallel=ParallelConfig(shard=shard, context=context))
    assert error(whole_run, made[0]) < 1e-5
    assert metric_error(whole_run.metrics, made[0].metrics) < 1e-4
    assert [one.tokens for one in made[0].metrics] == [one.tokens for one in whole_run.metrics]
    assert same(made[0], made[-1])


def test_muon_on_several_ranks_is_that_of_one_process(base: Path) -> None:
    """After one step, that is; see TOLERANCE."""
    first = alone(base, optimizer=MUON, steps=1)
    assert error(first, alone(base, steps=1)) > 1e-4, "it is not AdamW"
    made = together(4, base, optimizer=MUON, parallel=ParallelConfig(shard=2), steps=1)
    assert error(first, made[0]) < 1e-4
    assert same(made[0], made[-1])
    many = alone(base, optimizer=MUON)
    assert error(many, together(2, base, optimizer=MUON)[0]) < TOLERANCE["muon"]


@pytest.mark.parametrize(
    ("optimizer", "first", "second"),
    [
        pytest.param(ADAMW, 2, 1, marks=pytest.mark.slow),
        (ADAMW, 2, 4),
        (ADAMW, 1, 2),
        pytest.param(ADAMW, 4, 2, marks=pytest.mark.slow),
        (MUON, 2, 1),
    ],
)
def test_a_run_resumes_on_another_number_of_ranks(
    base: Path, optimizer: OptimizerConfig, first: int, second: int
) -> None:
    resumed = together(second, base, optimizer=optimizer, load=half(first, base, optimizer))[0]
    assert len(resumed.metrics) == STEPS - STEPS // 2
    assert error(alone(base, optimizer=optimizer), resumed) < TOLERANCE[optimizer.method.name]


@pytest.mark.parametrize("optimizer", [ADAMW, MUON], ids=["adamw", "muon"])
def test_a_run_resumed_on_as_many_ranks_is_the_same_to_the_bit(base: Path, optimizer: OptimizerConfig) -> None:
    resumed = together(2, base, optimizer=optimizer, load=half(2, base, optimizer))[0]
    assert same(together(2, base, optimizer=optimizer)[0], resumed)


@pytest.mark.parametrize("saving", ["checkpoint_activations", "offload_optimizer"])
@pytest.mark.parametrize("world", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_what_saves_memory_changes_nothing(base: Path, saving: str, world: int) -> None:
    made = together(world, base, memory=ROWS.model_copy(update={saving: True}))[0]
    assert error(alone(base), made) < 1e-5
    assert same(together(world, base)[0], made)


def exchanges(
    ranks: Ranks, base: Path, shard: int, sums_whole: bool
) -> tuple[Counter[str], int, dict[str, torch.Tensor]]:
    """How often ranks exchanged gradients in a step of two minibatches, and how many rows they trained."""
    config = TrainConfig(minibatches=2, optimizer=ADAMW)
    learner = Learner(base, config, 1.0, placement=make_placement(ParallelConfig(shard=shard), ROWS, "cpu", ranks))
    assert learner.policy.sums_whole
    learner.policy.sums_whole = sums_whole
    counts = Counter[str]()
    with ExitStack() as stack:
        for name in ("reduce_scatter_single", "all_reduce"):
            stack.enter_context(patch.object(dist, name, counted(counts, name, getattr(dist, name))))
        backward = patch.object(learner.policy, "backward", wraps=learner.policy.backward)
        rows = stack.enter_context(backward)
        learner.train_step(some_groups(1, count=16))
    return counts, rows.call_count, weights_of(learner)


def counted(counts: Counter[str], name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        counts[name] += "group" in options  # sums of metrics are over all ranks
        return function(*arguments, **options)

    return call


def test_gradients_are_exchanged_once_in_a_minibatch(base: Path) -> None:
    """Once by each of the model's two groups of parameters; after every row where whole gradients have no room, and
    then replicas still once."""
    (often, rows, sharded), _ = on_ranks(2, exchanges, base, 0, False)
    (seldom, same_rows, summed), _ = on_ranks(2, exchanges, base, 0, True)
    assert rows == same_rows > 4
    assert (often["reduce_scatter_single"], seldom["reduce_scatter_single"]) == (2 * rows, 4)
    assert largest_difference(sharded, summed) < 1e-6
    (replicas, rows, replicated), *_ = on_ranks(4, exchanges, base, 2, False)
    assert (replicas["reduce_scatter_single"], replicas["all_reduce"]) == (2 * rows, 4)
    assert largest_difference(replicated, summed) < 1e-6


def test_gradients_may_be_summed_in_bfloat16(base: Path) -> None:
    made = together(2, base, memory=ROWS.model_copy(update={"reduce_dtype": "bfloat16"}))[0]
    assert 1e-6 < error(alone(base), made) < 8e-3, "less than half of what the largest updates add up to"


def test_muons_state_may_wait_in_the_hosts_memory(base: Path) -> None:
    made = alone(base, optimizer=MUON, memory=ROWS.model_copy(update={"offload_optimizer": True}))
    assert same(alone(base, optimizer=MUON), made)


@pytest.mark.slow
def test_compiled_blocks_train_as_plain_ones(base: Path) -> None:
    made = alone(base, memory=MemoryConfig(row_tokens=40, compile=True))
    assert error(alone(base), made) < 1e-5


def test_bfloat16_on_two_ranks_stays_near_one_process(base: Path) -> None:
    whole_run = alone(base, dtype="bfloat16")
    made = together(2, base, dtype="bfloat16")[0]
    assert all(value.dtype == torch.float32 for value in made.weights.values())
    assert error(whole_run, made) < 8e-3, "less than half of what the largest possible updates add up to"
    assert metric_error(whole_run.metrics[:1], made.metrics[:1]) < 0.05
