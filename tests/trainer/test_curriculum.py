"""A trainer publishes every step of a pool with a curriculum with its table, the same whatever is killed meanwhile."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from chain.indexer.state import State
from protocol.config import Curriculum, ProblemFilter
from protocol.curriculum import MASK_FILE, CurriculumMask
from protocol.files import write_atomic
from storage.keys import MissingObjectError, object_key
from storage.weights.manifest import Manifest
from tests.trainer import world as outside
from tests.trainer.world import Killed, TrainersWorld, check_kills, start
from trainer.data import curriculum
from trainer.data.curriculum import MaskWriter
from trainer.exits import EXIT_DONE

LEARN = Curriculum(tries=2, lowest=600, highest=900, window=2, most=500)
"""Half of the answers in this world are right, so what was tried is hard."""


@pytest.fixture(autouse=True, scope="module")
def learning() -> Iterator[None]:
    (plain,) = outside.CONFIG.environments
    environment = plain.model_copy(update={"problems": ProblemFilter.of(9, tuple(range(8))), "curriculum": LEARN})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outside, "CONFIG", outside.CONFIG.model_copy(update={"environments": (environment,)}))
        yield


def tables(world: TrainersWorld) -> list[CurriculumMask]:
    """Of every published step, from the bucket: its shards are there, whether the step has full weights or not."""
    found = []
    for digest in world.steps:
        stored = json.loads(world.objects[object_key("manifests", digest)])
        manifest = Manifest.model_validate(stored["manifest"])
        (file,) = [one for one in manifest.files if one.name == MASK_FILE]
        data = b"".join(world.objects[shard.key] for shard in file.shards)
        found.append(CurriculumMask.decoded(outside.CONFIG, data))
    return found


def test_every_step_has_its_table_and_keeps_its_deltas(base: Path, tmp_path: Path) -> None:
    world = TrainersWorld(base, tmp_path)
    assert start(world).run() == EXIT_DONE
    rests = [sum(table.masks(0, number) for number in range(9)) for table in tables(world)]
    assert rests == [0, 4, 4, 0], "what rests is bounded, and forgotten after two steps"
    manifests = [json.loads(world.objects[object_key("manifests", digest)])["manifest"] for digest in world.steps]
    assert [sorted(one["step"] for one in manifest["deltas"]) for manifest in manifests] == [[], [0], [1], [2]]
    assert [manifest["snapshot"] for manifest in manifests] == [True, False, True, False]


def test_a_trainer_killed_at_every_fifth_action_publishes_the_same_steps(base: Path, tmp_path: Path) -> None:
    check_kills(base, tmp_path, range(1, 80, 5))


def test_a_final_file_that_the_bucket_lost_is_left_out(base: Path, tmp_path: Path) -> None:
    world = TrainersWorld(base, tmp_path)
    lost = world.files[7]
    del world.objects[object_key("rollouts", lost.sha256)]
    assert start(world, missing_seconds=0.0).run() == EXIT_DONE
    assert [table.left_out for table in tables(world)] == [(), (7,), (7,), ()]


STEPS = 4
MOST_ACTIONS = 200


@dataclass
class Disk:
    """What the trainer does outside itself, counted; after `fuse` actions it is killed. What a kill must leave whole
    is done or not done: never a part."""

    state: State
    objects: dict[str, bytes]
    home: Path
    fuse: int = MOST_ACTIONS
    actions: int = 0

    def act(self) -> None:
        self.actions += 1
        if self.actions > self.fuse:
            raise Killed

    def get(self, key: str, limit: int) -> bytes:
        self.act()
        if key not in self.objects:
            raise MissingObjectError(f"no object {key}")
        return self.objects[key]

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
        return MaskWriter(outside.CONFIG, 1, lambda: self.state, self.get, 0, 0.0)

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


@pytest.fixture(scope="module")
def world(base: Path, tmp_path_factory: pytest.TempPathFactory) -> TrainersWorld:
    return TrainersWorld(base, tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def state(world: TrainersWorld) -> State:
    """Two files become final before each policy step is published."""
    world.steps = [bytes(32)] * STEPS
    state = world.state()
    state.pools[1].steps = [replace(one, time=100 * (one.step + 1)) for one in state.pools[1].steps]
    for file in state.submissions.values():
        file.final_time = 100 * (file.sequence // 2) + 50
    return state


@pytest.fixture(scope="module")
def kept(world: TrainersWorld, state: State, tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """The tables of a process that nobody kills."""
    disk = Disk(state, world.objects, tmp_path_factory.mktemp("steady"))
    disk.work()
    return disk.found()


def test_a_kill_at_every_action_changes_no_table(
    world: TrainersWorld, state: State, kept: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(set(kept)) > 2, "the tables differ from step to step"
    killed = 0
    for fuse in range(MOST_ACTIONS):
        disk = Disk(state, world.objects, tmp_path / f"fuse-{fuse}", fuse)
        monkeypatch.setattr(curriculum, "write_atomic", disk.write_atomic)
        monkeypatch.setattr(curriculum, "os", SimpleNamespace(replace=disk.replace))
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
