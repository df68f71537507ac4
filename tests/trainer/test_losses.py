"""The tensor losses against slow sums written from the formulas."""

import math
import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainer.advantages import advantages, select
from trainer.batch import micro_batches
from trainer.losses import clipped_tokens, importance_weights, kl_penalty, policy_loss, token_logprobs
from trainer.rollouts import Group, TrainRollout

LOGS = st.floats(-12, 0)


def slow_loss(logp: float, old: float, advantage: float, epsilon: float, delta: float) -> float:
    ratio = math.exp(logp - old)
    clipped = max(1 - epsilon, min(1 + epsilon, ratio))
    return -min(min(ratio, delta) * advantage, clipped * advantage)


@given(LOGS, LOGS, st.floats(-2, 2))
def test_policy_loss_is_the_formula(logp: float, old: float, advantage: float) -> None:
    x, y, a = (torch.tensor([value], dtype=torch.float64) for value in (logp, old, advantage))
    made = policy_loss(x, y, a, 0.2, 4.0)
    assert float(made) == pytest.approx(slow_loss(logp, old, advantage, 0.2, 4.0), rel=1e-9, abs=1e-12)


@given(LOGS, LOGS, st.floats(-2, 2).filter(lambda a: abs(a) > 1e-3))
def test_clipped_tokens_are_those_without_gradient(logp: float, old: float, advantage: float) -> None:
    ratio = math.exp(logp - old)
    if min(abs(ratio - edge) for edge in (0.8, 1.2, 4.0)) < 1e-6:
        return
    x = torch.tensor([logp], dtype=torch.float64, requires_grad=True)
    y, a = (torch.tensor([value], dtype=torch.float64) for value in (old, advantage))
    policy_loss(x, y, a, 0.2, 4.0).sum().backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None
    clipped = bool(clipped_tokens(x.detach(), y, a, 0.2, 4.0))
    assert clipped == (float(x.grad.abs()) == 0.0)


def test_two_sided_clipping_bounds_a_negative_advantage() -> None:
    huge = policy_loss(torch.tensor([0.0]), torch.tensor([-20.0]), torch.tensor([-1.0]), 0.2, 4.0)
    assert float(huge) == 4.0


def test_logprobs_and_entropy_of_a_softmax() -> None:
    dice = random.Random(1)
    logits = [[dice.gauss(0, 3) for _ in range(7)] for _ in range(5)]
    tokens = [dice.randrange(7) for _ in range(5)]
    logp, entropy = token_logprobs(torch.tensor(logits), torch.tensor(tokens), 0.7)
    for row, token, one, spread in zip(logits, tokens, logp.tolist(), entropy.tolist(), strict=True):
        weights = [math.exp(value / 0.7) for value in row]
        p = [weight / sum(weights) for weight in weights]
        assert one == pytest.approx(math.log(p[token]), rel=1e-4)
        assert spread == pytest.approx(-sum(x * math.log(x) for x in p), rel=1e-4)


def test_kl_is_zero_at_the_reference_and_never_negative() -> None:
    a = torch.linspace(-9, 0, 50)
    assert torch.equal(kl_penalty(a, a), torch.zeros(50))
    assert bool((kl_penalty(a, a.flip(0)) >= 0).all())


def test_importance_weights_are_capped_whatever_the_file_says() -> None:
    old = torch.tensor([-1.0, -5.0, -1.0, -1.0])
    file = torch.tensor([-1.0, -1.0, -3e38, 3e38])
    assert importance_weights(old, file, 2.0).tolist() == pytest.approx([1.0, math.exp(-4), 2.0, 0.0])


@given(st.lists(st.floats(-2, 2, width=32), min_size=1, max_size=16))
def test_advantages_are_centred(rewards: list[float]) -> None:
    made = advantages(rewards)
    assert len(made) == len(rewards)
    assert sum(made) == pytest.approx(0, abs=1e-9)
    if len(set(rewards)) == 1:
        assert made == [0.0] * len(rewards)


def test_groups_without_signal_are_dropped() -> None:
    def group(*rewards: float) -> Group:
        return tuple(TrainRollout((1,), (2, 3), reward) for reward in rewards)

    chosen = select([group(1, 1, 1), group(0, 1, 0, 1), group(0.1, 0.1), group()])
    assert (chosen.used, chosen.dropped) == (1, 3)
    assert [one.advantage for one in chosen.samples] == [-0.5, 0.5, -0.5, 0.5]


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 30)), min_size=1, max_size=30), st.integers(1, 200))
def test_micro_batches_hold_every_token_once(sizes: list[tuple[int, int]], budget: int) -> None:
    dice = random.Random(0)
    rows = [
        TrainRollout(
            tuple(dice.randrange(99) for _ in range(p)),
            tuple(dice.randrange(99) for _ in range(t)),
            0.0,
            advantage=float(i),
        )
        for i, (p, t) in enumerate(sizes)
    ]
    batches = micro_batches(rows, budget, torch.device("cpu"))
    assert sorted(place for batch in batches for place in batch.index) == list(range(len(rows)))
    for batch in batches:
        assert batch.tokens.numel() <= budget or len(batch.index) == 1
        outputs = [token for place in batch.index for token in rows[place].output]
        assert batch.targets.tolist() == outputs
        # Each target stands one column to the right of the row that predicts it.
        assert batch.tokens[batch.rows, batch.columns + 1].tolist() == outputs
        expected = [float(place) for place in batch.index for _ in rows[place].output]
        assert batch.advantages.tolist() == expected
