"""A fee is asked for once it can be collected, and not before; a jury to which nobody comes is drawn."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chain.indexer.records import Lane, Pool, Round, Seat, Submission, Trial
from chain.indexer.state import State
from protocol.verdict import Code
from tests.chain.game import begin, terms, work
from tests.conftest import Deployed
from validator.duties import FeeCollection, Keeper
from validator.voting import drawn_committee

OWNER, VOTER, OTHER = ("0x" + digit * 40 for digit in "123")
SETTLED, WINDOW = 1000, 60


class FeesAsked:
    """The validator's tasks and contracts: which fees it would collect, and how long it may pause between two tries."""

    def __init__(self) -> None:
        self.fees: list[str] = []
        self.longest: set[float] = set()
        call = SimpleNamespace(send=None)
        court = SimpleNamespace(close_committee=lambda *place: call)
        self.voters = {VOTER: SimpleNamespace(court=court, juries=SimpleNamespace(close=lambda trial, juror: call))}
        self.tasks = self

    def run(self, key: Any, head: int, what: str, task: Any, quiet: bool, longest: float) -> None:
        self.fees.append(what)
        self.longest.add(longest)


def collection() -> tuple[FeesAsked, FeeCollection]:
    asked: Any = FeesAsked()
    publisher: Any = SimpleNamespace(publish=None)
    return asked, FeeCollection(asked, publisher)


def judged(**changes: Any) -> tuple[State, Lane, list[Submission]]:
    """A lane with one accepted file, two of its three members ours."""
    state = State(head=9)
    state.pools[1] = Pool(1, OWNER, bytes(32), terms(challengeWindow=WINDOW), 0, 0)
    state.seats = {seat: Seat(seat, OWNER, OTHER if seat == 5 else VOTER, 100, 0) for seat in (4, 5, 6)}
    file = Submission(1, 0, OWNER, 0, 0, 100, 4, bytes(32), bytes(32), 5, 0, "", code=int(Code.ACCEPT))
    file.decided_time, file.final_time = SETTLED, SETTLED + WINDOW
    for name, value in changes.items():
        setattr(file, name, value)
    turn = Round(0, seed_block=7, seats=(4, 5, 6), settled=True, settled_time=SETTLED)
    state.submissions[1, 0] = file
    return state, Lane(1, 0, [turn], [0]), [file]


@pytest.mark.parametrize("changes", [{}, {"finalized": True}], ids=["undisputed", "dispute is over"])
def test_no_fee_is_asked_for_within_the_challenge_window(changes: dict[str, Any]) -> None:
    """A dispute that was over early had every member of the committee ask every two seconds until the window was."""
    asked, fees, (state, lane, files) = *collection(), judged(**changes)
    for now in range(SETTLED, SETTLED + WINDOW):
        fees.collect_lane(state, lane, files, now)
    assert asked.fees == []
    assert not fees.closed
    fees.collect_lane(state, lane, files, SETTLED + WINDOW)
    assert asked.fees == ["lane-1-0-0 is closed"]
    lane.round.closed = {0, 1, 2}
    fees.collect_lane(state, lane, files, SETTLED + WINDOW)
    assert fees.closed == {(1, 0)}


def test_a_committee_is_closed_by_the_member_whose_turn_it_is_and_later_by_any() -> None:
    asked, fees, (state, lane, files) = *collection(), judged()
    lane.lane = 1  # the second member's turn, which is not ours
    fees.collect_lane(state, lane, files, SETTLED + WINDOW + 59)
    assert asked.fees == []
    assert not fees.closed
    fees.collect_lane(state, lane, files, SETTLED + WINDOW + 60)
    assert asked.fees == ["lane-1-1-0 is closed"]


def test_a_file_in_dispute_keeps_its_committee_waiting() -> None:
    asked, fees, (state, lane, files) = *collection(), judged(disputed=True)
    fees.collect_lane(state, lane, files, SETTLED + 9 * WINDOW)
    assert asked.fees == []


def test_what_cannot_be_collected_is_asked_for_ever_more_rarely() -> None:
    asked, fees, (state, lane, files) = *collection(), judged()
    fees.collect_lane(state, lane, files, SETTLED + WINDOW)
    trial = Trial(trial=1, pool=1, sequence=0, size=3, seed_block=7, seats=(4, 5, 6), settled=True)
    fees.collect_trial(state, trial, drawn_committee(state, trial))
    assert asked.fees[1:] == ["trial-1 seat 4 collects", "trial-1 seat 6 collects"], "a juror's waits for nothing"
    assert asked.longest == {60.0}


class Sent:
    """A keeper's tasks, done at once."""

    def run(self, key: Any, head: int, what: str, task: Any, **_: Any) -> None:
        task()


@pytest.mark.parametrize("epochs", [2, 3])
def test_a_jury_to_which_nobody_comes_is_drawn_while_it_can_be(
    deployed: Deployed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, epochs: int
) -> None:
    """In the third epoch, too, where no keeper ran in the second."""
    monkeypatch.setattr("validator.duties.random.uniform", lambda *_: 0.0)
    game = begin(deployed, tmp_path)
    _, node = game.node()
    (file,) = game.submit_lane(game.publish(), (node, work("file")))
    game.vote(0, {0: Code.ACCEPT})
    trial = game.suite.appeals.dispute(game.again(file)).send()
    tasks: Any = Sent()
    keeper, epoch_blocks = Keeper(game.suite, game.pool, tasks), game.suite.seats.epoch_blocks()
    seed_epoch = game.state.trials[trial].seed_block // epoch_blocks
    for epoch in (1, epochs):
        game.mine_to((seed_epoch + epoch) * epoch_blocks)
        state = game.state
        keeper.draw_or_dismiss(state, state.trials[trial], file, set())
        assert game.state.trials[trial].drawn is (epoch == epochs)


def test_a_keeper_forgets_what_was_due_an_hour_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing: Any = None
    tasks: Any = Sent()
    keeper, now = Keeper(nothing, 1, tasks), [1000.0]
    monkeypatch.setattr("validator.duties.time.monotonic", lambda: now[0])
    for key, later in (("a", 0.0), ("b", 3599.0), ("c", 2.0)):
        now[0] += later
        keeper._do(key, State(), "", lambda: None, 0.0)
    assert keeper._due == {"b": 4599.0, "c": 4601.0}
