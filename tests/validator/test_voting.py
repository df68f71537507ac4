"""How votes are sent and packed, when a fallback vote is due, and who votes."""

import dataclasses
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from chain.contracts import Committee
from chain.errors import ContractError
from chain.indexer.records import Lane, Panel, Pool, Round, Seat, Status
from chain.indexer.state import State
from protocol.verdict import BallotDocument, Code
from protocol.waits import wait_for
from tests.chain.game import Game, begin, terms, work
from tests.conftest import Deployed
from tests.validator.daemon_world import FAMILY
from tests.validator.scripted import ScriptedJudge
from tests.validator.tiny import facts, honest, work_of
from validator.ballots import Ballot, BallotStore
from validator.decide import last_to_commit, pools_of_ballots, settler, turn
from validator.judging.checks import not_judged
from validator.voting import Committees, LaneVote, Voting, fallback_due, fallback_honest, fallback_margin


@pytest.fixture
def game(deployed: Deployed, tmp_path: Path) -> Iterator[Game]:
    game = begin(deployed, tmp_path)
    _, node = game.node()
    game.publish()
    game.submit(node, 0, work("a"))
    game.mine_to(game.state.lanes[game.pool, 0].round.seed_block + 1)
    yield game
    deployed.chain.rpc("evm_setAutomine", True)


def ballots(game: Game, members: int = 3) -> list[Ballot]:
    """An accept of each of lane 0's committee; the first `members` have committed to it."""
    committee = game.suite.court.committee_of((game.pool, 0, 0))
    assert committee is not None
    out = []
    for member, seat in enumerate(committee.seats):
        suite = game.voters[seat]
        fields = int(Code.ACCEPT), b"v" * 32, b"s" * 32
        commitment = suite.court.ballot_hash((game.pool, 0, 0), suite.client.address, *fields)
        out.append(Ballot("lane", seat, suite.client.address, committee.seed, b"f" * 32, *fields, commitment))
        if member < members:
            suite.court.commit((game.pool, 0, 0), member, commitment).send()
    return out


def vote_on(game: Game) -> tuple[LaneVote, Lane]:
    lane, committee = game.state.lanes[game.pool, 0], game.suite.court.committee_of((game.pool, 0, 0))
    assert committee is not None
    return LaneVote(lane, committee, game.state.files_of(lane)), lane


def test_all_reveals_and_the_settlement_share_a_block(game: Game) -> None:
    cast = ballots(game)
    (vote, lane), chain = vote_on(game), game.deployed.chain
    chain.rpc("evm_setAutomine", False)
    with ThreadPoolExecutor(3) as pool:
        sent = [pool.submit(vote.reveal, game.voters[one.seat], member, one) for member, one in enumerate(cast)]
        wait_for("all reveals", lambda: int(chain.rpc("txpool_status")["pending"], 16) == 3, 60, poll=0.02)
        chain.mine()
        blocks = {one.result(timeout=60).block for one in sent}
    assert len(blocks) == 1
    assert lane.round.settled is False
    assert game.state.lanes[game.pool, 0].round.settled
    assert game.state.submissions[game.pool, 0].status is Status.ACCEPTED


def test_a_member_whose_turn_it_is_does_not_wait_long_for_silent_others(game: Game) -> None:
    cast = ballots(game)
    vote, _ = vote_on(game)
    mine, started = turn(0, 3), time.monotonic()
    vote.reveal(game.voters[cast[mine].seat], mine, cast[mine])
    assert time.monotonic() - started < 30
    current = game.state.lanes[game.pool, 0].round
    assert set(current.reveals) == {mine}
    assert not current.settled


