"""Properties of the plan over random lengths, and its waste on a long-tailed mix."""

import random
from collections import Counter
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainer.data.batch import PackedLayout, TrainRollout, WorkEstimate, idle_share, micro_batch, plan_rows


def quadratic(length: int) -> float:
    return length * (1 + length / 200)


@given(
    lengths=st.lists(st.integers(1, 300), max_size=60),
    capacity=st.integers(1, 400),
    ranks=st.integers(1, 7),
    together=st.booleans(),
)
def test_a_plan_trains_every_sequence_once_in_rows_that_fit_and_as_many_on_every_rank(
    lengths: list[int], capacity: int, ranks: int, together: bool
) -> None:
    plan = plan_rows(lengths, capacity, ranks, quadratic, together)
    assert plan == plan_rows(list(lengths), capacity, ranks, quadratic, together)
    assert Counter(place for rows in plan for row in rows for place in row) == Counter(range(len(lengths)))
    assert len(plan) == ranks
    assert all(any(rows) for rows in zip(*plan, strict=True)), "a round of dummies alone"
    for row in (row for rows in plan for row in rows):
        sizes = [lengths[place] for place in row]
        assert len(row) <= 1 or (together and sum(sizes) <= capacity)
        assert sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("seed", range(3))
def test_less_than_three_percent_is_wasted_on_a_long_tailed_mix(ranks: int, seed: int) -> None:
    dice = random.Random(seed)
    lengths = [min(16384, 1 + int(dice.lognormvariate(7.0, 1.2))) for _ in range(2048)]
    # As heavy in attention as a model of half a billion parameters.
    work = WorkEstimate(1e9, 9e4).of_sequence
    plan = plan_rows(lengths, 32768, ranks, work)
    assert idle_share(plan, lengths, work) < 0.03
    rows = sum(len(rows) for rows in plan)
    assert rows <= 1.03 * sum(lengths) / 32768 + ranks, "rows are not nearly full"


def test_idle_share_counts_ranks_that_wait() -> None:
    assert idle_share([[(0,)], [(1,)]], [10, 10], float) == 0.0
    assert idle_share([[(0,)], [(1,)]], [10, 5], float) == pytest.approx(0.25)
    assert idle_share([[], []], [], float) == 0.0


CPU = torch.device("cpu")


def a_sample(number: int, prompt: int, output: int, logprobs: bool = True) -> TrainRollout:
    dice = random.Random(number)
    tokens = tuple(dice.randrange(99) for _ in range(prompt + output))
    logs = tuple(-dice.random() for _ in range(output)) if logprobs else ()
    return TrainRollout(tokens[:prompt], tokens[prompt:], 0.0, logprobs=logs, advantage=float(number))


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 30)), min_size=1, max_size=12), st.randoms())
def test_a_row_holds_each_token_with_what_belongs_to_it(sizes: list[tuple[int, int]], dice: random.Random) -> None:
    samples = [a_sample(number, *size) for number, size in enumerate(sizes)]
    places = dice.sample(range(len(samples)), dice.randint(1, len(samples)))
    batch = micro_batch(samples, places, CPU)
    chosen = [samples[place] for place in places]
    outputs = [token for one in chosen for token in one.output]
    assert batch.tokens[0].tolist() == [token for one in chosen for token in one.prompt + one.output]
    assert batch.layout.positions[0].tolist() == [at for one in chosen for at in range(one.length)]
    assert batch.targets.tolist() == outputs
    # Each target stands right after the token whose hidden state predicts it.
    assert batch.tokens[0][batch.rows + 1].tolist() == outputs
    assert batch.advantages.tolist() == [float(place) for place in places for _ in samples[place].output]
    assert batch.sequence.tolist() == [number for number, one in enumerate(chosen) for _ in one.output]
    assert batch.sampled is not None
    assert batch.sampled.tolist() == pytest.approx([value for one in chosen for value in one.logprobs])


def test_what_was_inserted_between_turns_is_read_and_never_trained_on() -> None:
    turns = replace(a_sample(1, 3, 5), output=(11, 12, 13, 14, 15), inserted=((2, (71, 72)), (4, (73,))))
    batch = micro_batch([a_sample(0, 2, 3), turns, a_sample(2, 1, 4)], [0, 1, 2], CPU)
    own = batch.sequence == 1
    assert turns.length == 11
    assert batch.layout.lengths == (5, 11, 5)
    assert batch.layout.bounds.tolist() == [0, 5, 16, 21]
    assert PackedLayout([9, 5, 5, 2]).runs == [(1, 9), (2, 5), (1, 2)]
    assert batch.tokens[0, 5:16].tolist() == [*turns.prompt, 11, 12, 71, 72, 13, 14, 73, 15]
    assert batch.targets[own].tolist() == [11, 12, 13, 14, 15]
    assert batch.tokens[0][batch.rows[own]].tolist() == [turns.prompt[-1], 11, 72, 13, 73], "what is read before each"
    assert batch.tokens[0][batch.rows + 1].tolist() == batch.targets.tolist()


def test_a_dummy_has_no_outputs_missing_log_probabilities_drop_all_and_a_prompt_is_needed() -> None:
    dummy = micro_batch([a_sample(0, 2, 3)], [], CPU)
    assert (dummy.layout.tokens, dummy.targets.numel()) == (1, 0)
    samples = [a_sample(0, 2, 3), a_sample(1, 2, 3, logprobs=False)]
    assert micro_batch(samples, [0], CPU).sampled is None
    with pytest.raises(ValueError, match="without a prompt"):
        micro_batch([a_sample(0, 0, 3)], [0], CPU)
