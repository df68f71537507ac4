"""Opening pools: nobody should bond before the process could judge, and nobody with seats at stake should wait for it.
A pool whose programs could hold the queue is not taken on, unless a seat already promised to judge it."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chain.indexer.records import Pool, Seat, Step
from chain.indexer.state import State
from protocol.accounts import Account
from protocol.config import ChecksConfig, EnvironmentConfig, ModelConfig, PoolConfig
from protocol.errors import ConfigError, UnreachableError
from protocol.identity import PoolId
from protocol.seeds import Work
from protocol.waits import wait_for
from runtime.process import EngineConfig
from tests.chain.game import terms
from tests.validator.daemon_world import FAMILY
from validator.config import READY
from validator.pools import PoolOpener, ServedPools, promised
from validator.tasks import TransactionTasks

VOTER = Account.from_key(b"\x05" * 32)
POOLS = "0x" + "00" * 19 + "99"


def seat(**known: Any) -> Seat:
    return Seat(1, POOLS, str(VOTER.address), 100, 0, **known)


def opener(home: Path) -> PoolOpener:
    copy = {"model_copy": lambda update: EngineConfig(**update)}
    engine = SimpleNamespace(make=lambda: None, name="transformers", **copy)
    config: Any = SimpleNamespace(home=home, engine=engine)
    shared: Any = SimpleNamespace(voters={str(VOTER.address): None})
    judge_one: Any = None
    return PoolOpener(config, shared, VOTER, judge_one)


def client(steps: int, *seats: Seat) -> Any:
    made = [Step(number, bytes([number]) * 32, bytes(32), 5, 5, 0, "") for number in range(steps)]
    state = State(head=9, seats={seat.seat: seat for seat in seats})
    state.pools[1] = Pool(1, POOLS, bytes(32), terms(), 0, 0, steps=made)
    config = SimpleNamespace(pool=1)
    return SimpleNamespace(state=state, pool=lambda: state.pools[1], pool_id=PoolId(31337, POOLS, 1), config=config)


class Warmed:
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
    judge = Warmed()
    assert warm(tmp_path, client(steps), judge)
    assert [work.id.step for work in judge.loaded] == loaded
    assert [work.manifest for work in judge.loaded] == [bytes([step]) * 32 for step in loaded]


def test_without_weights_it_is_not_ready_but_with_seats_at_stake_nothing_waits_for_them(tmp_path: Path) -> None:
    assert not warm(tmp_path, client(1), Warmed(failing=True))
    judge = Warmed()
    assert warm(tmp_path, client(1, seat()), judge)
    assert judge.loaded == []


def test_the_weights_that_it_warms_with_are_kept(tmp_path: Path) -> None:
    """Before the first pool counts as one."""
    made, kept = opener(tmp_path), list[int]()
    for made._count in (0, 1, 3):
        kept.append(made._kept_steps())
    assert kept == [4, 4, 12]


def test_a_failed_warm_up_is_tried_again_soon_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It used to be tried again only when `validator up` gave the process up, after a quarter of an hour."""
    clock, known, tried, tasks = SimpleNamespace(now=0.0), client(1), list[float](), TransactionTasks(1)
    monkeypatch.setattr("validator.tasks.time", SimpleNamespace(monotonic=lambda: clock.now))
    judge: Any = Warmed(failing=True)
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
            wait_for("the tasks", lambda: not tasks._running, 60, poll=0.001)
            clock.now += 1.0
        return [round(one) for one in tried]

    assert look(120, set()) == [0, 2, 6, 14, 30, 60, 90]
    assert served.problems == {1: "no weights"}
    assert look(10, {1}) == [120, 122, 124, 126, 128], "with seats at stake as often as ever"
    assert not (tmp_path / READY).exists()
    judge.failing = False
    look(31, set())
    tasks.stop()
    assert list(served.opened) == [1]
    assert served.problems == {}
    assert (tmp_path / READY).exists()


def programs(seconds: float) -> PoolConfig:
    """Files of 16 problems and 128 rows: 144 calls each."""
    own = EnvironmentConfig(name="program", content="ab" * 32, params={"seconds": seconds})
    return PoolConfig(name="slow", model=ModelConfig(source="m"), environments=(own,))


def pool(window: int, group: int = 0) -> Pool:
    made = replace(terms(), commitWindow=window, juryCommitWindow=window, group=group)
    return Pool(7, POOLS, bytes(32), made, 0, 0)


def refuse(home: Path, served: Pool, document: PoolConfig, *seats: Seat) -> None:
    state = State(head=9, seats={one.seat: one for one in seats}, pools={served.pool: served})
    client: Any = SimpleNamespace(state=state)
    opener(home)._refuse_unfit(client, served, document)


SLOW = programs(0.5)
ELSEWHERE = SLOW.model_copy(update={"checks": ChecksConfig(audit_rate=4096)})
UNFIT = [(SLOW, pool(2303), "2304 calls of 0.5 s"), (ELSEWHERE, pool(2304), "an audit rate of 4096, its terms have")]


@pytest.mark.parametrize(("document", "served", "why"), UNFIT)
def test_a_pool_that_is_slow_or_might_refuse_honest_files_is_opened_only_by_seats_that_promised_to_judge_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, document: PoolConfig, served: Pool, why: str
) -> None:
    refuse(tmp_path, pool(2304), SLOW)
    for seats in ((), (seat(groups=(FAMILY,)),)):
        with pytest.raises(ConfigError) as error:
            refuse(tmp_path, replace(served, terms=replace(served.terms, group=FAMILY * len(seats))), document, *seats)
        assert why in error.value.what
    refuse(tmp_path, served, document, seat(groups=(7,)))  # its silence is fined
    assert [line for line in caplog.messages if "pool 7 may " in line and why in line]


@pytest.mark.parametrize(
    ("known", "owed"),
    [
        ({"groups": (7,)}, True),
        ({"left_groups": {7: 3}}, True),
        ({"groups": (8,)}, False),
        ({"groups": (7,), "closed": True}, False),
    ],
)
def test_a_promise_is_a_seat_that_chose_the_pools_number(known: dict[str, Any], owed: bool) -> None:
    assert promised(pool(9), [seat(**known)]) is owed
    assert not promised(pool(9, FAMILY), [seat(groups=(FAMILY, 7))])