def test_the_last_to_commit_votes_at_once_and_another_members_reveal_settles(game: Game) -> None:
    cast = ballots(game, members=1)
    vote, _ = vote_on(game)
    assert not last_to_commit(vote.current, 1)
    with pytest.raises(ContractError, match="RevealNotOpen") as refused:
        vote.commit_and_reveal(game.voters[cast[1].seat], 1, cast[1])
    assert not refused.value.tx_hash, "nothing was sent that others could copy"
    vote.commit(game.voters[cast[2].seat], 2, cast[2])
    vote, lane = vote_on(game)
    assert last_to_commit(vote.current, 1)
    vote.commit_and_reveal(game.voters[cast[1].seat], 1, cast[1])
    vote, lane = vote_on(game)
    assert set(lane.round.reveals) == {1}
    assert [settler(lane.round, number) for number in range(4)] == [0, 2, 0, 2]
    for member in (2, 0):
        vote.reveal(game.voters[cast[member].seat], member, cast[member])
    assert game.state.lanes[game.pool, 0].round.settled
    assert game.state.submissions[game.pool, 0].status is Status.ACCEPTED


UNTIL = 1000


def pool(family: int = FAMILY) -> Pool:
    return Pool(7, "0x", b"", terms(**{"group": family}), 0, 0)


def drawn(**changes: object) -> Round:
    panel = Round(0, seed_block=1, seats=(4, 5, 6), drawn_time=UNTIL - 100, commit_until=UNTIL, reveal_until=2000)
    return dataclasses.replace(panel, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("window", "block_seconds", "margin"),
    [(3600, 4, 360), (60, 4, 24), (25, 1, 6), (30, 4, 15), (1, 1, 0)],
)
def test_the_margin_follows_from_window_and_block_time(window: int, block_seconds: int, margin: int) -> None:
    """A tenth, where that is more than six blocks; never more than half."""
    assert fallback_margin(window, block_seconds) == margin


@pytest.mark.parametrize(
    ("of", "panel", "now", "always", "due"),
    [
        (pool(), drawn(), UNTIL - 11, False, False),
        (pool(), drawn(), UNTIL - 10, False, True),
        (pool(), drawn(), UNTIL - 1, False, True),
        (pool(), drawn(), UNTIL, False, False),
        (pool(), drawn(seats=()), UNTIL - 1, False, False),  # nobody drew it: silence is free
        (pool(), drawn(settled=True), UNTIL - 1, False, False),
        (pool(0), drawn(), UNTIL - 1, False, False),  # chosen by its number
        (pool(7), drawn(), UNTIL - 1, False, False),  # which is how the chain writes it
        (pool(7), drawn(), UNTIL - 10, True, True),  # a challenge is answered in every pool
        (pool(7), drawn(), UNTIL - 11, True, False),
        (pool(7), drawn(seats=()), UNTIL - 1, True, False),
    ],
)
def test_an_answer_is_due_in_a_familys_pool_shortly_before_the_commits_end(
    of: Pool, panel: Round, now: int, always: bool, due: bool
) -> None:
    assert fallback_due(of, panel, now, 1, always) is due


@pytest.mark.parametrize(
    ("lacking", "needs_bytes", "honest"),
    [
        (("no source", ""), False, True),  # a committee, also of what it had and did not judge
        (("no source",), True, True),  # a jury of what it could not get
        (("",), True, False),  # of what was shown to it
        ((), True, True),  # all was judged after all
    ],
)
def test_a_jury_calls_unavailable_only_what_it_could_not_get(
    lacking: tuple[str, ...], needs_bytes: bool, honest: bool
) -> None:
    assert fallback_honest(lacking, needs_bytes) is honest


def test_a_verdict_on_what_was_not_judged_says_why() -> None:
    submitted = facts(work_of(), honest(), sequence=1)
    judged = ScriptedJudge()(dataclasses.replace(submitted, sequence=0), b"bytes")
    document = BallotDocument("lane-1-0-0", "73" * 32, (judged, not_judged(submitted, b"c" * 32, "it is too slow")))
    again = BallotDocument.parse(document.canonical(), document.digest)
    assert again.on(0) == judged
    assert again.on(1).code is Code.UNAVAILABLE
    assert again.on(1).sha256 == submitted.commitment.sha256.hex()
    assert again.on(1).config_hash == (b"c" * 32).hex()
    assert [finding.note for finding in again.on(1).findings] == ["it is too slow"]


