"""Random schedules of reorganisations, faults and restarts leave the state that a rebuild from scratch gives."""

from pathlib import Path

import pytest

from benchmarks.schedules import run_schedule


@pytest.mark.parametrize("seed", range(1000, 1006))
def test_faults_leave_no_trace(seed: int, tmp_path: Path) -> None:
    same, faults = run_schedule(seed, tmp_path)
    assert same
    assert sum(faults.values()) > 10, "the schedule must meet faults"
