"""A computation that does not move is noticed by the clock, against the steps before it."""

import pytest

from engines import runtime
from engines.runtime import StepPace


class StandingClock:
    """Moves when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> StandingClock:
    standing = StandingClock()
    monkeypatch.setattr(runtime, "time", standing)
    return standing


def warm() -> StepPace:
    """Of a process whose first computation is over."""
    steps = StepPace()
    with steps.computing():
        pass
    return steps


def test_a_step_is_overdue_once_it_takes_far_longer_than_any_before(clock: StandingClock) -> None:
    steps = warm()
    with steps.computing():
        for _ in range(3):
            clock.now += 0.5
            steps.step()
        clock.now += 9.9
        assert steps.overdue() == 0.0
        clock.now += 0.2
        assert steps.overdue() == pytest.approx(10.1)
        steps.step()
        assert steps.overdue() == 0.0
    clock.now += 1e6
    assert steps.overdue() == 0.0, "nothing is computed"


def test_quick_steps_have_seconds_and_the_first_of_a_process_minutes(clock: StandingClock) -> None:
    steps = StepPace()
    with steps.computing():
        clock.now += 60
        steps.step()
        clock.now += 119
        assert steps.overdue() == 0.0
        clock.now += 2
        assert steps.overdue() == pytest.approx(121)
    assert steps.longest == 0.0, "what compiles is no measure"
    assert steps.steps == 1, "it ended all the same"
    quick = warm()
    with quick.computing():
        clock.now += 0.01
        quick.step()
        clock.now += 4.9
        assert quick.overdue() == 0.0
        clock.now += 0.2
        assert quick.overdue() > 5.0


def test_blocks_within_a_block_and_steps_outside_of_any_change_nothing(clock: StandingClock) -> None:
    steps = StepPace()
    clock.now += 50
    steps.step()
    assert steps.longest == 0.0
    assert steps.steps == 0
    steps = warm()
    with steps.computing():
        clock.now += 1
        steps.step()
        with steps.computing():
            clock.now += 30
            assert steps.overdue() == pytest.approx(30)
        assert steps.overdue() == pytest.approx(30), "the outer computation goes on"
