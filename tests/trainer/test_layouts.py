"""Training on several ranks: what one process makes, whatever the layout, and resumed on any other number of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from engines.loading import set_threads
from protocol.training import (
    AdamWConfig,
    AlgorithmConfig,
    KlConfig,
    MuonConfig,
    OptimizerConfig,
    ScheduleConfig,
    TrainConfig,
)
from tests.trainer.crew import on_ranks
from tests.trainer.helpers import small_model, some_groups
from trainer.config import MemoryConfig, ParallelConfig
from trainer.learner import Learner
from trainer.model.sharding import make_placement, whole
from trainer.ranks import OneRank, Ranks
from trainer.state.checkpoint import checkpoint_path
from trainer.step_metrics import StepMetrics

ALGORITHM = AlgorithmConfig(kl=KlConfig(coefficient=1e-3), entropy_coefficient=1e-3)
WHOLE, ROWS = ParallelConfig(), MemoryConfig(row_tokens=40)
SCHEDULE = ScheduleConfig(warmup_updates=0)
ADAMW = OptimizerConfig(method=AdamWConfig(learning_rate=1e-3), schedule=SCHEDULE)
MUON = OptimizerConfig(method=MuonConfig(learning_rate=1e-3), schedule=SCHEDULE)
STEPS = 10
# Muon rounds to bfloat16 and then makes small directions large: one process with other micro-batches differs as much.
TOLERANCE = {"adamw": 1e-5, "muon": 1e-3}


@dataclass(frozen=True)
class LayoutRun:
    """What is trained and how; `save` and `load` name a checkpoint, `first` is the first step's number."""

    base: Path
    optimizer: OptimizerConfig = ADAMW
    parallel: ParallelConfig = WHOLE
    memory: MemoryConfig = ROWS
    steps: int = STEPS
    dtype: str = "float32"
    save: Path | None = None
    load: Path | None = None


@dataclass(frozen=True)
class LayoutResult:
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
    weights = {name: whole(value.detach()).clone() for name, value in learner.policy.model.state_dict().items()}
    return LayoutResult(weights, metrics)


def error(left: LayoutResult, right: LayoutResult) -> float:
    """The largest difference of any weight."""
    assert left.weights.keys() == right.weights.keys()
    return max(float((left.weights[name] - right.weights[name]).abs().max()) for name in left.weights)


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


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    set_threads(1)
    return small_model(tmp_path_factory.mktemp("model") / "base")


@pytest.fixture(scope="module")
def alone(base: Path) -> LayoutResult:
    return train(OneRank(), LayoutRun(base))


@pytest.mark.parametrize(("world", "shard"), [(2, 0), (4, 0), (4, 2), (2, 1)])
def test_ten_steps_on_several_ranks_are_those_of_one_process(
    base: Path, alone: LayoutResult, world: int, shard: int
) -> None:
    made = on_ranks(world, train, LayoutRun(base, parallel=ParallelConfig(shard=shard)))
    assert error(alone, made[0]) < 1e-5
    assert metric_error(alone.metrics, made[0].metrics) < 1e-4
    assert [one.tokens for one in made[0].metrics] == [one.tokens for one in alone.metrics]
    assert same(made[0], made[-1])


def test_muon_on_several_ranks_is_that_of_one_process(base: Path) -> None:
    """After one step, that is; see TOLERANCE."""
    first = train(OneRank(), LayoutRun(base, MUON, steps=1))
    assert error(first, train(OneRank(), LayoutRun(base, steps=1))) > 1e-4, "it is not AdamW"
    made = on_ranks(4, train, LayoutRun(base, MUON, parallel=ParallelConfig(shard=2), steps=1))
    assert error(first, made[0]) < 1e-4
    assert same(made[0], made[-1])
    many = train(OneRank(), LayoutRun(base, MUON))
    assert error(many, on_ranks(2, train, LayoutRun(base, MUON))[0]) < TOLERANCE["muon"]


@pytest.mark.parametrize(
    ("optimizer", "first", "second"), [(ADAMW, 2, 1), (ADAMW, 2, 4), (ADAMW, 1, 2), (ADAMW, 4, 2), (MUON, 2, 1)]
)
def test_a_run_resumes_on_another_number_of_ranks(
    base: Path, tmp_path: Path, optimizer: OptimizerConfig, first: int, second: int
) -> None:
    folder = checkpoint_path(tmp_path, STEPS // 2)
    on_ranks(first, train, LayoutRun(base, optimizer, steps=STEPS // 2, save=folder))
    resumed = on_ranks(second, train, LayoutRun(base, optimizer, load=folder))[0]
    assert len(resumed.metrics) == STEPS - STEPS // 2
    assert error(train(OneRank(), LayoutRun(base, optimizer)), resumed) < TOLERANCE[optimizer.method.name]


@pytest.mark.parametrize("optimizer", [ADAMW, MUON], ids=["adamw", "muon"])
def test_a_run_resumed_on_as_many_ranks_is_the_same_to_the_bit(
    base: Path, tmp_path: Path, optimizer: OptimizerConfig
) -> None:
    folder = checkpoint_path(tmp_path, STEPS // 2)
    steady = on_ranks(2, train, LayoutRun(base, optimizer))[0]
    on_ranks(2, train, LayoutRun(base, optimizer, steps=STEPS // 2, save=folder))
    assert same(steady, on_ranks(2, train, LayoutRun(base, optimizer, load=folder))[0])


@pytest.mark.parametrize(
    "memory",
    [
        MemoryConfig(row_tokens=40, checkpoint_activations=True),
        MemoryConfig(row_tokens=40, offload_optimizer=True, offload_reference=True),
    ],
    ids=["checkpointed", "offloaded"],
)
@pytest.mark.parametrize("world", [1, 2])
def test_what_saves_memory_changes_nothing(base: Path, alone: LayoutResult, memory: MemoryConfig, world: int) -> None:
    made = on_ranks(world, train, LayoutRun(base, memory=memory))[0]
    assert error(alone, made) < 1e-5
    plain = on_ranks(world, train, LayoutRun(base))[0]
    assert same(plain, made)


@pytest.mark.slow
def test_compiled_blocks_train_as_plain_ones(base: Path, alone: LayoutResult) -> None:
    made = train(OneRank(), LayoutRun(base, memory=MemoryConfig(row_tokens=40, compile=True)))
    assert error(alone, made) < 1e-5


def test_bfloat16_on_two_ranks_stays_near_one_process(base: Path) -> None:
    whole_run = train(OneRank(), LayoutRun(base, dtype="bfloat16"))
    made = on_ranks(2, train, LayoutRun(base, dtype="bfloat16"))[0]
    assert all(value.dtype == torch.float32 for value in made.weights.values())
    assert error(whole_run, made) < 8e-3, "less than half of what the largest possible updates add up to"
    assert metric_error(whole_run.metrics[:1], made.metrics[:1]) < 0.05
