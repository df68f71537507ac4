"""A validator with collaborators of the test's own, on a real chain: from a submitted file to the fee, in one pool or
several."""

import json
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from chain.contracts import DRAW_REACH
from protocol.errors import IntegrityError
from protocol.verdict import BallotDocument, Code
from tests.validator.daemon_world import ValidatorWorld, second_pool, turns, with_file
from validator.duties import PoolDuties
from validator.pools import pools_to_serve


def test_a_file_is_judged_voted_on_settled_published_and_paid_for(world: ValidatorWorld) -> None:
    validator, game = world.start(), world.game
    validator.turn()
    assert not list((world.folder / "ballots").iterdir()), "nobody knows its committee"
    world.drawable()
    turns(validator, lambda: world.lane.round.settled)
    assert world.file.code == Code.ACCEPT
    assert len(world.lane.round.reveals) == 3
    assert world.judge.sequences == [0], "judged once for all seats"
    turns(validator, lambda: len(world.service.documents) == 1)
    ((_, digest), *others) = world.lane.round.reveals.values()
    assert all(other == digest for _, other in others)
    assert BallotDocument.parse(world.service.documents[0], digest).on(0).code is Code.ACCEPT
    game.deployed.chain.later(61)
    turns(validator, lambda: len(world.lane.round.closed) == 3)
    assert sum(seat.earned for seat in game.state.seats.values()) == 3 * game.state.pools[game.pool].terms.fee


def test_the_last_to_commit_commits_and_shows_its_vote_in_one_transaction(world: ValidatorWorld) -> None:
    members = world.drawable()
    first = world.start(*members[:2])
    turns(first, lambda: len(world.lane.round.commits) == 2)
    world.stop()
    last = world.start(members[2])
    turns(last, lambda: len(world.service.documents) == 1)
    assert world.lane.round.commits[2] == b"", "it never sent a commitment"
    assert list(world.lane.round.reveals) == [2]
    world.stop()
    turns(world.start(), lambda: world.lane.round.settled)
    assert world.file.code == Code.ACCEPT


def test_one_process_judges_for_all_pools_of_its_seats_also_for_those_that_come_later(world: ValidatorWorld) -> None:
    validator, game = world.start(), world.game
    turns(validator, lambda: world.opened == [("http://configured", False)])
    world.drawable()
    turns(validator, lambda: world.lane.round.drawn)
    other = second_pool(world)
    assert game.state.pools[other.pool].status == "understaffed"
    turns(validator, lambda: game.state.pools[other.pool].status == "open")
    turns(validator, lambda: ("http://announced", True) in world.opened)
    with_file(other)
    lanes = [(game.pool, 0), (other.pool, 0)]
    turns(validator, lambda: all(game.state.lanes[place].round.settled for place in lanes))
    assert [game.state.submissions[place].code for place in lanes] == [Code.ACCEPT] * 2
    assert sorted(world.judge.sequences) == [0, 0], "one file of each pool, each judged once"
    published = {f"lane-{pool}-{lane}-0" for pool, lane in lanes}
    turns(validator, lambda: {json.loads(one)["where"] for one in world.service.documents} == published)


@pytest.mark.parametrize("url", ["http://gone", ""])
def test_a_pool_that_cannot_be_served_is_said_loudly_and_nothing_is_voted_there(
    url: str, world: ValidatorWorld, caplog: pytest.LogCaptureFixture
) -> None:
    validator, game = world.start(), world.game
    turns(validator, lambda: world.opened)
    world.drawable()
    turns(validator, lambda: world.lane.round.drawn)
    world.unreachable = {game.pool + 1}
    other = second_pool(world, url)
    game.suite.pools.review_seats(other.pool).send()
    with_file(other)
    said = "http://gone does not answer" if url else "its owner announced no service"
    turns(validator, lambda: any(f"pool {other.pool}, and it CANNOT BE SERVED: {said}" in m for m in caplog.messages))
    turns(validator, lambda: any(f"CANNOT SERVE pool {other.pool}" in beat.phase for beat in world.service.beats))
    turns(validator, lambda: world.lane.round.settled)
    assert world.file.code == Code.ACCEPT, "the other pool is judged all the same"
    assert not game.state.lanes[other.pool, 0].round.commits
    if url:
        world.unreachable = set()
        turns(validator, lambda: game.state.lanes[other.pool, 0].round.settled)
        assert game.state.submissions[other.pool, 0].code == Code.ACCEPT


def test_a_pool_is_served_until_no_draw_can_reach_a_seat_that_opted_out(world: ValidatorWorld) -> None:
    game = world.game
    voters = {suite.client.address: suite for suite in game.voters.values()}
    assert pools_to_serve(game.state, voters, 0) == {game.pool}
    for seat in game.voters:
        game.validator.seats.opt_out(seat, game.pool).send()
    last = max(game.state.seats[seat].left_groups[game.pool] for seat in game.voters)
    assert pools_to_serve(game.state, voters, last + DRAW_REACH) == {game.pool}
    assert pools_to_serve(game.state, voters, last + DRAW_REACH + 1) == set()
    assert pools_to_serve(game.state, {"0x": None}, 0) == set()


def test_ballots_go_once_their_round_is_final_and_not_before(world: ValidatorWorld) -> None:
    validator, game, ballots = world.start(), world.game, world.folder / "ballots"
    world.drawable()
    turns(validator, lambda: world.lane.round.settled)

    def sweep() -> list[str]:
        for _ in range(2):
            validator._sweep_at = 0.0
            validator.turn()
        return [path.name for path in ballots.glob("*.json")]

    assert len(sweep()) == 3, "a reorganisation may undo what can still be disputed"
    game.deployed.chain.later(game.state.pools[game.pool].terms.challengeWindow + 1)
    assert sweep() == []


@pytest.mark.parametrize("failure", [IntegrityError("something is damaged", "mend it"), OSError(28, "no space left")])
def test_a_lane_that_fails_holds_up_no_other(failure: Exception) -> None:
    advanced: list[int] = []

    class OneFails(PoolDuties):
        def _advance_lane(self, state: Any, pool: Any, lane: Any, *_: Any) -> None:
            if lane.lane == 0:
                raise failure
            advanced.append(lane.lane)

    duties = OneFails(MagicMock(voters={"0x": MagicMock()}), 1, None)
    lanes = {(1, number): SimpleNamespace(lane=number) for number in range(3)}
    pool = SimpleNamespace(pool=1, status="open", refused=())
    state: Any = SimpleNamespace(lanes=lanes, seats={}, trials={}, disputes={}, canaries={}, pools={1: pool})
    assert duties.advance(state, 0) is None
    assert advanced == [1, 2]
    state.pools = {}
    assert duties.advance(state, 0) is None, "a reorganisation has undone the pool"
    duties.close()
