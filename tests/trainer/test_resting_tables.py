"""A trainer publishes every step of a pool with a curriculum with its table, the same whatever is killed meanwhile."""

import json
from pathlib import Path

import pytest

from protocol.curriculum import Curriculum
from protocol.curriculum_mask import MASK_FILE, CurriculumMask
from protocol.problems import ProblemFilter
from storage.keys import object_key
from storage.weights.manifest import Manifest
from tests.trainer import world as outside
from tests.trainer.helpers import small_model
from tests.trainer.world import Killed, TrainersWorld, start
from trainer.exits import EXIT_DONE

LEARN = Curriculum(tries=2, lowest=600, highest=900, window=2, most=500)
"""Half of the answers in this world are right, so what was tried is hard."""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("model") / "base")


@pytest.fixture(autouse=True)
def learning(monkeypatch: pytest.MonkeyPatch) -> None:
    (plain,) = outside.CONFIG.environments
    environment = plain.model_copy(update={"problems": ProblemFilter.of(9, tuple(range(8))), "curriculum": LEARN})
    monkeypatch.setattr(outside, "CONFIG", outside.CONFIG.model_copy(update={"environments": (environment,)}))


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
    """Chain, bucket and service; tests/trainer/test_resting_kills.py has every action of making tables."""
    steady = TrainersWorld(base, tmp_path / "steady")
    assert start(steady).run() == EXIT_DONE
    for fuse in range(1, 80, 5):
        world = TrainersWorld(base, tmp_path / f"fuse-{fuse}")
        world.fuse = fuse
        try:
            start(world).run()
            done = True
        except Killed:
            done = False
        world.fuse = None
        assert start(world).run() == EXIT_DONE
        assert world.steps == steady.steps, f"after action {fuse}"
        if done:
            break


def test_a_final_file_that_the_bucket_lost_is_left_out(base: Path, tmp_path: Path) -> None:
    world = TrainersWorld(base, tmp_path)
    lost = world.files[7]
    del world.objects[object_key("rollouts", lost.sha256)]
    assert start(world, missing_seconds=0.0).run() == EXIT_DONE
    assert [table.left_out for table in tables(world)] == [(), (7,), (7,), ()]
