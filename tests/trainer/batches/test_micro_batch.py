"""The tensors of a packed row against the samples they were made of."""

import random
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainer.batch import PackedLayout, TrainRollout, micro_batch

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
    assert batch.tokens[0, 5:16].tolist() == [*turns.prompt, 11, 12, 71, 72, 13, 14, 73, 15]
    assert batch.targets[own].tolist() == [11, 12, 13, 14, 15]
    assert batch.tokens[0][batch.rows[own]].tolist() == [turns.prompt[-1], 11, 72, 13, 73], "what is read before each"
    assert batch.tokens[0][batch.rows + 1].tolist() == batch.targets.tolist()


def test_a_dummy_has_one_token_and_no_outputs() -> None:
    batch = micro_batch([a_sample(0, 2, 3)], [], CPU)
    assert (batch.layout.tokens, batch.outputs) == (1, 0)


def test_one_sample_without_log_probabilities_leaves_every_row_without() -> None:
    samples = [a_sample(0, 2, 3), a_sample(1, 2, 3, logprobs=False)]
    assert micro_batch(samples, [0], CPU).sampled is None


def test_arrays_that_are_not_aligned_are_refused() -> None:
    batch = micro_batch([a_sample(0, 2, 3)], [0], CPU)
    for name in ("rows", "advantages", "sampled", "sequence"):
        with pytest.raises(ValueError, match=rf"{name} are \[2\], not aligned with \[3\] targets"):
            replace(batch, **{name: getattr(batch, name)[:2]})
    with pytest.raises(ValueError, match=r"layout says \[1, 7\]"):
        replace(batch, layout=PackedLayout([7]))


def test_a_sample_without_a_prompt_is_refused() -> None:
    with pytest.raises(ValueError, match="without a prompt"):
        micro_batch([a_sample(0, 0, 3)], [0], CPU)


@given(st.lists(st.integers(1, 200), min_size=1, max_size=40))
def test_attention_groups_hold_every_token_at_one_place(lengths: list[int]) -> None:
    layout = PackedLayout(sorted(lengths, reverse=True))
    groups = layout.groups
    assert sum(groups.sizes) == groups.packed_index.numel()
    assert groups.packed_index[groups.padded_index].tolist() == list(range(layout.tokens))
    assert groups.packed_index.numel() <= layout.tokens * 4 / 3 + 16 * len(lengths)
    assert layout.bounds.tolist()[-1] == layout.tokens


def test_a_row_without_sequences_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one sequence"):
        PackedLayout([])
