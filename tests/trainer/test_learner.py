"""The learner: its step against plain autograd, bit-exact resume, damaged checkpoints, export."""

import math
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from engines.loading import load_model
from protocol.config import (
    AdamWConfig,
    AlgorithmConfig,
    KlConfig,
    MaskConfig,
    OptimizerConfig,
    ScheduleConfig,
    TrainConfig,
)
from protocol.errors import ConfigError
from protocol.models import eos_ids, load_tokenizer, save_byte_tokenizer
from tests.trainer.helpers import same, small_model, some_groups, weights_of
from trainer.data.batch import Source, micro_batch
from trainer.distributed import Ranks
from trainer.learner import Learner, LearnerGroup
from trainer.model.policy import Policy
from trainer.optim import learning_rate

CONFIG = TrainConfig(minibatches=2, algorithm=AlgorithmConfig(kl=KlConfig(coefficient=1e-3), entropy_coefficient=1e-3))


def rate(peak: float, **schedule: Any) -> OptimizerConfig:
    return OptimizerConfig(method=AdamWConfig(learning_rate=peak), schedule=ScheduleConfig(**schedule))


def test_the_gradient_is_that_of_the_slow_sum(base: Path) -> None:
    config = TrainConfig(
        algorithm=AlgorithmConfig(importance_cap=0),
        optimizer=OptimizerConfig(method=AdamWConfig(weight_decay=0.0), grad_clip=1e9),
    )
    groups = some_groups(5, count=2)
    learner = Learner(base, config, 0.8)
    metrics = learner.train_step(groups)
    model: Any = load_model(base, "float32").requires_grad_(True)
    total: Any = torch.zeros(())
    group = groups[0]
    mean = sum(r.reward for r in group) / len(group)
    for rollout in group:
        logits = model(input_ids=torch.tensor([rollout.prompt + rollout.output])).logits[0]
        logs = torch.log_softmax(logits / 0.8, -1)
        for place, token in enumerate(rollout.output):
            # At ratio 1 the loss's gradient is that of −A · ln p.
            total = total - (rollout.reward - mean) * logs[len(rollout.prompt) - 1 + place, token]
    (total / sum(len(r.output) for g in groups for r in g)).backward()
    norm = torch.sqrt(sum((p.grad**2).sum() for p in model.parameters()))
    assert metrics.grad_norm == pytest.approx(float(norm), rel=1e-3)
    assert (metrics.groups_used, metrics.groups_dropped) == (1, 1)
    assert (metrics.clip_low, metrics.clip_high) == (0.0, 0.0)
    assert metrics.kl == pytest.approx(0.0, abs=1e-6)


def test_a_teacher_alone_gives_every_token_the_gradient_of_the_divergence_from_it(base: Path, tmp_path: Path) -> None:
    """Of KL(policy ‖ teacher): (ln π − ln π_teacher)·∇ln π in the mean, whatever the rewards."""
    teacher = small_model(tmp_path / "teacher", seed=1)
    config = TrainConfig(
        algorithm=AlgorithmConfig(
            importance_cap=0, advantage="none", kl=KlConfig(coefficient=0.5, teacher=str(teacher))
        ),
        optimizer=OptimizerConfig(method=AdamWConfig(learning_rate=1e-2, weight_decay=0.0), grad_clip=1e9),
    )
    groups = some_groups(5, count=2)
    learner = Learner(base, config, 0.8)
    metrics = learner.train_step(groups)
    student: Any = load_model(base, "float32").requires_grad_(True)
    fixed: Any = load_model(teacher, "float32")
    total: Any = torch.zeros(())
    for rollout in (rollout for group in groups for rollout in group):
        read, made = torch.tensor([rollout.tokens]), torch.tensor(rollout.output)[:, None]
        logs, goal = (
            torch.log_softmax(model(input_ids=read).logits[0, len(rollout.prompt) - 1 : -1].double() / 0.8, -1)
            for model in (student, fixed)
        )
        logs, goal = logs.gather(1, made), goal.gather(1, made)
        total = total + ((logs - goal).detach() * logs).sum()
    (0.5 * total / sum(len(r.output) for g in groups for r in g)).backward()
    norm = torch.sqrt(sum((p.grad**2).sum() for p in student.parameters()))
    assert metrics.grad_norm == pytest.approx(float(norm), rel=1e-3)
    assert (metrics.groups_used, metrics.groups_dropped) == (2, 0)
    assert learner.train_step(groups).loss < metrics.loss, "nearer to the teacher"


def test_a_teacher_with_another_tokenizer_is_refused(base: Path, tmp_path: Path) -> None:
    save_byte_tokenizer(small_model(tmp_path / "teacher"), ("other",))
    algorithm = AlgorithmConfig(kl=KlConfig(coefficient=1.0, teacher=str(tmp_path / "teacher")))
    with pytest.raises(ConfigError, match="has another tokenizer than the policy"):
        Learner(base, TrainConfig(algorithm=algorithm), 1.0)


