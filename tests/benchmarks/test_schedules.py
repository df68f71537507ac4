"""Random schedules of reorganisations, faults and restarts leave the state that a rebuild from scratch gives."""

import random
from pathlib import Path
from typing import Any

import pytest

from benchmarks.support.made_up_chain import Endpoint, MadeUpChain, deployment
from benchmarks.support.schedules import LocalProvider, fresh, run_schedule
from chain.indexer.follower import Follower
from chain.indexer.projection import Projection
from chain.rpc import BadAnswer, ChainReader
from protocol.errors import MusterError


@pytest.mark.parametrize("seed", range(1000, 1006))
def test_faults_leave_no_trace(seed: int, tmp_path: Path) -> None:
    same, faults = run_schedule(seed, tmp_path)
    assert same
    assert sum(faults.values()) > 10, "the schedule must meet faults"


def test_a_reorganisation_below_the_cursor_during_a_poll_is_noticed(tmp_path: Path) -> None:
    """The cursor's block is compared, then goes; the range of blocks after it is read from the other branch."""
    chain = MadeUpChain()
    done: list[str] = []
    chain.grow(100)

    def fault(method: str, params: list[Any]) -> None:
        if len(chain.blocks) > 150 and params[0] == hex(136) and not done:
            done.append(method)
            chain.fork(150, 150, branch=7)

    reader = ChainReader(LocalProvider(Endpoint(chain, fault=fault), random.Random(0)))
    follower = Follower(reader, deployment(), tmp_path / "events.sqlite")
    projection = Projection(follower)
    projection.refresh()
    chain.grow(100)
    projection.refresh()
    assert done
    assert projection.state == fresh(chain, tmp_path)
    follower.close()


def test_a_reorganisation_is_told_even_if_the_endpoint_fails_right_after_it_was_noticed(tmp_path: Path) -> None:
    chain = MadeUpChain()
    failing: list[str] = []
    chain.grow(100)

    def fault(method: str, params: list[Any]) -> None:
        if failing and params[:1] == failing:
            raise BadAnswer("ReadTimeout")

    reader = ChainReader(LocalProvider(Endpoint(chain, fault=fault), random.Random(0)))
    follower = Follower(reader, deployment(), tmp_path / "events.sqlite")
    projection = Projection(follower)
    projection.refresh()
    chain.fork(10, 13, branch=7)
    failing.append(hex(101))
    with pytest.raises(MusterError):
        projection.refresh()
    assert follower.head == 90
    failing.clear()
    projection.refresh()
    assert projection.state == fresh(chain, tmp_path)
    follower.close()
