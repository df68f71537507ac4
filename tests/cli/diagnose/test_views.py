"""What status commands and `muster why` say, on states made by hand."""

from typing import Any

import pytest

from chain.indexer.records import Account, Lane, Node, Pool, Round, Seat, Slash, Step, Submission, Terms
from chain.indexer.state import State, group_number
from cli.diagnose.views import (
    MEANING,
    account_view,
    due,
    earnings,
    node_view,
    penalty_cause,
    pool_phase,
    pool_view,
    reason,
    seat_view,
    standing,
    waiting,
    why_text,
    why_view,
)
from protocol.verdict import Code, pack

NODE, OWNER = "0x" + "11" * 20, "0x" + "22" * 20
VALUES: dict[str, Any] = dict.fromkeys([name.rstrip("_") for name in Terms.__dataclass_fields__], 0)
VALUES |= {"rate": 10, "challengeWindow": 100, "configHash": bytes(32), "committee": 3, "jury": 5}


def make_state(*subs: Submission) -> State:
    state = State()
    state.pools[1] = Pool(1, OWNER, bytes(32), Terms.of(VALUES), 3600, 1, funded=10_000)
    state.nodes[NODE] = Node(NODE, OWNER, 500, pool=1)
    account = state.accounts[1, NODE] = Account(1, NODE, OWNER, member=True)
    for sub in subs:
        state.submissions[1, sub.sequence] = sub
        account.sequences.append(sub.sequence)
        state.pools[1].sequences.append(sub.sequence)
    return state


def make_sub(sequence: int = 0, **changes: int) -> Submission:
    sub = Submission(1, sequence, NODE, 0, sequence, 100, 4, bytes(32), bytes(32), 5, 1000, "0x")
    for name, value in changes.items():
        setattr(sub, name, value)
    return sub


def drawn(**changes: object) -> Round:
    turn = Round(0, seed_block=7, seed=b"s", seats=(4, 5, 6), drawn_time=1100, commit_until=1200, reveal_until=1300)
    for name, value in changes.items():
        setattr(turn, name, value)
    return turn


VOTES = {m: (pack([Code.REJECT_WEIGHTS if m else Code.ACCEPT]), bytes(32)) for m in range(3)}
COMMITS = {m: bytes(32) for m in range(3)}


@pytest.mark.parametrize(
    ("turn", "words"),
    [
        (Round(0, seed_block=7), "block 7 and the committee's draw since"),
        (drawn(commits={0: bytes(32)}), "votes, 1 of 3 in"),
        (drawn(commits=COMMITS, reveals={0: VOTES[0]}), "votes to be opened, 1 of 3 are"),
        (drawn(commits=COMMITS, reveals=VOTES), "somebody to settle the lane"),
        (drawn(commits=COMMITS, reveals=VOTES, round=1), "settle the lane (second committee)"),
    ],
)
def test_a_pending_file_says_what_it_waits_for(turn: Round, words: str) -> None:
    sub = make_sub()
    state = make_state(sub)
    lane = state.lanes[1, 0] = Lane(1, 0, 5, 5, [turn], [0])
    if turn.round == 0:
        assert "the pool's service to attest its upload since" in waiting(state, sub, 1250)
    lane.attested = 1
    assert words in waiting(state, sub, 1250)
    assert reason(state, sub) == ""


def test_a_decided_file_waits_for_its_window_then_for_a_keeper_then_for_nothing() -> None:
    sub = make_sub(code=int(Code.REJECT_WEIGHTS), final_time=2000, decided_time=1300)
    state = make_state(sub)
    state.lanes[1, 0] = Lane(1, 0, 5, 5, [drawn(reveals=VOTES, settled=True)], [0])
    assert "challenge window" in waiting(state, sub, 1999)
    assert "finalize" in waiting(state, sub, 2000)
    sub.finalized = True
    assert waiting(state, sub, 2001) == ""
    assert reason(state, sub) == "reject: weights (2 of 3 opened votes: accept, reject: weights, reject: weights)"
    sub.disputed, sub.finalized = True, False
    assert "a jury's verdict" in waiting(state, sub, 2001)


def test_pay_is_split_into_what_vests_what_can_be_claimed_and_what_is_pending() -> None:
    first = make_sub(0, code=int(Code.ACCEPT), final_time=2000, cumulative=100)
    second = make_sub(1, code=int(Code.ACCEPT), final_time=3000, cumulative=200)
    state = make_state(first, second, make_sub(2))
    account = state.accounts[1, NODE]
    account.units_awarded = account.units_earned = 200
    account.units_pending = 100
    view = account_view(state, account, 2500)
    amounts = {name: view[name] for name in ("earned", "pending", "vesting", "claimable", "paid")}
    assert amounts == {"earned": 2000, "pending": 1000, "vesting": 1000, "claimable": 1000, "paid": 0}
    account.units_spent = 100
    account.paid = 1000
    view = account_view(state, account, 3000)
    assert (view["vesting"], view["claimable"], view["paid"]) == (0, 1000, 1000)


