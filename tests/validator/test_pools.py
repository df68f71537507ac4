"""A pool whose programs could hold the queue is not taken on, unless a seat already promised to judge it."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chain.indexer.records import Pool, Seat
from chain.indexer.state import State
from protocol.config import EnvironmentConfig, ModelConfig, PoolConfig
from protocol.errors import ConfigError
from tests.chain.game import terms
from tests.validator.daemon_world import FAMILY
from tests.validator.test_warming import POOLS, VOTER, opener
from validator.pools import promised, slow_pool


def config(seconds: float) -> PoolConfig:
    """Files of 16 problems and 128 rows: 144 calls each."""
    own = EnvironmentConfig(name="program", content="ab" * 32, params={"seconds": seconds})
    return PoolConfig(name="slow", model=ModelConfig(source="m"), environments=(own,))


def pool(window: int, group: int = 0) -> Pool:
    made = replace(terms(), commitWindow=window, juryCommitWindow=window, group=group)
    return Pool(7, POOLS, bytes(32), made, 0, 0)


def seat(**known: Any) -> Seat:
    return Seat(1, POOLS, str(VOTER.address), 100, 0, **known)


def refuse(home: Path, served: Pool, seconds: float, *seats: Seat) -> None:
    state = State(head=9, seats={one.seat: one for one in seats}, pools={served.pool: served})
    client: Any = SimpleNamespace(state=state)
    opener(home)._refuse_slow(client, served, config(seconds))


def test_the_terms_windows_are_what_counts() -> None:
    assert slow_pool(config(0.5), pool(2 * 16 * 72)) is None
    assert slow_pool(config(0.5), pool(2 * 16 * 72 - 1)) is not None


def test_a_slow_pool_is_not_opened_where_no_seat_promised_to_judge_it(tmp_path: Path) -> None:
    refuse(tmp_path, pool(2304), 0.5)
    for served, seats in ((pool(2303), ()), (pool(2303, FAMILY), (seat(groups=(FAMILY,)),))):
        with pytest.raises(ConfigError) as error:
            refuse(tmp_path, served, 0.5, *seats)
        assert "program: scoring a lane of 16 files may take 2304 calls of 0.5 s" in error.value.what


def test_where_silence_is_fined_it_is_judged_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    refuse(tmp_path, pool(2303), 0.5, seat(groups=(7,)))
    assert [one for one in caplog.messages if "pool 7 may be TOO SLOW to judge in time" in one and "2304 calls" in one]


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
