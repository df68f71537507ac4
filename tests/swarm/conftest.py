from pathlib import Path

import pytest

from environments.catalogue import load_environment
from protocol.folders import write_folder
from tests.swarm.world import SUMS, SwarmWorld
from trainer.warmup import Recipe, warm_up


@pytest.fixture(scope="session")
def learnt_a_little(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model after a few seconds of its warm-up: it answers in the right form, and now and then rightly."""
    recipe = Recipe(worked_steps=50, mixed_steps=30)
    folder = tmp_path_factory.mktemp("model") / "tiny"
    return write_folder(folder, lambda aside: warm_up(aside, load_environment(SUMS), 3, recipe))


@pytest.fixture
def world(tmp_path: Path, learnt_a_little: Path) -> SwarmWorld:
    return SwarmWorld(tmp_path, learnt_a_little)