def test_stake_can_be_withdrawn_only_outside_pools_and_after_the_lock() -> None:
    state = make_state()
    node = state.nodes[NODE]

    def free(now: int) -> int:
        view = node_view(state, NODE, now)
        assert view is not None
        return int(view["withdrawable"])

    assert free(10**9) == 0
    node.pool, node.release_at = 0, 5000
    assert (free(4999), free(5000)) == (0, 500)
    node.frozen = 1
    assert free(5000) == 0
    assert node_view(state, OWNER, 0) is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "member"),
        ({"member": False}, "left"),
        ({"frozen_at": 5}, "frozen until a rejection is final"),
        ({"removed": True}, "removed by the pool's owner"),
        ({"ejected": True, "eject_code": 4, "eject_sequence": 9}, "ejected (reject: sampling, submission 9)"),
    ],
)
def test_standing(changes: dict[str, int], words: str) -> None:
    assert standing(Account(1, NODE, OWNER, **({"member": True} | changes))) == words  # type: ignore[arg-type]


def test_fees_are_due_once_the_window_is_over_and_no_file_is_disputed() -> None:
    state = make_state(make_sub())
    turn = drawn(reveals=VOTES, settled=True, settled_time=1400, codes=pack([Code.ACCEPT]))
    state.lanes[1, 0] = Lane(1, 0, 5, 5, [turn], [0])
    assert list(due(state, [5], 1499)) == []
    assert list(due(state, [5], 1500)) == [(1, 0, 0)]
    assert list(due(state, [9], 1500)) == []
    turn.codes = pack([Code.DISPUTED])
    assert list(due(state, [5], 1500)) == []
    turn.codes = pack([Code.UNDECIDED])
    again = Round(1, seed_block=9, settled=True, settled_time=1450, codes=pack([Code.ACCEPT]))
    state.lanes[1, 0].rounds.append(again)
    assert list(due(state, [5], 1549)) == []
    assert list(due(state, [5], 1550)) == [(1, 0, 0)]
    turn.closed.add(1)
    assert list(due(state, [5], 1500)) == []


def test_a_seat_shows_its_votes_and_penalties() -> None:
    state = make_state(make_sub())
    state.lanes[1, 0] = Lane(1, 0, 5, 5, [drawn(reveals={1: VOTES[1]})], [0])
    state.slashes.append(Slash("seat", "5", 1, 0, 0, 7, 9, 1400, "0xt"))
    state.slashes.append(Slash("node", NODE, 1, 0, 3, 7, 9, 1400, "0xt"))
    seat = state.seats[5] = Seat(5, OWNER, NODE, 100, 1, penalised=7, groups=(1, group_number("qwen3")))
    view = seat_view(state, seat, 0)
    assert (view["groups"], view["pools"]) == (["pool 1", f"group {group_number('qwen3')}"], [1])
    assert (view["drawn"], view["voted"], [p["amount"] for p in view["penalties"]]) == (1, 1, [7])


@pytest.mark.parametrize(
    ("penalty", "words"),
    [
        ({"code": Code.REJECT_WEIGHTS, "opened": True}, "it accepted a file that was reject: weights"),
        ({"code": 0, "opened": True}, "a vote against the outcome"),
        ({"code": 0, "opened": False}, "no vote was opened in time"),
        ({"code": 0, "opened": None}, "a vote against the outcome, or none in time"),
    ],
)
def test_a_vote_that_was_wrong_and_one_that_was_late_are_told_apart(penalty: dict[str, Any], words: str) -> None:
    assert penalty_cause(penalty) == words


def test_earnings_are_said_in_hundredths_of_a_token() -> None:
    state = make_state(make_sub(code=Code.ACCEPT, decided_time=9000, final_time=9100, units=386_569_553_571))
    assert earnings(state, state.pools[1], 9500) == (
        "3865.70 tokens an hour, by the last hour of 1 working node (median)"
    )
    assert "unknown" in earnings(state, state.pools[1], 20_000)


def test_a_pool_says_what_it_is_doing() -> None:
    state = make_state()
    pool = state.pools[1]

    def words() -> str:
        view = pool_view(state, 1, 0)
        assert view is not None
        return pool_phase(view)

    assert words() == "waiting for its owner to publish policy step 0"
    pool.steps.append(Step(0, bytes(32), bytes(32), 1, 1, 1, ""))
    assert words() == "working on policy step 0"
    pool.status = "understaffed"
    assert words() == "understaffed: 0 of 11 seats judge pool 1, it takes no work"
    for number in range(11):
        state.seats[number] = Seat(number, OWNER, NODE, 100, 1, groups=(1,))
    assert "muster pool set-service --count-seats" in words()
    state.seats[0].left_epoch = 9
    assert words() == "understaffed: 10 of 11 seats judge pool 1, it takes no work"
    pool.status = "open"
    state.accounts[1, NODE].member = False
    assert words() == "waiting for nodes to join"
    pool.status = "closing"
    assert words() == "closing: no new work"
    assert pool_view(state, 2, 0) is None


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


def test_a_file_under_way_says_what_it_waits_for() -> None:
    said = told(code=0)
    assert "Not judged yet: waiting for somebody to settle the lane" in said
    assert "Outcome" not in said


@pytest.mark.parametrize("code", [Code.ACCEPT, Code.VOID, Code.LATE, Code.MALFORMED])
def test_a_file_earns_or_leaves_the_stake_alone(code: Code) -> None:
    said = told(code=code, decided_time=1500, final_time=1600)
    earned = "It earns 0.000001 tokens.\nThat is final."
    assert (earned if code.is_paid else "It is not paid; the stake is untouched.") in said