def test_training_raises_the_probability_of_what_was_rewarded(base: Path) -> None:
    learner = Learner(base, TrainConfig(optimizer=rate(1e-2, warmup_updates=0)), 1.0)
    policy, group = learner.policy, some_groups(2, count=2)[0]
    assert {one.reward for one in group} == {0.0, 1.0}

    @torch.no_grad()
    def preference() -> float:
        """Mean ln p of rewarded minus unrewarded outputs."""
        logps = [policy.logprobs(micro_batch(group, [one], policy.device), 1.0)[0] for one in range(len(group))]
        return sum(float(logp.mean()) * (2 * one.reward - 1) for one, logp in zip(group, logps, strict=True))

    first = preference()
    for _ in range(5):
        learner.train_step([group])
    assert preference() > first


def test_the_old_learner_is_gone_before_a_new_one_is_made() -> None:
    """Two at a time would take twice the memory."""
    made: list[weakref.ref[Any]] = []

    class Held:
        def __init__(self) -> None:
            assert all(one() is None for one in made)
            self.itself = self
            made.append(weakref.ref(self))

    make: Any = Held
    LearnerGroup(Ranks(), make).renew()
    assert len(made) == 2


def test_a_step_without_signal_changes_nothing_but_counts(base: Path) -> None:
    learner = Learner(base, CONFIG, 1.0)
    before = weights_of(learner)
    metrics = learner.train_step([some_groups(1)[-1]])
    assert same(before, weights_of(learner))
    assert (learner.step, metrics.groups_used, metrics.tokens) == (1, 0, 0)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_an_export_is_a_complete_folder_of_the_same_weights_of(base: Path, tmp_path: Path, dtype: str) -> None:
    learner = Learner(base, TrainConfig(), 1.0, dtype=dtype)
    learner.train_step(some_groups(4))
    folder = learner.policy.export(tmp_path / "policy")
    assert eos_ids(folder) == eos_ids(base)
    assert len(load_tokenizer(folder)) == len(load_tokenizer(base))
    again = Policy(folder).model.state_dict()
    kind = getattr(torch, dtype)
    for name, value in weights_of(learner).items():
        assert torch.equal(value.to(kind), again[name].to(kind)), name
    twice = learner.policy.export(tmp_path / "twice")
    for path in folder.iterdir():
        assert path.read_bytes() == (twice / path.name).read_bytes()


def test_the_learning_rate_warms_up_and_falls_to_a_tenth_at_the_end_of_the_run() -> None:
    config = TrainConfig(optimizer=rate(3.0, warmup_updates=3))
    assert [learning_rate(config, update) for update in range(5)] == [1.0, 2.0, 3.0, 3.0, 3.0]
    falling = rate(10.0, warmup_updates=0, decay_share=0.5)
    config = TrainConfig(steps=10, minibatches=2, optimizer=falling)
    rates = [learning_rate(config, update) for update in range(20)]
    assert rates[:10] == [10.0] * 10
    assert rates[10] == pytest.approx(9.1)
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] == pytest.approx(1.0)
    constant = config.model_copy(update={"optimizer": rate(10.0, warmup_updates=0, decay_share=0.0)})
    assert learning_rate(constant, 19) == 10.0
    config = TrainConfig(steps=9, optimizer=rate(10.0, warmup_updates=0, decay="cosine", decay_share=1.0))
    expected = [1 + 9 * (1 + math.cos(math.pi * (update + 1) / 9)) / 2 for update in range(9)]
    assert [learning_rate(config, update) for update in range(9)] == pytest.approx(expected)


def test_a_rollout_that_disagrees_beyond_a_bound_is_dropped_and_reported(base: Path) -> None:
    """The step is that of the others, by the same normaliser."""
    honest = some_groups(2, count=2)[0]
    file = Learner(base, CONFIG, 1.0)
    row = micro_batch(honest, range(len(honest)), file.policy.device)
    logps = torch.split(file.policy.logprobs(row, 1.0)[0].detach(), [len(one.output) for one in honest])
    known = [replace(one, logprobs=tuple(logp.tolist())) for one, logp in zip(honest, logps, strict=True)]
    wrong = tuple(value - 0.9 for value in known[1].logprobs)
    known[1] = replace(known[1], logprobs=wrong, source=Source("liar", "v", 0))
    algorithm = AlgorithmConfig(masks=(MaskConfig(),))
    gated, plain = (
        Learner(base, TrainConfig(algorithm=chosen, optimizer=rate(1e-3, warmup_updates=0)), 1.0)
        for chosen in (algorithm, AlgorithmConfig())
    )
    metrics = gated.train_step([tuple(known)])
    assert metrics.masked == pytest.approx(len(wrong) / metrics.tokens)
    assert {one.node: one.masked for one in metrics.mismatches} == {"liar": len(wrong), "": 0}
    assert plain.train_step([tuple(known)]).masked == 0.0
    assert not same(weights_of(gated), weights_of(plain))