PLACE, FIRST = (1, 2, 0), Committee((1,), ("0x",), bytes(32))


def forecaster() -> MagicMock:
    """A contract that forecasts a committee of the seat whose number is that of the question."""
    contract = MagicMock()
    contract.committee_of.side_effect = (Committee((number,), ("0x",), bytes(32)) for number in range(1, 9))
    return contract


def test_a_forecast_is_asked_for_once_a_block() -> None:
    contract, state, panel = forecaster(), State(head=10), Panel(seed_block=9)
    committees = Committees(contract)
    assert [committees.of(state, panel, PLACE) for _ in range(3)] == [FIRST] * 3
    other = committees.of(state, panel, (1, 3, 0))
    assert other is not None
    assert other.seats == (2,), "another lane's is its own"
    for count, state in ((3, State(head=11)), (4, State(head=11, generation=1))):
        committees.of(state, panel, PLACE)
        committees.of(state, panel, PLACE)
        assert contract.committee_of.call_count == count


def test_what_is_drawn_or_too_early_is_not_asked_for_and_a_refusal_is_no_committee() -> None:
    contract, state = forecaster(), State(head=10)
    committees = Committees(contract)
    assert committees.of(state, Panel(seed_block=11), PLACE) is None
    assert committees.of(state, Panel(seed_block=0), PLACE) is None
    state.seats[7] = Seat(7, "0xo", "0x7", 1, 0)
    found = committees.of(state, Panel(seed_block=9, seats=(7,), seed=b"s"), PLACE)
    assert found == Committee((7,), ("0x7",), b"s")
    contract.committee_of.assert_not_called()
    contract.committee_of.side_effect = ContractError("Court.committeeOf", b"")
    assert committees.of(state, Panel(seed_block=9), PLACE) is None


def test_a_vote_is_revealed_by_the_key_that_committed_it_after_the_seat_named_another(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = BallotStore(tmp_path)
    store.keep(Ballot("lane-7-0-0", 4, "0xold", b"s" * 32, b"f" * 32, 1, b"v" * 32, b"s" * 32, b"c" * 32))
    current = drawn(commits={0: b"c" * 32}, commit_until=UNTIL)
    vote: Any = SimpleNamespace(
        task_key=("lane-7-0-0", b"s" * 32, b"f" * 32),
        committee=Committee((4,), ("0xnew",), b"s" * 32),
        current=current,
        reveal=MagicMock(),
    )

    def advance(*keys: str) -> list[tuple[object, ...]]:
        voters, started = {key: MagicMock(name=key) for key in keys}, list[tuple[object, ...]]()

        def run(key: tuple[object, ...], head: int, what: str, cast: Callable[[], object]) -> None:
            started.append(key)
            cast()

        tasks = SimpleNamespace(run=run)
        shared: Any = SimpleNamespace(
            voters=voters, chain=MagicMock(), ballots=store, queue=None, tasks=tasks, verdicts=None
        )
        vote.reveal.reset_mock()
        Voting(shared, None, MagicMock()).advance(State(head=9), pool(), vote, UNTIL + 1)
        assert [call.args[0] for call in vote.reveal.call_args_list] == [voters.get("0xold")] * len(started)
        return started

    assert advance("0xold") == advance("0xold", "0xnew") == [("lane-7-0-0", 4, "reveal")]
    assert "CANNOT" not in caplog.text
    assert advance("0xnew") == []
    assert "by the key 0xold, which alone can reveal it" in caplog.text
    assert store.ready("lane-7-0-0", 4, b"s" * 32, b"f" * 32, "0xnew") is None, "another key votes anew"
    known = State(pools={7: pool()})
    assert pools_of_ballots(known, store.cast_by({"0xold"})) == {7}, "also after a restart"
    trial: Any = SimpleNamespace(pool=7)
    assert pools_of_ballots(State(pools=known.pools, trials={3: trial}), ["trial-3", "trial-4"]) == {7}
    assert pools_of_ballots(State(), store.cast_by({"0xold"})) == set()
    assert store.cast_by({"0x"}) == set()
