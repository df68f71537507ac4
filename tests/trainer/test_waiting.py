"""Whatever the owner's process waits for, its log says so."""

import logging
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from chain.indexer.records import Account, FileNumbers, Pool, Step
from chain.indexer.state import State
from protocol.errors import IntegrityError, UnreachableError
from protocol.waits import WAITS, wait_for
from tests.trainer.world import NODE, OWNER, STRANGER, TERMS, TrainersWorld, start
from trainer.data.waiting import StallTimeout, Waiting, count_nodes
from trainer.exits import EXIT_DONE, EXIT_STOPPED
from trainer.train import Trainer


@pytest.fixture(autouse=True)
def every_word(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="muster.trainer")


def test_a_wait_is_logged_with_its_reason_and_ever_more_rarely(caplog: pytest.LogCaptureFixture) -> None:
    now, lines = [0.0], list[int]()  # how many lines there are after each second

    def second() -> None:
        lines.append(len(caplog.messages))
        now[0] += 1.0

    waiting = Waiting(threading.Event(), 0.0, second, clock=lambda: now[0])
    reason = lambda: "no node may work" if now[0] < 25 else "1 not judged"  # noqa: E731
    waiting.until("2 accepted files for step 1", lambda: True if now[0] > 632 else None, why=reason)
    first = r"waiting for 2 accepted files for step 1 since \d\d:\d\d:\d\d: no node may work"
    assert re.fullmatch(first, caplog.messages[0])
    assert [lines[at] for at in (7, 8, 23, 24)] == [0, 1, 1, 2]
    assert lines[33] == 3, "another reason is said soon"
    assert lines[632] - lines[33] in (10, 11)


def test_what_is_waited_for_is_shown_and_a_failure_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    left, shown, meanwhile = [3], list[str](), list[int]()

    def attempt() -> str | None:
        shown.extend(wait["what"] for wait in WAITS.report())
        left[0] -= 1
        if left[0] == 1:
            raise UnreachableError("no bucket")
        return None if left[0] else "there"

    waiting = Waiting(threading.Event(), 0.001, lambda: meanwhile.append(1))
    assert waiting.until("a file", attempt, why=lambda: f"{left[0]} to go") == "there"
    assert shown == ["a file", "a file: 2 to go", "a file: no bucket"]
    assert caplog.messages == ["no bucket; trying again"]
    assert len(meanwhile) == 2
    assert WAITS.report() == []


def test_what_no_waiting_mends_is_raised_and_a_stop_is_heard() -> None:
    def wrong() -> None:
        raise IntegrityError("other weights")

    stopping = threading.Event()
    with pytest.raises(IntegrityError, match="other weights"):
        Waiting(stopping, 0.001, lambda: None).until("a file", wrong)
    waiting = Waiting(stopping, 60.0, stopping.set)
    assert waiting.until("a file", lambda: None) is None


def chain(steps: int, files: int = 0, **members: int) -> State:
    state = State(head=100)
    made = [Step(number, bytes(32), bytes(32), 5, 5, 0, "") for number in range(steps)]
    state.pools[1] = Pool(1, OWNER.address, bytes(32), TERMS, 0, 0, steps=made, sequences=FileNumbers(range(files)))
    for node, joined in members.items():
        state.accounts[1, node] = Account(1, node, OWNER.address, member=True, joined_step=joined)
    return state


def test_who_waits_and_who_may_work_follow_from_joins() -> None:
    late, both = chain(1, late=1), chain(1, early=0, late=1)
    assert count_nodes(late, 1) == (0, 1)
    assert count_nodes(both, 1) == (1, 1)
    assert count_nodes(both, 1, decoy="early") == (0, 1), "a decoy's files are never trained on"
    both.accounts[1, "early"].member = False
    assert count_nodes(both, 1) == (0, 1)
    both.accounts[1, "early"].member, both.accounts[1, "early"].frozen_at = True, 9
    assert count_nodes(both, 1) == (1, 1), "it may work again when the refusal is overturned"
    assert count_nodes(chain(2, late=1), 1) == (1, 0)


