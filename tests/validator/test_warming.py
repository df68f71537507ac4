"""Nobody should bond before the process could judge, and nobody with seats at stake should wait for that."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from eth_account import Account

from chain.records import Pool, Seat, Step
from chain.state import State
from protocol.errors import UnreachableError
from protocol.identity import PoolId
from protocol.seeds import Work
from tests.chain.game import terms
from validator.collaborators import PoolOpener
from validator.config import READY

VOTER = Account.from_key(b"\x05" * 32)
POOLS = "0x" + "00" * 19 + "99"


def opener(home: Path) -> PoolOpener:
    config: Any = SimpleNamespace(home=home, engine=SimpleNamespace(make=lambda: None))
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
    opener(home)._warm(known, judge)
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
        kept.append(made._kept())
    assert kept == [4, 4, 12]
