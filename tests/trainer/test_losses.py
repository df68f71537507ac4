"""Log-probs of chosen tokens, and micro-batches that hold every token once."""

import math
import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainer.batch import micro_batches
from trainer.losses import token_logprobs
from trainer.rollouts import TrainRollout


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
