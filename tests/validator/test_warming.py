"""Nobody should bond before the process could judge, and nobody with seats at stake should wait for that."""

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chain.indexer.records import Pool, Seat, Step
from chain.indexer.state import State
from protocol.accounts import Account
from protocol.errors import UnreachableError
from protocol.identity import PoolId
from protocol.seeds import Work
from tests.chain.game import terms
from validator.config import READY
from validator.pools import PoolOpener, ServedPools
from validator.tasks import TransactionTasks

VOTER = Account.from_key(b"\x05" * 32)
POOLS = "0x" + "00" * 19 + "99"


def opener(home: Path) -> PoolOpener:
    engine = SimpleNamespace(make=lambda: None, name="transformers")
    config: Any = SimpleNamespace(home=home, engine=engine, challenge_engines=())
    shared: Any = SimpleNamespace(voters={str(VOTER.address): None})
    judge_one: Any = None
    return PoolOpener(config, shared, VOTER, judge_one)


def client(steps: int, *seats: Seat) -> Any:
    made = [Step(number, bytes([number]) * 32, bytes(32), 5, 5, 0, "") for number in range(steps)]
    state = State(head=9, seats={seat.seat: seat for seat in seats})
    state.pools[1] = Pool(1, POOLS, bytes(32), terms(), 0, 0, steps=made)
    config = SimpleNamespace(pool=1)
    return SimpleNamespace(state=state, pool=lambda: state.pools[1], pool_id=PoolId(31337, POOLS, 1), config=config)


class Judge:
    """Remembers what it loaded; `failing` as weights that cannot be had do."""

    def __init__(self, failing: bool = False) -> None:
        self.loaded: list[Work] = []
        self.failing = failing

    def warm(self, work: Work) -> None:
        if self.failing:
            raise UnreachableError("no weights")
        self.loaded.append(work)


def warm(home: Path, known: Any, judge: Any) -> bool:
    with suppress(UnreachableError):
        opener(home)._warm(known, known.pool(), judge)
    return (home / READY).exists()


@pytest.mark.parametrize(("steps", "loaded"), [(0, []), (3, [2])])
def test_it_is_ready_with_the_newest_weights_that_there_are(tmp_path: Path, steps: int, loaded: list[int]) -> None:
    judge = Judge()
    assert warm(tmp_path, client(steps), judge)
    assert [work.id.step for work in judge.loaded] == loaded
    assert [work.manifest for work in judge.loaded] == [bytes([step]) * 32 for step in loaded]


def test_without_weights_it_is_not_ready(tmp_path: Path) -> None:
    assert not warm(tmp_path, client(1), Judge(failing=True))


def test_with_seats_at_stake_nothing_waits_for_weights(tmp_path: Path) -> None:
    judge = Judge()
    assert warm(tmp_path, client(1, Seat(1, POOLS, str(VOTER.address), 100, 0)), judge)
    assert judge.loaded == []


def test_the_weights_that_it_warms_with_are_kept(tmp_path: Path) -> None:
    """Before the first pool counts as one."""
    made: Any = opener(tmp_path)
    made._config.keep_steps, kept = 4, list[int]()
    for made._count in (0, 1, 3):
        kept.append(made._kept_steps())
    assert kept == [4, 4, 12]


@pytest.fixture
def tasks() -> Iterator[TransactionTasks]:
    made = TransactionTasks(1)
    yield made
    made.stop()


class PauseClock:
    """The seconds that the tasks' pauses are measured by."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr("validator.tasks.time", SimpleNamespace(monotonic=lambda: self.now))


def test_a_failed_warm_up_is_tried_again_soon_and_said(
    tmp_path: Path, tasks: TransactionTasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It used to be tried again only when `validator up` gave the process up, after a quarter of an hour."""
    clock, known, tried = PauseClock(monkeypatch), client(1), list[float]()
    judge: Any = Judge(failing=True)
    made = opener(tmp_path)

    def open_pool(source: Any, announced: bool) -> Any:
        tried.append(clock.now)
        made._warm(known, known.pool(), judge)
        return source

    source: Any = SimpleNamespace(pool=1)
    served = ServedPools({1: source}, open_pool, tasks)

    def look(seconds: int, wanted: set[int]) -> list[float]:
        tried.clear()
        for _ in range(seconds):
            served.advance(known.state, wanted)
            settle(tasks)
            clock.now += 1.0
        return [round(one) for one in tried]

    assert look(120, set()) == [0, 2, 6, 14, 30, 60, 90]
    assert served.problems == {1: "no weights"}
    assert look(10, {1}) == [120, 122, 124, 126, 128], "with seats at stake as often as ever"
    assert not (tmp_path / READY).exists()
    judge.failing = False
    look(31, set())
    assert [number for number, _ in served.take()] == [1]
    assert served.problems == {}
    assert (tmp_path / READY).exists()


def settle(tasks: TransactionTasks) -> None:
    """Until nothing runs."""
    end = time.monotonic() + 60
    while tasks._running and time.monotonic() < end:
        time.sleep(0.001)
    assert not tasks._running
