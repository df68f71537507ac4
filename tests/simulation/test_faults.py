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
    assert many == sorted(many, key=lambda fault: fault.at)


def test_each_schedule_chooses_kinds_and_leaves_time_between_two_of_one() -> None:
    schedules = [make_schedule(seed, MACHINES, 0, 2000, 5) for seed in range(60)]
    chosen = [frozenset(fault.kind for fault in schedule) for schedule in schedules]
    assert len(frozenset().union(*chosen)) == 14
    assert {2, 14} <= {len(kinds) for kinds in chosen}
    for schedule in schedules:
        over = dict[tuple[str, str], float]()
        for fault in schedule:
            assert fault.at >= over.get((fault.kind, fault.who), -30.0) + 30
            over[fault.kind, fault.who] = fault.at + fault.seconds


def test_a_schedule_is_written_and_read(tmp_path: Path) -> None:
    schedule = make_schedule(1, MACHINES, 0, 500, 10)
    save(tmp_path / "schedule.json", schedule)
    assert load(tmp_path / "schedule.json") == schedule
    (tmp_path / "schedule.json").write_text('[{"when": 1}]')
    with pytest.raises(ConfigError, match="no schedule"):
        load(tmp_path / "schedule.json")


def test_what_is_not_needed_is_left_out() -> None:
    schedule = make_schedule(2, MACHINES, 0, 640, 5)
    needed = {schedule[5], schedule[40]}
    runs = list[int]()

    def fails(part: Sequence[Fault]) -> bool:
        runs.append(len(part))
        return needed <= set(part)

    assert set(minimise(schedule, fails)) == needed
    assert len(runs) <= 60
