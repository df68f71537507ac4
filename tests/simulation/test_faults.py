"""Schedules of faults: they follow from the seed, are written down and read, and become smaller."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from protocol.errors import ConfigError
from simulation.faults import Fault, load, make_schedule, minimise, save

MACHINES = ["trainer", "worker-w1"]


def test_a_schedule_follows_from_its_seed() -> None:
    assert make_schedule(1, MACHINES, 100, 900, 10) == make_schedule(1, MACHINES, 100, 900, 10)
    assert make_schedule(1, MACHINES, 100, 900, 10) != make_schedule(2, MACHINES, 100, 900, 10)
    many = make_schedule(1, MACHINES, 0, 20_000, 10)
    assert len({fault.kind for fault in many}) == 14
    assert many == sorted(many, key=lambda fault: fault.at)


def test_a_schedule_is_written_and_read(tmp_path: Path) -> None:
    schedule = make_schedule(1, MACHINES, 0, 500, 10)
    save(tmp_path / "schedule.json", schedule)
    assert load(tmp_path / "schedule.json") == schedule
    (tmp_path / "schedule.json").write_text('[{"when": 1}]')
    with pytest.raises(ConfigError, match="no schedule"):
        load(tmp_path / "schedule.json")


def test_what_is_not_needed_is_left_out() -> None:
    schedule = make_schedule(1, MACHINES, 0, 640, 10)
    needed = {schedule[5], schedule[40]}
    runs = list[int]()

    def fails(part: Sequence[Fault]) -> bool:
        runs.append(len(part))
        return needed <= set(part)

    assert set(minimise(schedule, fails)) == needed
    assert len(runs) <= 60
