"""A run of sites goes on by itself, whatever is killed."""

from pathlib import Path

import pytest

from benchmarks.site_faults import FaultFigures, go_through, local_s3, make_crowd


def went_through(home: Path, sites: int, faults: int, seed: int) -> FaultFigures:
    with local_s3(home / "s3") as s3:
        crowd = make_crowd(home / "run", s3, sites, f"faults-{seed}")
        return go_through(crowd, faults, seed, sites, print)


def assert_nothing_lost(made: FaultFigures) -> None:
    assert (made.steps_lost, made.steps_twice, made.signed_twice) == (0, 0, 0)
    assert made.steps > made.faults
    assert sum(made.kinds.values()) == made.faults
    assert len(made.recovery_s) == made.kinds["kill"]


def test_two_sites_and_their_keeper_are_killed(tmp_path: Path) -> None:
    made = went_through(tmp_path, 2, 2, 0)
    assert_nothing_lost(made)
    assert made.kinds["kill"] == made.kinds["kill keeper"] == 1


@pytest.mark.slow
def test_fifty_kills_joins_and_leaves_of_two_to_six_sites(tmp_path: Path) -> None:
    made = went_through(tmp_path, 6, 50, 11)
    assert_nothing_lost(made)
    assert all(made.kinds.values())
