"""Reveals and the settlement on a real chain: in one block where all votes are known, never in the way otherwise."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from chain.errors import ContractError
from chain.indexer.records import Lane, Status
from protocol.verdict import Code
from tests.chain.game import Game, begin, work
from tests.conftest import Deployed
from validator.ballots import Ballot
from validator.rounds import last_to_commit, settler, turn
from validator.voting import LaneVote


@pytest.fixture
def game(deployed: Deployed, tmp_path: Path) -> Iterator[Game]:
    game = begin(deployed, tmp_path)
    _, node = game.node()
    game.publish()
    game.submit(node, 0, work("a"))
    game.attest(0)
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
    lane = game.state.lanes[game.pool, 0]
    return LaneVote(lane, lane.round, game.state.files_of(lane)), lane


def test_all_reveals_and_the_settlement_share_a_block(game: Game) -> None:
    cast = ballots(game)
    vote, lane = vote_on(game)
    game.deployed.chain.rpc("evm_setAutomine", False)
    with ThreadPoolExecutor(3) as pool:
        sent = [pool.submit(vote.reveal, game.voters[one.seat], member, one) for member, one in enumerate(cast)]
        deadline = time.monotonic() + 60
        while int(game.deployed.chain.rpc("txpool_status")["pending"], 16) < 3 and time.monotonic() < deadline:
            time.sleep(0.02)
        game.deployed.chain.mine()
        blocks = {one.result(timeout=60).block for one in sent}
    assert len(blocks) == 1
    assert lane.round.settled is False
    assert game.state.lanes[game.pool, 0].round.settled
    assert game.state.submissions[game.pool, 0].status is Status.ACCEPTED


def test_a_member_whose_turn_it_is_does_not_wait_long_for_silent_others(game: Game) -> None:
    cast = ballots(game)
    vote, _ = vote_on(game)
    mine = turn(0, 3)
    started = time.monotonic()
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


def test_before_all_have_committed_a_reveal_settles_nothing(game: Game) -> None:
    cast = ballots(game, members=2)
    game.deployed.chain.later(31)
    vote, _ = vote_on(game)
    for member, one in enumerate(cast[:2]):
        vote.reveal(game.voters[one.seat], member, one)
    current = game.state.lanes[game.pool, 0].round
    assert set(current.reveals) == {0, 1}
    assert not current.settled
    # Commits are over and all who committed have revealed: nobody has to wait for the reveal window.
    game.suite.court.settle((game.pool, 0, 0), game.state.files_of(game.state.lanes[game.pool, 0])).send()
    assert game.state.submissions[game.pool, 0].status is Status.ACCEPTED
