"""`muster why`: every outcome has its plain words, its votes, its price and what can be done."""

import pytest

from chain.indexer.records import Lane
from cli.status.views import MEANING, why_text, why_view
from protocol.verdict import Code
from tests.cli.test_views import COMMITS, VOTES, drawn, make_state, make_sub


def told(now: int = 2000, **changes: int) -> str:
    sub = make_sub(**changes)
    state = make_state(sub)
    state.lanes[1, 0] = Lane(1, 0, 5, 6, [drawn(commits=COMMITS, reveals=VOTES)], [0], attested=1)
    return why_text(why_view(state, sub, now), ["toploc: mantissa_mean 1.5 (seat 5, 6)"])


def test_every_outcome_has_a_meaning() -> None:
    outcomes = set(Code) - {Code.NONE, Code.DISPUTED}
    assert outcomes == set(MEANING)
    assert len(set(MEANING.values())) == len(MEANING)


def test_a_refused_file_names_votes_findings_cost_and_the_way_out() -> None:
    said = told(code=Code.REJECT_WEIGHTS, decided_time=1500, final_time=2100, slashed=5 * 10**9)
    assert "Outcome: reject: weights: its proofs do not come from the pool's weights" in said
    assert "2 of 3 opened votes say so: seat 4 accept, seat 5 reject: weights, seat 6 reject: weights." in said
    assert "  toploc: mantissa_mean 1.5 (seat 5, 6)" in said
    assert "cost the node 5 tokens of its stake" in said
    assert "muster node dispute --pool 1 --file 0" in said
    late = told(now=2101, code=Code.REJECT_WEIGHTS, decided_time=1500, final_time=2100, finalized=True)
    assert late.endswith("That is final.")
    assert "dispute --pool" not in late


def test_an_accepted_file_says_what_it_earns() -> None:
    said = told(code=Code.ACCEPT, decided_time=1500, final_time=1600)
    assert "It earns 0.000001 tokens." in said
    assert said.endswith("That is final.")


def test_a_file_under_way_says_what_it_waits_for() -> None:
    said = told(code=0)
    assert "Not judged yet: waiting for somebody to settle the lane" in said
    assert "Outcome" not in said


@pytest.mark.parametrize("code", [Code.LATE, Code.VOID, Code.MALFORMED])
def test_an_unpaid_file_without_a_slash_leaves_the_stake_alone(code: Code) -> None:
    assert "It is not paid; the stake is untouched." in told(code=code, decided_time=1500, final_time=1600)
