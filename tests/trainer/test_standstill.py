"""A run whose next step waits for files that only those may make who wait for that step goes on without them."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from chain.indexer.records import Account, Pool, Step
from chain.indexer.state import State
from tests.trainer.helpers import small_model
from tests.trainer.world import NODE, OWNER, STRANGER, TERMS, TrainersWorld, start
from trainer.exits import EXIT_DONE, EXIT_STOPPED
from trainer.waiting import Standstill, kept_waiting, makers


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("model") / "base")


def chain(steps: int, files: int = 0, **members: int) -> State:
    state = State(head=100)
    made = [Step(number, bytes(32), bytes(32), 5, 5, 0, "") for number in range(steps)]
    state.pools[1] = Pool(1, OWNER.address, bytes(32), TERMS, 0, 0, steps=made, sequences=list(range(files)))
    for node, joined in members.items():
        state.accounts[1, node] = Account(1, node, OWNER.address, member=True, joined_step=joined)
    return state


def test_who_waits_and_who_may_work_follow_from_joins() -> None:
    late, both = chain(1, late=1), chain(1, early=0, late=1)
    assert (kept_waiting(late, 1, ""), makers(late, 1, "")) == (True, 0)
    assert (kept_waiting(both, 1, ""), makers(both, 1, "")) == (True, 1)
    assert makers(both, 1, carrier="early") == 0, "a carrier's files are never trained on"
    both.accounts[1, "early"].member = False
    assert makers(both, 1, "") == 0
    both.accounts[1, "early"].member, both.accounts[1, "early"].frozen_at = True, 9
    assert makers(both, 1, "") == 1, "it may work again when the refusal is overturned"
    assert not kept_waiting(chain(2, late=1), 1, "")


def test_nobody_who_may_work_is_waited_for_briefly_and_a_silent_node_long() -> None:
    now = [0.0]
    still = Standstill(20.0, 900.0, clock=lambda: now[0])

    def after(seconds: float, state: State, coming: int = 0) -> bool:
        now[0] += seconds
        return still.look(state, 1, "", coming)

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
    still = Standstill(20.0, 900.0)

    def why(state: State, coming: int = 0) -> str:
        still.look(state, 1, "carol", coming)
        return still.why

    assert why(chain(1, carol=1)).startswith("no node may work: whoever has a stake joins by")
    assert "nobody may work for step 0; nodes that joined after step 0 get step 1, without training" in why(
        chain(1, late=1)
    )
    assert "no file is on its way" in why(chain(1, early=0, late=1))
    assert why(chain(1, early=0, late=1), coming=1) == ""
    assert why(chain(1, early=0)) == ""


def test_weights_are_published_at_once_and_who_joins_after_that_gets_a_step_to_work_for(
    base: Path, tmp_path: Path
) -> None:
    """A new pool in the documented order used to wait for ever, twice: a node joined after step 0 could only work for
    the next, which needs its files; and while step 0 waited for a node, nobody could rehearse before joining."""
    world = TrainersWorld(base, tmp_path)
    files, world.files, world.members = world.files, [], {}
    made = start(world, standstill_seconds=0.05, heartbeat_seconds=0.05)
    done: list[int] = []
    thread = threading.Thread(target=lambda: done.append(made.run()))
    thread.start()

    def told() -> set[str]:
        return {wait.what for beat in world.beats for wait in beat.waits}

    try:
        assert _until(lambda: world.sent == [0]), "it waits for nobody"
        nobody = "2 accepted files for step 1: no node may work: whoever has a stake joins"
        assert _until(lambda: any(wait.startswith(nobody) for wait in told())), told()
        assert world.sent == [0], "nobody is kept waiting"
        world.members = {NODE: 1}
        assert _until(lambda: world.sent == [0, 1])
        assert _until(lambda: 1 in world.reports)
        assert world.reports[1].consumed == []
        assert "reward" not in world.reports[1].metrics
        assert "task_reward_mean" not in world.reports[1].metrics
        assert _until(lambda: "2 accepted files for step 2: none is handed in" in told()), told()
        world.files = files
        thread.join(60)
    finally:
        made.stop()
        thread.join(60)
    assert done == [EXIT_DONE]
    assert world.sent == [0, 1, 2, 3]
    assert [world.reports[step].consumed for step in (2, 3)] == [[0, 1], [2, 3]]


def test_a_stranger_who_left_is_no_reason_to_wait(base: Path, tmp_path: Path) -> None:
    world = TrainersWorld(base, tmp_path)
    world.files, world.members = [], {STRANGER: 0}
    made = start(world, standstill_seconds=0.05)
    thread = threading.Thread(target=made.run)
    thread.start()
    try:
        assert _until(lambda: world.sent == [0])
        world.members = {NODE: 1}  # the first one left, another came
        assert _until(lambda: world.sent == [0, 1])
    finally:
        made.stop()
        thread.join(60)


def test_who_stops_the_trainer_before_anybody_joined_is_heard(base: Path, tmp_path: Path) -> None:
    world = TrainersWorld(base, tmp_path)
    world.members = {}
    made = start(world)
    made.stop()
    assert made.run() == EXIT_STOPPED
    assert world.sent == []


def _until(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    tries, waiting = max(1, int(seconds / 0.02)), threading.Event()
    for _ in range(tries):
        if condition():
            return True
        waiting.wait(0.02)
    return False
