"""The tables of resting problems, killed before and after every read of the bucket and every write to the disk."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest

from protocol.curriculum_mask import MASK_FILE
from protocol.files import write_atomic
from storage.keys import object_key
from tests.dataset.curriculum_world import CONFIG
from tests.orchestrator.test_solve_rates import RatedRun
from tests.trainer.world import Killed
from trainer import curriculum
from trainer.curriculum import MaskWriter

STEPS = 4
MOST_ACTIONS = 200


@dataclass
class Disk:
    """What the trainer does outside itself, counted; after `fuse` actions it is killed. What a kill must leave whole
    is done or not done: never a part."""

    run: RatedRun
    home: Path
    fuse: int = MOST_ACTIONS
    actions: int = field(default=0)

    def act(self) -> None:
        self.actions += 1
        if self.actions > self.fuse:
            raise Killed

    def get(self, key: str, limit: int) -> bytes:
        self.act()
        return self.run.bucket.get(key, limit)

    def write_atomic(self, path: Path, data: bytes) -> None:
        self.act()
        write_atomic(path, data)
        self.act()

    def replace(self, old: Path, new: Path) -> None:
        self.act()
        os.replace(old, new)
        self.act()

    def process(self) -> MaskWriter:
        """A new one, with what the last one left."""
        return MaskWriter(CONFIG, 1, lambda: self.run.state, self.get, self.home, 0, 0.0)

    def step(self, number: int) -> Path:
        folder = self.home / f"step-{number}"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def work(self) -> None:
        """All tables, by one process."""
        tables = self.process()
        for number in range(STEPS + 1):
            tables.read_ahead()
            tables.write(number, self.step(number))

    def found(self) -> list[bytes]:
        return [(self.step(number) / MASK_FILE).read_bytes() for number in range(STEPS + 1)]


@pytest.fixture
def run() -> RatedRun:
    """Two files become final before each policy step is published."""
    made = RatedRun()
    made.state.head = 1000
    for number in range(STEPS):
        for counter in (2 * number, 2 * number + 1):
            made.file(counter, 100 * number + 50)
        made.step(100 * (number + 1))
    return made


@pytest.fixture
def kept(run: RatedRun, tmp_path: Path) -> list[bytes]:
    """The tables of a process that nobody kills."""
    disk = Disk(run, tmp_path / "steady")
    disk.work()
    return disk.found()


def watched(monkeypatch: pytest.MonkeyPatch, disk: Disk) -> None:
    monkeypatch.setattr(curriculum, "write_atomic", disk.write_atomic)
    monkeypatch.setattr(curriculum, "os", SimpleNamespace(replace=disk.replace))


def test_a_kill_at_every_action_changes_no_table(
    run: RatedRun, kept: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(set(kept)) > 2, "the tables differ from step to step"
    killed = 0
    for fuse in range(MOST_ACTIONS):
        disk = Disk(run, tmp_path / f"fuse-{fuse}", fuse)
        watched(monkeypatch, disk)
        try:
            disk.work()
        except Killed:
            killed += 1
            there = [disk.step(number) for number in range(STEPS + 1)]
            assert all(set(os.listdir(folder)) <= {MASK_FILE} for folder in there), "a step has its table or nothing"
            disk.fuse = MOST_ACTIONS * 10
            disk.work()
        assert disk.found() == kept, f"after action {fuse}"
        if disk.fuse < MOST_ACTIONS:
            break
    assert killed == disk.actions > 4 * (STEPS + 1), "every action was one to be killed at"


def test_what_was_read_before_a_kill_needs_no_bucket_afterwards(
    run: RatedRun, kept: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(run, tmp_path / "lost")
    disk.process().write(1, disk.step(1))
    for sub in run.state.submissions_of(1)[:2]:
        del run.bucket.objects[object_key("rollouts", sub.sha256)]
    again = disk.process()
    again.write(2, disk.step(2))
    assert (disk.step(2) / MASK_FILE).read_bytes() == kept[2], "nothing is left out"


def test_a_damaged_file_of_what_was_read_costs_another_look(run: RatedRun, kept: list[bytes], tmp_path: Path) -> None:
    disk = Disk(run, tmp_path / "damaged")
    for number in range(STEPS + 1):
        disk.process().write(number, disk.step(number))
        (disk.home / "solve-rates.json").write_bytes(b'{"torn')
    assert disk.found() == kept
