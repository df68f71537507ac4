import os
from pathlib import Path

import pytest

from environments.registry import load_environment
from protocol.files import locked, write_folder
from tests.swarm.samples import SUMS
from tests.swarm.world import SwarmWorld
from trainer.model.base_model import Recipe, warm_up


@pytest.fixture(scope="session")
def learnt_a_little(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model after a few seconds of its warm-up: it answers in the right form, and now and then rightly."""
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:  # one for all processes
        root = root.parent
    folder, recipe = root / "learnt-a-little", Recipe(worked_steps=50, mixed_steps=30)
    with locked(root / "learnt-a-little.lock", "the tiny model's warm-up", 250):
        if not folder.exists():
            write_folder(folder, lambda aside: warm_up(aside, load_environment(SUMS), 3, recipe))
    return folder


@pytest.fixture
def world(tmp_path: Path, learnt_a_little: Path) -> SwarmWorld:
    return SwarmWorld(tmp_path, learnt_a_little)
