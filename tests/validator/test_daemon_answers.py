"""What pools of a family cost seats that cannot judge them: nothing. On a real chain, amounts counted."""

import json

import pytest

from chain.indexer.records import Lane, Trial
from chain.indexer.state import State
from protocol.errors import UnreachableError
from protocol.verdict import Code
from tests.chain.game import FEE, Game, work
from tests.validator.daemon_world import FAMILY, ValidatorWorld, second_pool, turns, with_file
from validator.config import UNSERVED

WITHHELD = 200_000_000  # `withheldPenalty` of a local chain, in base units
WINDOW = 1200  # seconds for commits: the answers' time is a tenth of it, enough for a slow machine


def open_pool(world: ValidatorWorld, family: int, **windows: int) -> Game:
    windows = windows or {"commitWindow": WINDOW, "revealWindow": 100}
    other = second_pool(world, family=family, changes={"drawBlocks": 20, **windows})
    other.suite.pools.review_seats(other.pool).send()
    return other


def draw(game: Game, lane: int = 0) -> Lane:
    game.draw(lane)
    return game.state.lanes[game.pool, lane]


def to_the_answers(game: Game, commit_until: int) -> None:
    """Chain time shortly before the commits' end."""
    game.deployed.chain.later(commit_until - game.suite.client.now() - WINDOW // 11)


def lost(state: State) -> int:
    return sum(seat.penalised for seat in state.seats.values())


def fees(game: Game) -> int:
    """What the pool has paid to seats' owners; another pool's lane may be paid at any moment."""
    paid = game.state.paid.items()
    return sum(amount for (kind, _, pool), amount in paid if (kind, pool) == ("fee", game.pool))


def test_a_familys_pool_that_nobody_can_fetch_costs_the_drawn_seats_nothing(
    world: ValidatorWorld, caplog: pytest.LogCaptureFixture
) -> None:
    other = open_pool(world, FAMILY)
    world.unreachable, place = {other.pool}, (other.pool, 0)
    with_file(other)
    commit_until = draw(other).round.commit_until
    drawn = [other.state.seats[seat].voter for seat in other.state.lanes[place].round.seats]
    validator, why = world.start(*drawn[:2]), "http://announced does not answer"
    turns(validator, lambda: any(f"pool {other.pool}, and it CANNOT BE SERVED: {why}" in m for m in caplog.messages))
    assert not other.state.lanes[place].round.commits, "it tries until shortly before the end"
    to_the_answers(other, commit_until)
    turns(validator, lambda: len(other.state.lanes[place].round.commits) == 2)
    world.stop()
    hidden, again = dict(other.state.lanes[place].round.commits), world.start()
    turns(again, lambda: other.state.lanes[place].round.settled)
    assert hidden.items() <= other.state.lanes[place].round.commits.items()
    assert len(other.state.lanes[place].round.reveals) == 3, "a killed process shows the answers that it committed"
    assert other.state.submissions[place].code == Code.UNAVAILABLE
    assert any(f"`unavailable` on files 0 of pool {other.pool}" in m and why in m for m in caplog.messages)
    assert why in json.loads((world.folder / UNSERVED).read_bytes())[str(other.pool)]
    other.deployed.chain.later(61)
    turns(again, lambda: len(other.state.lanes[place].round.closed) == 3)
    assert lost(other.state) == 0
    assert fees(other) == 3 * FEE // 4


def test_in_a_pool_that_was_chosen_by_its_number_silence_costs_what_it_did(world: ValidatorWorld) -> None:
    other = open_pool(world, 0)
    world.unreachable, place = {other.pool}, (other.pool, 0)
    with_file(other)
    commit_until, validator = draw(other).round.commit_until, world.start()
    turns(validator, lambda: world.opened)
    to_the_answers(other, commit_until)
    for _ in range(20):
        validator.turn()
    assert not other.state.lanes[place].round.commits
    other.deployed.chain.later(WINDOW)
    turns(validator, lambda: other.state.lanes[place].rounds[0].settled)
    assert lost(other.state) == 3 * WITHHELD


def test_what_was_judged_keeps_its_verdict_and_a_served_lane_is_judged_as_ever(world: ValidatorWorld) -> None:
    other = open_pool(world, FAMILY)
    _, node = other.node()
    other.publish()
    gone, _ = other.submit_lane(0, (node, work("gone")), (node, work("here")))
    world.objects.withheld[gone.sha256] = [UnreachableError("nobody answers for it", "start the storage")] * 99_999
    other.mine_to(other.state.lanes[other.pool, 0].round.seed_block + 1)
    commit_until = draw(other).round.commit_until
    validator = world.start()
    turns(validator, lambda: 1 in world.judge.sequences)
    assert not other.state.lanes[other.pool, 0].round.commits
    to_the_answers(other, commit_until)
    turns(validator, lambda: other.state.lanes[other.pool, 0].round.settled)
    assert [other.state.submissions[other.pool, n].code for n in (0, 1)] == [Code.UNAVAILABLE, Code.ACCEPT]
    turns(validator, lambda: f"CANNOT SERVE pool {other.pool}" in world.service.beats[-1].phase)
    other.submit(node, 0, work("next"))
    other.mine_to(other.state.lanes[other.pool, 1].round.seed_block + 1)
    turns(validator, lambda: other.state.lanes[other.pool, 1].round.settled)
    assert other.state.submissions[other.pool, 16].code == Code.ACCEPT
    turns(validator, lambda: world.service.beats[-1].phase == "watching")
    other.deployed.chain.later(61)
    turns(validator, lambda: all(len(other.state.lanes[other.pool, n].round.closed) == 3 for n in (0, 1)))
    assert lost(other.state) == 0
    assert fees(other) == 3 * (FEE // 4 + FEE + FEE)


def test_a_file_that_is_too_slow_to_judge_is_answered_too(world: ValidatorWorld) -> None:
    other = open_pool(world, FAMILY)
    with_file(other)
    commit_until = draw(other).round.commit_until
    world.judge.gate.clear()
    validator = world.start()
    turns(validator, lambda: world.judge.sequences)
    to_the_answers(other, commit_until)
    turns(validator, lambda: other.state.lanes[other.pool, 0].round.settled)
    world.judge.gate.set()
    assert other.state.submissions[other.pool, 0].code == Code.UNAVAILABLE
    assert lost(other.state) == 0


def jury(game: Game, code: Code) -> Trial:
    """A jury of a file that its committee gave `code`, drawn."""
    _, node = game.node()
    game.publish()
    file = game.submit(node, 0, work("tried"))
    game.vote(0, {0: code})
    trial = game.suite.appeals.dispute(game.state.submissions[game.pool, file.sequence]).send()
    game.draw_jury(trial)
    return game.state.trials[trial]


@pytest.mark.parametrize("code", [Code.MALFORMED, Code.ACCEPT])
def test_a_jury_that_cannot_get_the_file_answers_and_a_second_one_judges(code: Code, world: ValidatorWorld) -> None:
    other = open_pool(world, FAMILY, juryCommitWindow=WINDOW, juryRevealWindow=30)
    world.unreachable = {other.pool}
    trial = jury(other, code)
    validator = world.start()
    turns(validator, lambda: world.opened)
    to_the_answers(other, trial.commit_until)
    for _ in range(20):
        validator.turn()
    turns(validator, lambda: len(other.state.trials[trial.trial].commits) == 5)
    turns(validator, lambda: other.state.trials[trial.trial].next)
    assert {vote for vote, _ in other.state.trials[trial.trial].reveals.values()} == {int(Code.UNAVAILABLE)}
    assert lost(other.state) == 0
