"""A run of sites goes on by itself, whatever is killed."""

from pathlib import Path
from typing import Literal

import pytest

from benchmarks.site_faults import FaultFigures, go_through, local_s3, make_crowd


def went_through(
    home: Path, sites: int, faults: int, seed: int, exchange: Literal["all", "shards"] = "all"
) -> FaultFigures:
    with local_s3(home / "s3") as s3:
        crowd = make_crowd(home / "run", s3, sites, f"faults-{seed}", exchange=exchange)
        return go_through(crowd, faults, seed, sites, print)


def assert_nothing_lost(made: FaultFigures) -> None:
    assert (made.steps_lost, made.steps_twice, made.signed_twice) == (0, 0, 0)
    assert made.steps > made.faults
    assert sum(made.kinds.values()) == made.faults
    assert len(made.recovery_s) == made.kinds["kill"]


@pytest.mark.parametrize("exchange", ["all", "shards"])
def test_two_sites_and_their_keeper_are_killed(exchange: Literal["all", "shards"], tmp_path: Path) -> None:
    made = went_through(tmp_path, 2, 2, 0, exchange)
    assert_nothing_lost(made)
    assert made.kinds["kill"] == made.kinds["kill keeper"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("exchange", ["all", "shards"])
def test_fifty_kills_joins_and_leaves_of_two_to_six_sites(exchange: Literal["all", "shards"], tmp_path: Path) -> None:
    made = went_through(tmp_path, 6, 50, 11, exchange)
    assert_nothing_lost(made)
    assert all(made.kinds.values())