def test_nobody_who_may_work_is_waited_for_briefly_and_a_silent_node_long() -> None:
    now = [0.0]
    still = StallTimeout(20.0, 900.0, clock=lambda: now[0])

    def after(seconds: float, state: State, coming: int = 0) -> bool:
        now[0] += seconds
        return still.check(state, 1, "", coming)

    late, both = chain(1, late=1), chain(1, early=0, late=1)
    assert not after(0, late)
    assert not after(19, late)
    assert after(1, late)
    assert not after(0, late, coming=1), "a file without a verdict may still be the one that is missing"
    assert not after(19, late)
    assert not after(0, both), "now somebody can work"
    assert not after(899, both)
    assert not after(0, chain(1, files=1, early=0, late=1)), "a file came in"
    assert not after(899, chain(1, files=1, early=0, late=1))
    assert after(1, chain(1, files=1, early=0, late=1))
    assert not after(9000, chain(1, early=0)), "nobody waits for the next step"


def test_what_holds_a_run_up_is_said() -> None:
    still = StallTimeout(20.0, 900.0)

    def why(coming: int = 0, **members: int) -> str:
        still.check(chain(1, **members), 1, "carol", coming)
        return still.why

    assert why(carol=1).startswith("no node may work: an operator with a stake joins by")
    late = "nobody may work for step 0; nodes that joined after step 0 get step 1, without training"
    assert late in why(late=1)
    assert "no file is on its way" in why(early=0, late=1)
    assert why(early=0, late=1, coming=1) == ""
    assert why(early=0) == ""


def until(condition: Callable[[], bool]) -> None:
    wait_for("the trainer", lambda: condition() or None, 60, poll=0.02)


@contextmanager
def running(made: Trainer) -> Iterator[Future[int]]:
    """Its exit code, of a trainer that is stopped after the block unless it has ended."""
    with ThreadPoolExecutor(1) as pool:
        try:
            yield pool.submit(made.run)
        finally:
            made.stop()


def test_weights_are_published_at_once_and_who_joins_after_that_gets_a_step_to_work_for(
    base: Path, tmp_path: Path
) -> None:
    """A new pool in the documented order used to wait for ever, twice: a node joined after step 0 could only work for
    the next, which needs its files; and while step 0 waited for a node, nobody could make a dry run before joining."""
    world = TrainersWorld(base, tmp_path)
    files, world.files, world.members = world.files, [], {}
    made = start(world, stall_seconds=0.05, heartbeat_seconds=0.05)

    def told() -> set[str]:
        return {wait.what for beat in world.beats for wait in beat.waits}

    with running(made) as code:
        until(lambda: world.sent == [0])
        nobody = "2 accepted files for step 1: no node may work: an operator with a stake joins"
        until(lambda: any(wait.startswith(nobody) for wait in told()))
        assert world.sent == [0], "nobody is kept waiting"
        world.members = {NODE: 1}
        until(lambda: world.sent == [0, 1])
        until(lambda: 1 in world.reports)
        assert world.reports[1].consumed == []
        assert "reward" not in world.reports[1].metrics
        assert "task_reward_mean" not in world.reports[1].metrics
        until(lambda: "2 accepted files for step 2: no file is submitted" in told())
        world.files = files
        assert code.result(60) == EXIT_DONE
    assert world.sent == [0, 1, 2, 3]
    assert [world.reports[step].consumed for step in (2, 3)] == [[0, 1], [2, 3]]


def test_a_stranger_who_left_is_no_reason_to_wait(base: Path, tmp_path: Path) -> None:
    world = TrainersWorld(base, tmp_path)
    world.files, world.members = [], {STRANGER: 0}
    made = start(world)
    made.stop()
    assert made.run() == EXIT_STOPPED
    assert world.sent == [], "a stop before anybody joined is heard"
    with running(start(world, stall_seconds=0.05)):
        until(lambda: world.sent == [0])
        world.members = {NODE: 1}  # the first one left, another came
        until(lambda: world.sent == [0, 1])
