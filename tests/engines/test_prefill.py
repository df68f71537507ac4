"""How the verifier's sequences are divided into passes."""

from hypothesis import given
from hypothesis import strategies as st

from engines.prefill import PREFILL_TOKENS, Sequences, plan_passes

LENGTHS = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 900)), min_size=1, max_size=60)


def made(lengths: list[tuple[int, int]]) -> Sequences:
    """Groups of up to four samples of one prompt each."""
    return [((at // 4 + 1,) * (300 * prompt), (7,) * output) for at, (prompt, output) in enumerate(lengths)]


def computed(sequences: Sequences, plan: list[list[int]], shared: bool) -> int:
    """Tokens that the passes of a plan compute, padding included."""
    total = 0
    for part in plan:
        prompts, outputs = zip(*(sequences[at] for at in part), strict=True)
        if shared:
            total += len(set(prompts)) * max(map(len, prompts)) + len(part) * max(map(len, outputs))
        else:
            total += len(part) * max(len(p) + len(o) for p, o in zip(prompts, outputs, strict=True))
    return total


@given(LENGTHS, st.integers(1, 20), st.booleans())
def test_every_sequence_is_in_one_pass_and_no_pass_is_too_large(
    lengths: list[tuple[int, int]], most: int, shared: bool
) -> None:
    assert plan_passes([], [], most, shared) == []
    sequences = made(lengths)
    plan = plan_passes(sequences, range(len(sequences)), most, shared)
    assert sorted(at for part in plan for at in part) == list(range(len(sequences)))
    for part in plan:
        assert len(part) <= most
        assert len(part) == 1 or max(len(sequences[at][1]) for at in part) * len(part) <= PREFILL_TOKENS
        prompts = {sequences[at][0] for at in part}
        if shared and len(prompts) > 1 and len(part) > 1:
            assert len(prompts) * max(map(len, prompts)) <= PREFILL_TOKENS


def test_short_outputs_do_not_pay_for_a_long_one() -> None:
    sequences = [((at // 8,) * 10, (7,) * (60 if at % 8 == 0 else 4)) for at in range(128)]
    plan = plan_passes(sequences, range(128), 64, shared=True)
    assert computed(sequences, plan, shared=True) < 2000, "all of them padded to 60 are 7,680 tokens"


def test_samples_of_a_long_prompt_stay_together() -> None:
    sequences = [((at % 8,) * 2000, (7,) * (10 + at // 8)) for at in range(64)]
    plan = plan_passes(sequences, range(64), 16, shared=True)
    assert [len({sequences[at][0] for at in part}) for part in plan] == [2] * 4
