"""How often sites look for what may not be there yet."""

import pytest

from trainer.sites import seldom
from trainer.sites.seldom import Seldom


class SetClock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SetClock:
    monkeypatch.setattr(seldom, "TIMES", 8.0)
    return SetClock()


def looked(every: Seldom, clock: SetClock, seconds: float) -> None:
    with every:
        clock.now += seconds


def test_the_first_look_is_due_at_once(clock: SetClock) -> None:
    assert Seldom(clock=clock).due()


def test_a_look_that_took_long_is_repeated_later(clock: SetClock) -> None:
    every = Seldom(clock=clock)
    looked(every, clock, 0.01)
    clock.now += 0.079
    assert not every.due()
    clock.now += 0.002
    assert every.due()


def test_no_wait_is_longer_than_the_most(clock: SetClock) -> None:
    every = Seldom(clock=clock)
    looked(every, clock, 60.0)
    clock.now += seldom.MOST - 0.01
    assert not every.due()
    clock.now += 0.02
    assert every.due()


def failed(clock: SetClock, seconds: float) -> None:
    clock.now += seconds
    raise OSError("gone")


def test_a_look_that_failed_counts_as_well(clock: SetClock) -> None:
    every = Seldom(clock=clock)
    with pytest.raises(OSError, match="gone"), every:
        failed(clock, 0.1)
    assert not every.due()
