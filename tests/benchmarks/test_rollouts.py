"""Completions of a bare engine, as the validator's measurements see them."""

from typing import Any

from benchmarks.support.rollouts import BareContext, made_up_rollouts


def test_rollouts_without_an_environment_have_one_turn_and_no_replies() -> None:
    rollouts = made_up_rollouts()
    unknown: Any = None
    context = BareContext.of(unknown, unknown, 7, rollouts)
    assert context.audited == list(range(len(rollouts)))
    for row in rollouts:
        transcript = context.transcript(row)
        assert (transcript.sampled, transcript.inserted) == (row.output_tokens, ())
